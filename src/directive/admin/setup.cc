// The directive `admin`: a page that shows operators the cluster and this node, and what it shows as JSON.
#include "directive/admin/answers.h"
#include "directive/admin/page_response.h"
#include "http/endpoints.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

http::Response misdirected() {
  return secured({.status = 421,
                  .body = "This server is not known by that name: ask it by an IP address, as localhost, or by the "
                          "name of its node.\n"});
}

// The reply of `answer` to requests for a host that is this server.
http::LateHandler guarded(AdminAnswers& answers, std::string configured, http::LateHandler answer) {
  return [&answers, configured = std::move(configured), answer = std::move(answer)](const http::Request& request,
                                                                                    const http::Reply& reply) {
    const std::string host = hostOf(request.host);
    if (host.empty()) return reply(misdirected());
    if (host == configured || isAddressOrLocalhost(host)) return answer(request, reply);
    answers.isOwnName(
        host, [request, reply, answer](bool is_own) { return is_own ? answer(request, reply) : reply(misdirected()); });
  };
}

class AdminDirective final : public resolve::Configured<AdminSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    if (auto read = http::readListenAddress(cursor, "localhost:9154", settings_.address); !read) return read;
    return cursor.finish();
  }
  std::vector<SocketAddress> endpoints() const override {
    return http::resolve(settings_.address).value_or(std::vector<SocketAddress>());
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    process_ = &process;
    auto& answers = process.state<AdminAnswers>();
    const std::vector<std::pair<const char*, http::LateHandler>> paths{
        {"/", [](const http::Request&, const http::Reply& reply) { reply(pageResponse()); }},
        {"/api/status", [&answers](const http::Request&, const http::Reply& reply) { answers.sendStatus(reply); }},
        {"/api/members", [&answers](const http::Request&, const http::Reply& reply) { answers.sendMembers(reply); }},
        {"/api/peers", [&answers](const http::Request&, const http::Reply& reply) { answers.sendPeers(reply); }},
        {"/api/history",
         [&answers](const http::Request& request, const http::Reply& reply) { answers.sendHistory(request, reply); }}};
    for (const auto& [path, answer] : paths) {
      auto listening = process.state<http::Endpoints>().add(settings_.address, path,
                                                            guarded(answers, hostOf(settings_.address.host), answer));
      if (!listening) return fail("plugin/admin: " + listening.error().message);
      listening_ = std::move(*listening);
    }
    return {};
  }
  void start() override {
    for (const SocketAddress& address : listening_) {
      if (address.ip.isLoopback() || !process_->state<AdminAnswers>().noteExposed(address)) continue;
      process_->log.named("plugin/admin")
          .warning("the page is open to all who reach {}: they read the names and addresses of the cluster",
                   address.toString());
    }
  }

 private:
  resolve::Process* process_ = nullptr;
  std::vector<SocketAddress> listening_;
};

}  // namespace

extern const resolve::DirectiveType kAdminDirective{
    .name = "admin", .syntax = "admin [[HOST]:PORT]", .make = resolve::makeDirective<AdminDirective>, .once = true};

}  // namespace idetcd::directive
