// The caches of all blocks and loops, which go on through a reload.
#pragma once

#include "net/event_loop.h"
#include "resolve/directive.h"
#include "resolver/cache_saver.h"
#include "resolver/resolver_settings.h"

namespace idetcd::resolver {

// The caches of all loops, so that an operator can drop what they hold. A cache belongs to its loop: it is asked there,
// in slices of a fraction of a millisecond. Any thread.
class LiveCaches : public std::enable_shared_from_this<LiveCaches> {
 public:
  struct FlushResult {
    uint64_t flushed = 0;
    std::string error;  // empty: all has gone, from the files of the caches too; else one line
  };
  using Done = std::function<void(const FlushResult&)>;

  // Drops what is cached of `zone` and all names below it; of the root: everything, at once. `done` is called when it has
  // gone from each cache and from the file of each, so that no restart brings it back: once, on any thread, perhaps
  // before this returns. What was asked for before and comes meanwhile or later may be kept. A file that is still being
  // read is not read on for the root; for another zone that is waited for.
  void flush(const dns::Name& zone, Done done);

  // Somebody who uses a cache, and the saver of its file if there is one, on a loop. Made and destroyed on the loop's
  // thread, or while that does not run, and before the loop is.
  class User {
   public:
    User(std::shared_ptr<LiveCaches> all, std::weak_ptr<Cache> cache, std::weak_ptr<CacheSaver> saver,
         net::EventLoop& loop);
    ~User();
    User(const User&) = delete;
    User& operator=(const User&) = delete;

   private:
    friend class LiveCaches;
    const std::shared_ptr<LiveCaches> all_;
    const std::weak_ptr<Cache> cache_;
    const std::weak_ptr<CacheSaver> saver_;  // null: it has no file
    net::EventLoop& loop_;
  };

 private:
  class Request;
  class Job;

  std::vector<std::shared_ptr<CacheSaver>> saversOf(const std::weak_ptr<Cache>& cache);

  std::mutex mutex_;  // held while a loop is posted to: a user that is known has a loop that lives
  std::vector<User*> users_;
};

// A cache lives as long as a chain that uses it. While a reload goes on, the chain before and the one after it use one
// cache, on the same loop; a reload that is refused leaves each with the cache that it has.
class KeptCaches final : public resolve::ProcessState {
 public:
  explicit KeptCaches(resolve::Process& process) : executor_(process.executor) {}

  // A server block is known by its keys, and if several have the same, by the addresses that it listens on too: what
  // one has learnt is not for the clients of another one. In Directive::prepare() of each block with a cache.
  void announce(const std::string& keys) { ++announced_[keys]; }
  static std::string keysOf(const resolve::Block& block);
  // After the announcements. `listen`: what `bind` says.
  std::string nameOf(const std::string& keys, const std::vector<std::string>& listen) const;

  // Identifies the cache of the block before. What was kept by other rules has not passed these.
  struct Block {
    std::string name;
    std::string rules;  // rulesOf()
    bool operator==(const Block&) const = default;
  };
  // The rules for which answers may be kept, as text: not what is done with an answer when it is given (`acl`,
  // `minimal`, `loadbalance`, `dns64`).
  static std::string rulesOf(const ResolverSettings& settings);
  // The servers of these answers, as text. A reload lets answers of other servers end in time; a restart drops them.
  static std::string serversOf(const ResolverSettings& settings);

  struct Found {
    std::shared_ptr<Cache> cache;
    bool is_new = false;
  };
  // That of the configuration in use, if it has one for this block on this loop; it takes over `options` when the new
  // configuration is accepted. Else a new one. On the thread on which the chains are made, which is the loop's, or one
  // for which the loop waits.
  Found of(const Block& block, size_t worker, net::EventLoop& loop, const Cache::Options& options,
           const metrics::Scope& metrics);

  // Those that somebody uses, of any configuration: to be flushed. Any thread.
  const std::shared_ptr<LiveCaches>& live() const { return live_; }

  void accept() override;
  void refuse() override;

 private:
  struct Kept {
    Block block;
    net::EventLoop* loop = nullptr;
    std::weak_ptr<Cache> cache;
  };
  using AllKept = std::map<std::pair<size_t, std::string>, Kept>;  // by worker and name
  struct Change {
    net::EventLoop& loop;
    std::weak_ptr<Cache> cache;
    Cache::Options options;
  };

  const std::shared_ptr<Executor> executor_;
  const std::shared_ptr<LiveCaches> live_ = std::make_shared<LiveCaches>();
  AllKept used_;
  // Of the configuration that is being made:
  std::map<std::string, size_t> announced_;  // how many blocks have these keys
  AllKept next_;
  std::vector<Change> changes_;
};

}  // namespace idetcd::resolver
