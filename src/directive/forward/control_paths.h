// Caches and upstreams for operators, who may also flush caches: sections and paths of control::Control.
//
//   GET /v1/status    "caches":    [{"block", "entries", "bytes", "hits", "misses"}], the sums over the loops of a block;
//                                  one without a cache is not there
//                     "upstreams": [{"block", "server", "up", "round_trip_seconds"}]: up if any loop thinks so; null while
//                                  the server is down or has answered nothing yet
//                     "degraded":  ["BLOCK: no upstream answers: SERVER..."] for each `forward` none of whose servers any loop
//                                  thinks to be up, or that has none
//   POST /v1/flush[?name=N]        {"flushed": answers}: drops all that is cached, or what is cached of N and the names
//                                  below it, on the disk too; 400 if N is no domain name
#pragma once

#include "base/json.h"
#include "resolve/directive.h"
#include "resolver/cache.h"
#include "resolver/upstream.h"

namespace idetcd::directive {

// Before any directive shares anything, whether or not the Corefile forwards anything. Sections are arrays without entries.
void addForwardPaths(resolve::Process& process);

// The caches and upstreams of the loops of one server block, for one configuration. Any thread.
class BlockReport {
 public:
  // One that is in the status, if the configuration that is being built is accepted, and as long as that is in use.
  static std::shared_ptr<BlockReport> make(resolve::Process& process);

  struct Loop {
    std::weak_ptr<const resolver::CacheCounters> cache{};                   // null: it has none
    std::vector<std::weak_ptr<const resolver::ServerReports>> upstreams{};  // one for each `forward`
    std::vector<std::string> files{};  // one for each `forward`, the files that are to name its servers
  };
  // `block`: the name by which it is known, the same for each loop.
  void add(const std::string& block, Loop loop);

  nlohmann::json caches() const;
  nlohmann::json upstreams() const;
  nlohmann::json degraded() const;

 private:
  mutable std::mutex mutex_;  // guards what follows
  std::string block_;
  std::vector<Loop> loops_;
};

}  // namespace idetcd::directive
