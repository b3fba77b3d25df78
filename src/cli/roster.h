// Waits until the members that are asked for are present. One thread.
#pragma once

#include <thread>

#include "base/ip_address.h"
#include "base/json.h"
#include "cli/arguments.h"
#include "cli/local_node.h"
#include "cli/slots.h"

namespace idetcd::cli {

// How long something is waited for. None: for ever.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(std::optional<std::chrono::nanoseconds> time);
  // Over when it begins: one attempt, which may take as long as it has to.
  static Deadline once();

  bool isOver() const { return end_ && Clock::now() >= *end_; }
  // For one request: the rest, at most LocalNode::kReadPatience, at least a second.
  std::chrono::milliseconds patience() const;
  // A moment, until the next attempt.
  void pause() const;

 private:
  std::optional<Clock::time_point> end_;
  bool is_once_ = false;
};

// Tries, once at least, until a result, a lasting failure, or the end of the time.
template <typename T>
Reply<T> keepTrying(const Deadline& deadline, const std::function<Reply<T>()>& attempt) {
  while (true) {
    Reply<T> tried = attempt();
    if (tried || !tried.error().may_pass || deadline.isOver()) return tried;
    deadline.pause();
  }
}

// The value of --pattern, if it is given, as the server has it: with the dot at its end.
std::optional<std::string> givenPattern(const Arguments& arguments);

// The reply to a request with `pattern`: where there is no such pattern, a failure that lists those there are.
Reply<nlohmann::json> explained(const LocalNode& node, const std::optional<std::string>& pattern,
                                Reply<nlohmann::json> reply);

// /v1/members, of the cluster of `pattern`, or of all.
Reply<nlohmann::json> readMembers(const LocalNode& node, const std::optional<std::string>& pattern,
                                  std::chrono::milliseconds patience);

// The part of /v1/status of one cluster: as the next. The node knows this; etcd is not asked.
Reply<nlohmann::json> readClusterStatus(const LocalNode& node, const std::optional<std::string>& pattern,
                                        std::chrono::milliseconds patience);

// Its slots, of one cluster: the one of `pattern`, or the only one.
Reply<Cluster> readCluster(const LocalNode& node, const std::optional<std::string>& pattern,
                           std::chrono::milliseconds patience);

// Whether those of `slots` that are not drained are exactly `members`, if that is given, and one of them at least.
Reply<std::vector<HeldSlot>> exactly(const Cluster& cluster, std::optional<uint64_t> members);

// Where the server of this machine may answer for the cluster: where it says that it listens; else at the port of its
// socket's name, here and at the node's addresses.
Reply<std::vector<SocketAddress>> serversOf(const LocalNode& node, const Cluster& cluster);

// The names that one of `servers` resolves; fails below `members`. Asks each once, even after a short overrun.
Reply<std::vector<HeldSlot>> atLeastResolved(const Cluster& cluster, uint64_t members,
                                         const std::vector<SocketAddress>& servers, const Deadline& deadline);

// The path of a request with a parameter, if there is one.
std::string target(std::string_view path, std::string_view parameter, const std::optional<std::string>& value);

}  // namespace idetcd::cli
