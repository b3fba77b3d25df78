// The caches of all blocks and loops, which go on through a reload.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/event_loop.h"
#include "plugin/cache/cache.h"
#include "plugin/private/setup.h"
#include "resolve/directive.h"

namespace idetcd::plugin {

// A cache lives as long as a chain that uses it. While a reload goes on, the chain before and the one after it use one
// cache, on the same loop.
class KeptCaches final : public resolve::ProcessState {
 public:
  explicit KeptCaches(resolve::Process& process) : executor_(process.executor) {}

  // What makes a cache that of the block before: a server block is known by its keys. What was kept without `private`,
  // or with another one, has not passed this one's rules.
  struct Block {
    std::string keys;
    std::optional<PrivateSettings> rules;
    bool operator==(const Block&) const = default;
  };

  struct Found {
    std::shared_ptr<Cache> cache;
    bool is_new = false;
  };
  // That of the configuration in use, if it has one for this block on this loop; it takes over `options` when the new
  // configuration is accepted. Else a new one. On the thread on which the chains are made, which is the loop's, or one
  // for which the loop waits.
  Found of(const Block& block, size_t worker, net::EventLoop& loop, const Cache::Options& options,
           const metrics::Scope& metrics);

  void accept() override;
  void refuse() override { changes_.clear(); }

 private:
  struct Kept {
    Block block;
    net::EventLoop* loop = nullptr;
    std::weak_ptr<Cache> cache;
  };
  struct Change {
    net::EventLoop& loop;
    std::weak_ptr<Cache> cache;
    Cache::Options options;
  };

  const std::shared_ptr<Executor> executor_;
  std::map<std::pair<size_t, std::string>, Kept> kept_;  // by worker and keys
  std::vector<Change> changes_;                          // of the configuration that is being made
};

}  // namespace idetcd::plugin
