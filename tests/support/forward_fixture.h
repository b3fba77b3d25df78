// A Forwarder on a loop, with upstreams of our own on the same loop: everything that happens is in one order.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <vector>

#include <gtest/gtest.h>

#include "base/file_descriptor.h"
#include "dns/query.h"
#include "net/event_loop.h"
#include "net/tcp.h"
#include "net/udp_socket.h"
#include "resolver/forward_files.h"
#include "resolver/forwarder.h"
#include "support/metric_values.h"
#include "support/query_fixture.h"
#include "support/udp_reply.h"
#include "support/upstream_message.h"

namespace idetcd::resolver {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

// What an upstream was asked.
struct Asked {
  Bytes bytes;
  dns::Query query;  // its message is `bytes`
  bool over_tcp = false;
  SocketAddress from;

  uint16_t id() const { return dns::load16(bytes.data()); }
  std::string name() const { return dns::nameToString(query.qname); }
  UpstreamMessage response(uint16_t flags = 0x8180) const { return {name(), query.qtype, flags, id()}; }
  Bytes answer(uint8_t last = 1, uint32_t ttl = 60) const { return response().a(name(), ttl, {192, 0, 2, last}).bytes; }
};

// How it can answer.
struct Reply {
  std::function<void(const Bytes&)> send;  // as a datagram, or framed
  std::function<void(const Bytes&)> raw;   // TCP only: bytes as they are
  std::function<void()> close;             // TCP only
};

class FakeUpstream {
 public:
  using Handler = std::function<void(const Asked&, const Reply&)>;

  // Listens for UDP and TCP on one port of 127.0.0.1.
  explicit FakeUpstream(net::EventLoop& loop, Handler handler, uint16_t port = 0, bool with_tcp = true)
      : handler_(std::move(handler)) {
    for (int i = 0; i < 100; ++i) {
      auto udp = net::UdpSocket::bind({.ip = IpAddress::v4({127, 0, 0, 1}), .port = port}, false);
      if (!udp) continue;
      const SocketAddress address = udp->localAddress();
      if (with_tcp) {
        auto tcp = net::TcpListener::listen(loop, address, false, [this](auto c) { accept(std::move(c)); });
        if (!tcp) continue;
        tcp_ = std::move(*tcp);
      } else if (!holdTcp(address)) {
        continue;
      }
      udp_.emplace(std::move(*udp));
      watcher_.emplace(loop, udp_->fd(), [this] { onReadable(); });
      return;
    }
    ADD_FAILURE() << "no port";
  }

  SocketAddress address() const { return udp_->localAddress(); }
  uint16_t port() const { return address().port; }
  UpstreamTarget target() const { return {.server = UpstreamAddress{.address = address()}, .file = {}}; }
  size_t udpCount() const { return udp_count_; }
  size_t tcpCount() const { return tcp_count_; }
  size_t connectionCount() const { return connection_count_; }
  const std::vector<Asked>& asked() const { return asked_; }

  void handle(Handler handler) { handler_ = std::move(handler); }

 private:
  struct Session : net::StreamHandler {
    Session(FakeUpstream& owner, std::unique_ptr<net::TcpConnection> c) : upstream(owner), connection(std::move(c)) {}
    void onData(std::span<const uint8_t> bytes) override {
      input.insert(input.end(), bytes.begin(), bytes.end());
      while (input.size() >= 2 && input.size() - 2 >= dns::load16(input.data())) {
        const size_t size = dns::load16(input.data());
        const Bytes message(input.begin() + 2, input.begin() + 2 + static_cast<ptrdiff_t>(size));
        input.erase(input.begin(), input.begin() + 2 + static_cast<ptrdiff_t>(size));
        ++upstream.tcp_count_;
        upstream.ask(message, true, connection->remote(), reply());
        if (connection == nullptr) return;
      }
    }
    void onEnd() override { connection.reset(); }
    void onDrained() override {}
    void onError() override { connection.reset(); }
    Reply reply() {
      return {.send =
                  [this](const Bytes& message) {
                    Bytes framed(2);
                    dns::store16(framed.data(), static_cast<uint16_t>(message.size()));
                    framed.insert(framed.end(), message.begin(), message.end());
                    if (connection) connection->write(std::move(framed));
                  },
              .raw =
                  [this](const Bytes& bytes) {
                    if (connection) connection->write(Bytes(bytes));
                  },
              .close = [this] { connection.reset(); }};
    }

