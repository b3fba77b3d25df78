// A node of a large cluster that serves its copy of all names to others, so that few nodes watch the store. It is chosen by
// its name's number: one of each `fan_out`, once the cluster has at least twice as many names. Names are dense, so that a
// cluster of N nodes has N / fan_out relays, whatever N is. With more than a million names there is none: its copy of them is
// kept in memory.
//
// The node lists itself in the store, under a lease of its own, while its copy is ready (name_cache.h). A relay costs
// nothing that anything depends on: without it others ask another one, or the store.
#pragma once

#include "base/ip_address.h"
#include "naming/context.h"
#include "naming/name_cache.h"
#include "naming/relayed_names.h"
#include "records/rrset.h"

namespace idetcd::naming {

// Serves a source to other nodes from when it is made until its end.
class RelayService {
 public:
  virtual ~RelayService() = default;
  RelayService(const RelayService&) = delete;
  RelayService& operator=(const RelayService&) = delete;

  virtual const RelayCard& card() const = 0;  // how to reach it
  virtual size_t readers() const = 0;         // that are connected

 protected:
  RelayService() = default;
};

// Serves the source at these addresses.
using RelayServer = std::function<Result<std::unique_ptr<RelayService>>(std::shared_ptr<store::Source>,
                                                                        const std::vector<IpAddress>& addresses)>;

// How nodes reach each other.
struct RelayOptions {
  int64_t fan_out = 0;  // 0: there are no relays
  // Both are called on the scheduler's thread, and do not block.
  std::function<std::shared_ptr<store::Source>(const RelayCard&)> connect = {};
  RelayServer serve = {};
};

// Scheduler's thread only.
class Relay {
 public:
  struct Options {
    int64_t fan_out = 0;
    std::vector<store::KeyRange> ranges;
    std::string prefix;  // of the keys of relays
    std::chrono::seconds lease{20};
    std::function<int64_t()> slot;                      // that this node holds; 0: none
    std::function<void(bool)> on_relay;                 // it has become one, or is none any more
    std::function<records::HostAddresses()> addresses;  // that others reach this node at
    RelayServer serve;
  };

  // `names`: how many there are.
  Relay(Context& context, Options options, std::function<size_t()> names);

  // Until the protocol stops. `owner` keeps the context alive, also for the copy of the names.
  runtime::Task<void> run(std::shared_ptr<void> owner);
  void stop();
  // The store's watch was found to lose changes.
  void forget();

 private:
  bool isPlace() const;
  bool isWanted() const;
  runtime::Task<int64_t> countNames();
  std::string key() const;
  runtime::Task<bool> serve(std::shared_ptr<void> owner);
  runtime::Task<bool> keepListed();
  runtime::Task<bool> list();
  void end();

  Context& context_;
  const Options options_;
  const std::function<size_t()> names_;
  std::shared_ptr<NameCache> cache_;       // null: this node is no relay
  std::unique_ptr<RelayService> service_;  // null: the cache has never been ready
  int64_t lease_ = 0;                      // 0: not listed
};

}  // namespace idetcd::naming
