// The page's data: the reading paths of the control socket, for viewers that share them.
#pragma once

#include <set>

#include "base/ip_address.h"
#include "directive/admin/shared_answer.h"
#include "http/listen_address.h"
#include "http/message.h"
#include "resolve/directive.h"

namespace idetcd::directive {

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
  // As the request's `since` has it.
  void sendHistory(const http::Request& request, const http::Reply& reply) const;
  // Whether a host is a name of this node, as of the last moment.
  void isOwnName(const std::string& host, std::function<void(bool)> use) const;

  // Whether this is the first time. The first loop's thread.
  bool noteExposed(const SocketAddress& address) { return exposed_.insert(address).second; }

 private:
  const std::shared_ptr<SharedAnswer> status_;
  const std::shared_ptr<SharedAnswer> members_;
  const std::shared_ptr<SharedAnswer> history_;
  std::set<SocketAddress> exposed_;  // that were warned about
};

}  // namespace idetcd::directive
