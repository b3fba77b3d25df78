// The meters of all blocks with `prometheus`, by server, zone and loop, for as long as the process lives: a reload goes
// on with those that are there. Any thread.
#pragma once

#include <tuple>

#include "base/ip_address.h"
#include "directive/prometheus/snapshot.h"
#include "dns/name.h"
#include "http/listen_address.h"
#include "resolve/directive.h"
#include "resolve/query_meter.h"

namespace idetcd::directive {

struct PrometheusSettings {
  http::ListenAddress address;
};

class QueryMeters final : public resolve::ProcessState {
 public:
  // One directive of one zone at one listening address.
  struct Enabled {
    std::string server;
    std::string zone;
    std::string directive;
  };

  explicit QueryMeters(resolve::Process& process) : process_(process) {}

  // To be written by the loop of `worker` alone.
  std::shared_ptr<resolve::QueryMeter> meterOf(const std::string& server, const std::string& zone, size_t worker);

  // The directives of the block of `owner`; none any more.
  void enable(const void* owner, std::vector<Enabled> directives);
  void disable(const void* owner);

  // All numbers of the process, those of its metrics::Registry among them.
  Snapshot snapshot() const;

 private:
  using Key = std::tuple<std::string, std::string, size_t>;

  void addQueries(Snapshot& snapshot) const;

  resolve::Process& process_;
  mutable std::mutex mutex_;  // guards the maps, not the meters
  std::map<Key, std::shared_ptr<resolve::QueryMeter>> meters_;
  std::map<const void*, std::vector<Enabled>> enabled_;
};

}  // namespace idetcd::directive
