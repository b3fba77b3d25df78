// Waiting until those are there who are asked for. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "cli/failure.h"
#include "cli/local_node.h"
#include "cli/slots.h"

namespace idetcd::cli {

// How long something is waited for. None: for ever.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(std::optional<std::chrono::nanoseconds> time);

  bool isOver() const { return end_ && Clock::now() >= *end_; }
  // For one request: what is left, but neither more than LocalNode::kPatience nor less than a moment in which it can
  // be answered.
  std::chrono::milliseconds patience() const;
  // A moment, until the next attempt.
  void pause() const;

 private:
  std::optional<Clock::time_point> end_;
};

// Tries, again and again, until there is a result, a failure that will not pass, or the time is over. Tries once at
// least.
template <typename T>
Reply<T> keepTrying(const Deadline& deadline, const std::function<Reply<T>()>& attempt) {
  while (true) {
    Reply<T> tried = attempt();
    if (tried || !tried.error().may_pass || deadline.isOver()) return tried;
    deadline.pause();
  }
}

// /v1/members, of the cluster of `pattern`, or of all.
Reply<nlohmann::json> readMembers(const LocalNode& node, const std::optional<std::string>& pattern,
                                  std::chrono::milliseconds patience);

// Its slots, of one cluster: the one of `pattern`, or the only one.
Reply<Cluster> readCluster(const LocalNode& node, const std::optional<std::string>& pattern,
                           std::chrono::milliseconds patience);

// Whether those of `slots` that are not drained are exactly `members`, if that is given, and one of them at least.
Reply<std::vector<Slot>> exactly(const Cluster& cluster, std::optional<uint64_t> members);

// Those of the cluster that the server at `port` of this machine resolves. Fails if they are less than `members`.
Reply<std::vector<Slot>> atLeastResolved(const Cluster& cluster, uint64_t members, uint16_t port,
                                         const Deadline& deadline);

// The path of a request with a parameter, if there is one.
std::string target(std::string_view path, std::string_view parameter, const std::optional<std::string>& value);

}  // namespace idetcd::cli
