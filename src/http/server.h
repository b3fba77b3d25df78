// An HTTP server for operators' endpoints (health, metrics), on a thread of its own, so that no query waits for it.
//
// Bounded: kMaxConnections at a time for each address, so that the clients of one do not crowd out those of another; the
// longest idle of an address gives way to a new one, and one that waits for a LateHandler only if all do. At the Unix
// socket, whose clients belong to this machine, there are kMaxLocal, fewer where the process may have few descriptors, and
// a new one waits for the end of another: who has not sent its request then within kLocalPatience is closed. A request has
// kPatience to arrive, and so has a client to read what it is sent. One response of a connection is under way at a time.
//
// Any thread but its own.
#pragma once

#include <variant>

#include "base/file_descriptor.h"
#include "base/ip_address.h"
#include "base/result.h"
#include "http/message.h"

namespace idetcd::http {

using Paths = std::map<std::string, std::variant<Handler, LateHandler>>;
// The handlers of each address, by path.
using Routes = std::map<SocketAddress, Paths>;

class Server {
 public:
  // Well below the margin that net::DescriptorBudget leaves for what it does not count.
  static constexpr size_t kMaxConnections = 8;
  static constexpr size_t kMaxLocal = 64;  // commands that wait for etcd hold up no other
  static constexpr std::chrono::seconds kPatience{10};
  static constexpr std::chrono::milliseconds kLocalPatience{500};
  static constexpr std::chrono::seconds kLatePatience{90};  // with a LateHandler

  static Result<std::unique_ptr<Server>> start();
  // Closes everything. The thread has ended when this returns, and the handlers are gone.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Listens on `address` if it does not yet; until there are routes for it requests get 503. Where it is a wildcard, or
  // one is listened on, the two share the port until use(). Returns the address: with the port that was given for 0.
  Result<SocketAddress> listen(const SocketAddress& address);

  // All routes from now on, at once: a request gets an answer of the ones before or of these. Listeners of other
  // addresses are closed; connections to addresses that stay are kept.
  void use(Routes routes);

  // Listens on a Unix socket (SOCK_STREAM) that is bound, in place of the last one. POST is a method there, and only
  // there: whom the file's permissions let in may change something. Until useLocal() requests get 503.
  void listenLocally(FileDescriptor bound);
  // The paths of the Unix socket from now on, all at once.
  void useLocal(Paths paths);

  struct Impl;  // for http/server.cc only

 private:
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace idetcd::http
