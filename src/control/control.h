// Status of this process and changes by operators: JSON over HTTP at a Unix socket, whose permissions
// decide who may (the subcommands of cli/). A directive adds paths and status sections in prepare(); an accepted
// configuration replaces those of the one before.
//
//   GET /v1/status    {"version", "pid", "uptime_seconds", "ready", "not_ready", and the sections of addStatus()}
//
// Paths begin with /v1/. A body is JSON and a newline; with a status of 400 or more it is {"error": one line}.
#pragma once

#include "base/json.h"
#include "http/message.h"
#include "http/server.h"
#include "resolve/directive.h"

namespace idetcd::control {

// A response with `body`.
http::Response answer(const nlohmann::json& body, int status = 200);
// A response that refuses, with one line for the operator.
http::Response refuse(int status, std::string_view error);
// The value of `name` in the query of a request ("name=a&zone=b"), percent-encoding undone; empty: there is none.
std::string parameter(const http::Request& request, std::string_view name);

class Control final : public resolve::ProcessState {
 public:
  using Read = std::function<nlohmann::json()>;

  explicit Control(resolve::Process& process) : process_(process) {}

  // --- while a configuration is built: in Directive::prepare(), any thread ---

  // Before the first directive shares anything.
  void begin();
  // A section of the status. `read` is called on the HTTP thread, must not wait, and keeps alive what it uses. Sections
  // of one name are one: arrays are put together, of anything else the last one counts.
  void addStatus(std::string section, Read read);
  // As Directive::readiness(): what a directive still lacks.
  void addReadiness(std::string directive, std::function<std::string()> missing);
  // Paths of the Unix socket.
  void add(const std::string& path, http::Handler handler);
  void addLate(const std::string& path, http::LateHandler handler);

  // --- HTTP thread ---

  // The answer of a path of the accepted configuration to a GET, for who shows it elsewhere; 404 if there is none.
  // Nothing is changed: what wants a POST refuses. As http::Reply, `reply` is called at once or later, on any thread.
  void ask(const std::string& path, const std::string& query, const http::Reply& reply) const;

  // --- any thread ---

  // The body of /v1/status.
  nlohmann::json report() const;

  void accept() override;
  void refuse() override;

 private:
  struct Parts {
    std::vector<std::pair<std::string, Read>> sections;
    std::vector<std::pair<std::string, std::function<std::string()>>> readiness;
    std::map<std::string, http::LateHandler> paths;
  };

  std::shared_ptr<const Parts> used() const;

  resolve::Process& process_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<const Parts> used_ = std::make_shared<const Parts>();
  Parts next_;
};

}  // namespace idetcd::control
