// What a client sends over TCP, in any pieces: each whole query is answered, in order, until something comes that is none
// (RFC 1035 §4.2.2, RFC 7766 §8); the pieces make no difference. Over a connection of the loopback to the real service.
// The input is a number of pieces, the size of each, and the stream.
#include <cerrno>
#include <cstdint>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "base/file_descriptor.h"
#include "dns/wire.h"
#include "fuzz/check.h"
#include "fuzz/pieces.h"
#include "server/tcp_service.h"
#include "unit/dns/message.h"

namespace {

using namespace idetcd;

constexpr size_t kPrefix = 2;
constexpr size_t kMaxStream = 8192;  // what one segment takes
constexpr std::chrono::seconds kHang{10};

// A service that refuses every question, on a loop that this thread turns.
class Server {
 public:
  Server() {
    auto listening = server::TcpService::listen(
        context_, {.ip = IpAddress::v4({127, 0, 0, 1}), .port = 0}, false,
        std::make_shared<const resolve::Router>(std::vector<resolve::Router::Zone>{}, HashSeed{7}),
        {.of_clients = {.max_per_client = 512, .idle = kHang * 2}});
    FUZZ_CHECK(listening.has_value());
    service_ = std::move(*listening);
  }

  net::EventLoop& loop() { return loop_; }
  SocketAddress address() const { return service_->localAddress(); }
  // What is at hand is done.
  void turn() {
    loop_.post([this] { loop_.stop(); });
    loop_.run();
  }

 private:
  net::EventLoop loop_;
  records::EpochDomain epochs_;
  server::WorkerContext context_{loop_, epochs_};
  std::unique_ptr<server::TcpService> service_;
};

class Client {
 public:
  explicit Client(Server& server)
      : server_(server),
        fd_(connect(server.address())),
        watcher_(server.loop(), fd_.get(), [this] { receive(); }),
        hang_(server.loop(), [] { FUZZ_CHECK(!"the server hangs"); }) {}

  // All that the server says to `stream`.
  std::string exchange(std::span<const uint8_t> stream, fuzz::Pieces pieces) {
    while (!stream.empty() && !ended_) {
      const auto piece = stream.first(pieces.next(stream.size()));
      if (::send(fd_.get(), piece.data(), piece.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(piece.size())) break;
      stream = stream.subspan(piece.size());
      server_.turn();
    }
    ::shutdown(fd_.get(), SHUT_WR);
    hang_.start(kHang);
    waiting_ = true;
    if (!ended_) server_.loop().run();
    return received_;
  }

 private:
  // From one loopback address after the other: what is left of a connection keeps its port for a minute, and of one
  // address thousands of short ones a second would take all.
  static FileDescriptor connect(const SocketAddress& to) {
    static uint32_t connections = 0;
    const uint32_t number = ++connections;
    FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int one = 1;
    ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    sockaddr_storage address;
    const SocketAddress from{
        .ip = IpAddress::v4({127, 1, static_cast<uint8_t>(number >> 8), static_cast<uint8_t>(number)})};
    socklen_t address_size = from.toSockaddr(&address);
    FUZZ_CHECK(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), address_size) == 0);
    address_size = to.toSockaddr(&address);
    int error = 0;
    do {
      error = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), address_size) == 0 ? 0 : errno;
    } while (error == EINTR);
    FUZZ_CHECK(error == 0 || error == EISCONN);
    return fd;
  }

  void receive() {
    char bytes[65536];
    const ssize_t size = ::recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (size > 0) return void(received_.append(bytes, static_cast<size_t>(size)));
    if ((size < 0 && errno == EAGAIN) || ended_) return;
    ended_ = true;
    if (waiting_) server_.loop().stop();
  }

  Server& server_;
  const FileDescriptor fd_;
  net::ReadWatcher watcher_;
  net::Timer hang_;
  std::string received_;
  bool ended_ = false;
  bool waiting_ = false;  // for the end; a turn stops by itself
};

// The queries of a stream that are to be answered.
std::vector<std::span<const uint8_t>> queriesOf(std::span<const uint8_t> stream) {
  std::vector<std::span<const uint8_t>> queries;
  while (stream.size() >= kPrefix) {
    const size_t size = dns::load16(stream.data());
    if (size < dns::kHeaderSize || stream.size() - kPrefix < size) break;
    const auto query = stream.subspan(kPrefix, size);
    if ((query[2] & 0x80) != 0) break;  // a response
    queries.push_back(query);
    stream = stream.subspan(kPrefix + size);
  }
  return queries;
}

void checkAnswers(const std::vector<std::span<const uint8_t>>& queries, std::string_view received) {
  for (const auto query : queries) {
    FUZZ_CHECK(received.size() >= kPrefix);
    const size_t size = dns::load16(dns::test::bytes(received).data());
    FUZZ_CHECK(received.size() - kPrefix >= size);
    const auto answer = dns::test::MessageReader::read(dns::test::bytes(received.substr(kPrefix, size)));
    FUZZ_CHECK(answer.has_value() && answer->has(dns::kFlagQr) && answer->id == dns::load16(query.data()));
    received.remove_prefix(kPrefix + size);
  }
  FUZZ_CHECK(received.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Server server;
  const fuzz::Pieces pieces({data, size});
  const auto stream = pieces.rest();
  if (stream.size() > kMaxStream) return 0;
  const auto queries = queriesOf(stream);
  const std::string whole = Client(server).exchange(stream, fuzz::Pieces({}));
  checkAnswers(queries, whole);
  FUZZ_CHECK(Client(server).exchange(stream, pieces) == whole);
  server.turn();  // closes what is left of the clients
  return 0;
}
