// The page's data: the reading paths of the control socket, for viewers that share them.
#pragma once

#include <set>

#include "base/ip_address.h"
#include "base/json.h"
#include "http/endpoints.h"
#include "http/message.h"
#include "resolve/directive.h"

namespace idetcd::directive {

// One answer of this process that all who look share: it is made once an interval at most, and once at a time. Who asks
// meanwhile gets that one. Any thread.
class SharedAnswer : public std::enable_shared_from_this<SharedAnswer> {
 public:
  static constexpr size_t kMaxWaiting = 64;

  struct Value {
    http::Response response;
    nlohmann::json body;  // read once; discarded if it is none
  };
  using Make = std::function<void(const http::Reply& reply)>;
  using Use = std::function<void(const Value&)>;

  static std::shared_ptr<SharedAnswer> of(Make make, std::chrono::milliseconds interval) {
    return std::shared_ptr<SharedAnswer>(new SharedAnswer(std::move(make), interval));
  }

  // Calls `use` once, now or later; with 503 beyond kMaxWaiting. Calls `make` on this thread.
  void read(const Use& use);

 private:
  class Pending;
  SharedAnswer(Make make, std::chrono::milliseconds interval) : make_(std::move(make)), interval_(interval) {}
  void finish(http::Response response);

  const Make make_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<const Value> last_;
  std::chrono::steady_clock::time_point made_at_;
  bool is_making_ = false;
  std::vector<Use> waiting_;
};

// Of a history ({"now", "seconds": [{"at", ...}]}): without the seconds up to `since`.
nlohmann::json historySince(const nlohmann::json& history, double since);

struct AdminSettings {
  http::ListenAddress address;
};

// One a process, so that however many ports and viewers there are, etcd is read every kMembersInterval at most.
class AdminAnswers final : public resolve::ProcessState {
 public:
  static constexpr std::chrono::milliseconds kInterval{250};
  static constexpr std::chrono::milliseconds kMembersInterval{2000};

  explicit AdminAnswers(resolve::Process& process);

  // --- HTTP thread; the reply comes on any ---
  void sendStatus(const http::Reply& reply) const;
  void sendMembers(const http::Reply& reply) const;
  void sendPeers(const http::Reply& reply) const;
  // As the request's `since` has it.
  void sendHistory(const http::Request& request, const http::Reply& reply) const;
  // Whether a host is a name of this node, as of the last moment.
  void isOwnName(const std::string& host, std::function<void(bool)> use) const;

  // Whether this is the first time. The first loop's thread.
  bool noteExposed(const SocketAddress& address) { return exposed_.insert(address).second; }

 private:
  const std::shared_ptr<SharedAnswer> status_;
  const std::shared_ptr<SharedAnswer> members_;
  const std::shared_ptr<SharedAnswer> peers_;
  const std::shared_ptr<SharedAnswer> history_;
  std::set<SocketAddress> exposed_;  // that were warned about
};

}  // namespace idetcd::directive