    FakeUpstream& upstream;
    std::unique_ptr<net::TcpConnection> connection;
    Bytes input;
  };

  void accept(std::unique_ptr<net::TcpConnection> connection) {
    ++connection_count_;
    sessions_.emplace_back(*this, std::move(connection));
    sessions_.back().connection->start(sessions_.back());
  }

  void onReadable() {
    while (const size_t count = batch_.receive(*udp_)) {
      for (size_t i = 0; i < count; ++i) {
        ++udp_count_;
        const net::UdpPeer peer = batch_.peer(i);
        const Bytes message(batch_.buffer(i), batch_.buffer(i) + batch_.size(i));
        const auto from = SocketAddress::fromSockaddr(batch_.source(i)).value();
        ask(message, false, from,
            {.send = [this, peer](const Bytes& bytes) { test_support::sendReply(*udp_, peer, bytes); },
             .raw = {},
             .close = {}});
      }
    }
  }

  void ask(const Bytes& message, bool over_tcp, const SocketAddress& from, const Reply& reply) {
    asked_.push_back({.bytes = message, .query = {}, .over_tcp = over_tcp, .from = from});
    Asked& asked = asked_.back();
    asked.bytes.resize(message.size() + dns::kReadSlack);
    dns::parseQuery(asked.bytes.data(), message.size(), Message::kSeed, asked.query);
    asked.bytes.resize(message.size());
    if (handler_) handler_(Asked(asked), reply);
  }

  // Without listening: who connects is refused, and no other program listens there.
  bool holdTcp(const SocketAddress& address) {
    tcp_hold_ = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage storage;
    const socklen_t length = address.toSockaddr(&storage);
    return ::bind(tcp_hold_.get(), reinterpret_cast<const sockaddr*>(&storage), length) == 0;
  }

  Handler handler_;
  std::optional<net::UdpSocket> udp_;
  std::optional<net::ReadWatcher> watcher_;
  std::unique_ptr<net::TcpListener> tcp_;
  FileDescriptor tcp_hold_;
  net::UdpBatch batch_;
  std::list<Session> sessions_;
  std::vector<Asked> asked_;
  size_t udp_count_ = 0;
  size_t tcp_count_ = 0;
  size_t connection_count_ = 0;
};

class ForwardFixture : public testing::Test {
 protected:
  // Time that only a failing test spends.
  static constexpr milliseconds kTimeout{120000};  // far beyond what a busy machine takes

  FakeUpstream& upstream(FakeUpstream::Handler handler, uint16_t port = 0, bool with_tcp = true) {
    return upstreams_.emplace_back(loop_, std::move(handler), port, with_tcp);
  }
  static void answerAll(const Asked& asked, const Reply& reply) { reply.send(asked.answer()); }
  static void sayNothing(const Asked&, const Reply&) {}

