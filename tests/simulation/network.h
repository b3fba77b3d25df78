// The network between processes and the members of etcd: one link from each machine to each member. It delays, loses
// and holds back messages in either direction. What a link that is cut holds back comes when it is mended, as over TCP,
// or never; a watch's messages come in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "simulation/random.h"
#include "simulation/simulated_etcd.h"
#include "simulation/simulated_store.h"
#include "simulation/virtual_time.h"

namespace idetcd::simulation {

// In one direction.
struct Path {
  bool cut = false;
  std::deque<std::function<void()>> held;
};

struct Link {
  Duration least_delay{std::chrono::microseconds(100)};
  Duration most_delay{std::chrono::milliseconds(2)};
  size_t lost = 0;  // of a thousand messages, in each direction
  size_t late = 0;  // of a thousand messages
  // Of a thousand claims, those that come when nobody waits for them any more. As many answers to claims are lost, and as
  // many revocations.
  size_t claims_lost = 0;
  Duration most_page_delay{0};  // of the answers to reads of many keys, in addition: there are many names
  Path to_member;
  Path from_member;
};

// Where many nodes are only counted: what names say is left out of all that a node is told, but of its own. A table of
// names that say nothing takes half the memory and a third of the time.
struct ValueFilter {
  std::string uuid = {};   // of the node; empty: nothing is left out
  bool keeps_ids = false;  // a relay passes on whose they are

  void apply(store::KeyValue* kv) const;
  void apply(store::RangeResult* range) const;
  void apply(store::WatchBatch* batch) const;
  void apply(Answer* answer) const;
};

// The connections of one process. Where they end is told by `deliver`, which runs what has come within the process's
// turn, or drops it if there is no such process any more.
class ProcessNetwork final : public Network {
 public:
  // The links belong to the machine. All outlive the network, but for its own part in what is under way.
  ProcessNetwork(VirtualTime& time, Random& random, SimulatedEtcd& etcd, std::vector<Link>& links);
  ~ProcessNetwork() override;

  // REQUIRES: before anything is sent. `on_send` sees each request that goes out. `trace`, which may be empty, is told
  // what goes out and what comes in.
  void connect(std::function<void(std::function<void(SimulatedStore&)>)> deliver,
               std::function<void(const Request&)> on_send, std::function<void(std::string)> trace) {
    deliver_ = std::move(deliver);
    on_send_ = std::move(on_send);
    trace_ = std::move(trace);
  }

  void send(uint64_t call, size_t member, Request request) override;
  void openWatch(uint64_t stream, size_t member, std::vector<store::WatchRange> ranges) override;
  void askProgress(uint64_t stream) override;
  void cancelWatch(uint64_t stream) override;

  // Of what comes in, after etcd has counted what it sends.
  void setFilter(ValueFilter filter) { filter_ = std::move(filter); }

  // Nothing of this process is under way any more, and nothing goes out: it was killed.
  void close();

  // A memory snapshot is taken of a process later: its twin does what it does, unseen. What the twin sends is held
  // against what was sent here, and goes nowhere.
  struct Twin {
    uint64_t number = 0;
    size_t kind = 0;
    bool operator==(const Twin&) const = default;
  };
  void follow(ProcessNetwork* twin) { twin_ = twin; }  // null: no more
  void beTwinOf(std::function<void()> on_difference) { on_difference_ = std::move(on_difference); }
  void beItself() { on_difference_ = nullptr; }

 private:
  struct OpenWatch {
    size_t member = 0;
    uint64_t number = 0;  // etcd's
    Time next_delivery;
  };
  bool note(uint64_t number, size_t kind);  // true: this is a twin
  void pass(Path& path, Duration delay, std::function<void()> what);
  Duration delayOver(Link& link);
  void askForLess(Request* request) const;
  void reply(uint64_t call, size_t member, Answer answer, bool lost = false);
  void tell(uint64_t stream, size_t member, std::function<void(SimulatedStore&)> what, std::string text);

  VirtualTime& time_;
  Random& random_;
  SimulatedEtcd& etcd_;
  std::vector<Link>& links_;
  std::function<void(std::function<void(SimulatedStore&)>)> deliver_;
  std::function<void(const Request&)> on_send_;
  std::function<void(std::string)> trace_;
  ValueFilter filter_;
  using Leases = std::set<int64_t>;
  const std::shared_ptr<Leases> leases_ = std::make_shared<Leases>();  // that were granted to the process
  std::map<uint64_t, OpenWatch> watches_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  ProcessNetwork* twin_ = nullptr;
  std::function<void()> on_difference_;
  std::deque<Twin> expected_;  // of a twin
};

}  // namespace idetcd::simulation
