// The endpoints that the Corefile asks for, kept over a reload: what a configuration adds in Directive::prepare() is served
// once it is accepted, all of it at once, in place of what the last one has added. An address that stays is listened on
// without a gap, and a configuration that is thrown away leaves everything as it was.
//
// There is no thread and no listener until something is added, or the Unix socket is.
#pragma once

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "http/server.h"
#include "resolve/directive.h"

namespace idetcd::http {

// Where an endpoint listens, as a Corefile says it: "[HOST]:PORT". Any thread.
struct ListenAddress {
  std::string host;  // empty: every address of the machine
  std::string port;  // a number, or the name of a service

  std::string toString() const;  // as it is written
};

// As Go's net.SplitHostPort: an IPv6 address is in brackets; whether there are such a host and port is not asked.
Result<ListenAddress> parseListenAddress(std::string_view text);

// The only argument of a directive's own line, or `otherwise` if there is none. The error is complete.
// REQUIRES: `otherwise` is one.
Result<void> readListenAddress(config::DirectiveCursor& cursor, std::string_view otherwise, ListenAddress& address);

// Of a name the first IPv4 address, or else the first one. May block: a name that is in no file is asked of DNS.
Result<std::vector<SocketAddress>> resolve(const ListenAddress& address);

class Endpoints final : public resolve::ProcessState {
 public:
  static constexpr std::chrono::milliseconds kStartPatience{4000};

  explicit Endpoints(resolve::Process& process) : process_(process) {}

  // In Directive::prepare(); may block. The port is taken at once, so that one that is not free is an error of the new
  // configuration; before the first one is accepted, all that are taken have kStartPatience together to come free, since the
  // process that this one goes on for may be about to end. That is less than what a start may take before it is said to be
  // slow. If the path is there already, of another server block, `handler` takes its place. Returns where it listens.
  Result<std::vector<SocketAddress>> add(const ListenAddress& address, const std::string& path,
                                         const Paths::mapped_type& handler);

  // Serves what addLocally() adds on a Unix socket that is bound, for as long as the process lives. Before the first
  // configuration is accepted. The error is one line.
  Result<void> serveLocally(FileDescriptor bound);
  // As add(), for the Unix socket. Nothing if there is none.
  void addLocally(const std::string& path, Paths::mapped_type handler);

  void accept() override;
  void refuse() override;
  void stop() override;

 private:
  Result<void> startServer();
  Result<SocketAddress> listen(const SocketAddress& address);

  const resolve::Process& process_;
  std::mutex mutex_;  // guards what follows
  bool is_start_ = true;
  std::optional<BootClock::time_point> patience_end_;  // since the first port that was taken
  std::unique_ptr<Server> server_;
  Routes used_;
  Routes next_;  // of the configuration that is being built
  bool is_local_ = false;
  Paths next_local_;
};

}  // namespace idetcd::http