  Result<std::unique_ptr<Forwarder>> tryToMake(Forwarder::Options options) {
    auto files = ForwardFiles::read(options, executor_);
    if (!files) return tl::unexpected(files.error());
    options.files = std::move(*files);
    return Forwarder::make(loop_, std::move(options), {});
  }
  void make(Forwarder::Options options) {
    options.metrics = registry_.scope();
    auto made = tryToMake(std::move(options));
    ASSERT_TRUE(made) << made.error().message;
    forwarder_ = std::move(*made);
  }
  // Of the metric of this name.
  uint64_t counted(std::string_view metric) const {
    return static_cast<uint64_t>(test_support::sumOf(registry_, metric));
  }
  // What a process with so many descriptors has for the Forwarders of this loop.
  std::shared_ptr<UpstreamBudget> roomFor(size_t descriptors) {
    return UpstreamBudget::make(loop_, net::DescriptorBudget::make(descriptors)->account(0)).value();
  }
  // In the order of the list. Who is asked may take any time to answer: on a busy machine it is this thread that does
  // not run.
  static Forwarder::Options optionsFor(std::vector<UpstreamTarget> to) {
    Forwarder::Options options;
    options.to = std::move(to);
    options.policy = Forwarder::Policy::kSequential;
    options.attempt_time = options.total_time = options.least_timeout = kTimeout;
    options.health_check.interval = milliseconds(20);
    return options;
  }
  // For a silent server beside one that answers: the attempt is short, and the whole not.
  static Forwarder::Options failoverOptionsFor(std::vector<UpstreamTarget> to) {
    Forwarder::Options options = optionsFor(std::move(to));
    options.attempt_time = milliseconds(200);
    options.least_timeout = milliseconds(0);
    return options;
  }
  // For silent servers: all times are short.
  static Forwarder::Options hastyOptionsFor(std::vector<UpstreamTarget> to) {
    Forwarder::Options options = failoverOptionsFor(std::move(to));
    options.total_time = milliseconds(600);
    return options;
  }

  struct Question {
    std::string name = "www.example.org.";
    uint16_t qtype = 1;
    std::optional<uint16_t> edns = 1232;
    uint16_t flags = dns::kFlagRd;
    bool dnssec_ok = false;
    resolve::Transport transport = resolve::Transport::kUdp;
  };
  using Answer = std::shared_ptr<std::optional<ForwardResult>>;

  // Asks, and does not wait.
  Answer ask(const Question& question) {
    auto answer = std::make_shared<std::optional<ForwardResult>>();
    Message message(question.name, question.qtype, question.edns);
    dns::store16(message.data() + 2, question.flags);
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    query.dnssec_ok = question.dnssec_ok;
    forwarder_->resolve(query, question.transport, [this, answer](const ForwardResult& result) {
      EXPECT_FALSE(*answer) << "called twice";
      *answer = result;
      loop_.stop();
    });
    return answer;
  }
  Answer ask(const std::string& name) { return ask(Question{.name = name}); }

  ForwardResult resolve(const Question& question) {
    const Answer answer = ask(question);
    return wait(answer);
  }
  ForwardResult resolve(const std::string& name = "www.example.org.") { return resolve(Question{.name = name}); }

  ForwardResult wait(const Answer& answer) {
    runUntil([&answer] { return answer->has_value(); });
    return answer->value_or(ForwardResult{});
  }

  void runUntil(const std::function<bool()>& condition) {
    const auto deadline = BootClock::now() + kTimeout;
    net::Timer tick(loop_, [this] { loop_.stop(); });
    tick.start(milliseconds(1), milliseconds(5));
    while (!condition()) {
      ASSERT_LT(BootClock::now(), deadline) << "not in time";
      loop_.run();
    }
  }
  void runFor(milliseconds time) {
    const auto deadline = BootClock::now() + time;
    runUntil([deadline] { return BootClock::now() >= deadline; });
  }

  // The last byte of the first A record of an answer; 0: there is none.
  static int lastOctet(const ForwardResult& result) {
    if (!result.response || result.response->packed->answers == 0) return 0;
    return result.response->packed->body()[result.response->packed->answer_size - 1u];
  }

  metrics::Registry registry_;
  net::EventLoop loop_;
  Executor executor_;
  std::list<FakeUpstream> upstreams_;
  std::unique_ptr<Forwarder> forwarder_;
};

}  // namespace idetcd::resolver
