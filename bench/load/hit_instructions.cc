// For callgrind: the real UdpService on a real socket, in one process with its client, so that the instructions of its
// path from recvmmsg to sendmmsg can be counted apart from everything else:
//   valgrind --tool=callgrind --collect-atstart=no --toggle-collect='idetcd::server::UdpService::serveBatch()'
//            hit_instructions
// Each round sends 64 queries and waits for their answers. Prints how many were answered, what to divide by, and how
// often memory was allocated after the first rounds, by the client or the loop too.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/arguments.h"
#include "common/served_names.h"
#include "load/query_source.h"
#include "malloc_counter.h"
#include "net/event_loop.h"
#include "server/udp_service.h"

namespace idetcd::bench {
namespace {

constexpr char kUsage[] =
    "usage: hit_instructions [--rounds 200] [--names 1000] [--edns] [--nxdomain] [--cached [--alias] | --file] "
    "[--wildcard] [--counted]\n";
constexpr size_t kBatch = net::UdpBatch::kCapacity;
constexpr size_t kWarmRounds = 2;

class Client {
 public:
  Client(net::EventLoop& loop, const SocketAddress& server, QuerySource source, size_t rounds)
      : loop_(loop), source_(std::move(source)), rounds_(rounds), fd_(openSocket(server)), watcher_(loop, fd_, [this] {
          onReadable();
        }) {}
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void sendRound() {
    for (size_t i = 0; i < kBatch; ++i) {
      uint8_t packet[QuerySource::kMaxQuerySize];
      Expectation expectation;
      const size_t size = source_.next(packet, expectation);
      if (send(fd_, packet, size, 0) < 0) std::perror("send");
    }
  }
  size_t answered() const { return answered_; }
  size_t allocations() const { return allocations_; }

 private:
  static int openSocket(const SocketAddress& server) {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_storage storage;
    const socklen_t length = server.toSockaddr(&storage);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&storage), length) != 0) std::perror("connect");
    return fd;
  }

  void onReadable() {
    uint8_t answer[512];
    while (recv(fd_, answer, sizeof(answer), 0) > 0) ++answered_;
    if (answered_ % kBatch != 0) return;
    if (answered_ == kWarmRounds * kBatch) test::countAllocations(&allocations_);
    if (answered_ == rounds_ * kBatch) {
      test::countAllocations(nullptr);
      return loop_.stop();
    }
    sendRound();
  }

  net::EventLoop& loop_;
  QuerySource source_;
  const size_t rounds_;
  size_t answered_ = 0;
  std::atomic<size_t> allocations_{0};
  int fd_;
  net::ReadWatcher watcher_;
};

}  // namespace
}  // namespace idetcd::bench

int main(int argc, char** argv) {
  using namespace idetcd;
  bench::Arguments arguments(argc, argv, bench::kUsage);
  const auto rounds = arguments.number<size_t>("--rounds", 200);
  bench::QuerySource::Options source;
  source.names = arguments.number<uint32_t>("--names", 1000);
  source.edns = arguments.flag("--edns");
  source.nxdomain_percent = arguments.flag("--nxdomain") ? 100 : 0;
  const bool cached = arguments.flag("--cached");
  if (cached) source.zone = dns::Name::parse("example.net.").value();
  const bool aliased = arguments.flag("--alias");
  const bool from_file = arguments.flag("--file");
  const bool wildcard = arguments.flag("--wildcard");
  const bool counted = arguments.flag("--counted");
  arguments.finish();

  net::EventLoop loop;
  bench::ServedNames served(source.names, false,
                            cached ? std::optional(bench::World{loop, source.zone, aliased}) : std::nullopt, counted);
  if (from_file) served.serveZone(source.names);
  const IpAddress loopback = IpAddress::v4({127, 0, 0, 1});
  auto socket = net::UdpSocket::bind({.ip = wildcard ? IpAddress::v4({}) : loopback, .port = 0}, false);
  if (!socket) return 1;
  const SocketAddress address{.ip = loopback, .port = socket->localAddress().port};
  server::WorkerContext context(loop, served.epochs());
  server::UdpService service(context, std::move(*socket), served.router());
  bench::Client client(loop, address, bench::QuerySource(source), rounds);
  client.sendRound();
  loop.run();
  std::printf("%zu %zu\n", client.answered(), client.allocations());
  return 0;
}
