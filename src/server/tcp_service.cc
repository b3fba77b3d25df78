#include "server/tcp_service.h"

#include <algorithm>
#include <sys/resource.h>

#include "dns/wire.h"
#include "server/udp_service.h"

namespace idetcd::server {

namespace {

constexpr size_t kPrefix = 2;  // the length in front of a message
// Answers are collected up to this much before they are written, so that pipelined queries share a system call.
constexpr size_t kWriteSize = size_t{64} << 10;
// After so much work (some 50 us) those who ask over UDP have their turn.
constexpr size_t kWorkBeforeUdp = 64;
constexpr size_t kWorkOfQuery = 1;
constexpr size_t kWorkOfAccept = 8;

// Clients of one listener never take all descriptors: upstreams and etcd need some, and so do other listeners.
TcpService::Limits withinDescriptors(TcpService::Limits limits) {
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur != RLIM_INFINITY) {
    limits.max_connections = std::min<size_t>(limits.max_connections, std::max<rlim_t>(descriptors.rlim_cur / 8, 1));
  }
  return limits;
}

}  // namespace

class TcpService::Session : public net::TcpHandler,
                            public resolve::ClientKeeper,
                            public std::enable_shared_from_this<TcpService::Session> {
 public:
  Session(TcpService& service, std::unique_ptr<net::TcpConnection> connection)
      : service_(service), connection_(std::move(connection)), idle_(service.context_.loop, [this] { onIdle(); }) {}

  void start() {
    idle_.start(service_.limits_.idle);
    connection_->start(*this);
  }

  void onData(std::span<const uint8_t> octets) override {
    if (input_.empty()) {  // the common case: whole queries, answered from the read buffer
      const size_t used = serve(octets);
      if (used == kBroken) return service_.close(*this);
      input_.assign(octets.begin() + static_cast<ptrdiff_t>(used), octets.end());
    } else {
      input_.insert(input_.end(), octets.begin(), octets.end());
      serveInput();
    }
  }

  void onEnd() override {
    ended_ = true;
    closeIfDone();
  }

  void onDrained() override { proceed(); }

  void onError() override { service_.close(*this); }

  std::unique_ptr<resolve::ReplySink> keepClient() override {
    ++pending_;
    return std::make_unique<Sink>(weak_from_this());
  }

  const net::TcpConnection& connection() const { return *connection_; }

  Sessions::iterator position;

 private:
  static constexpr size_t kBroken = SIZE_MAX;

  // A later answer. The session may have gone by then; if there is no answer, it waits for one less.
  class Sink : public resolve::ReplySink {
   public:
    explicit Sink(std::weak_ptr<Session> session) : session_(std::move(session)) {}
    ~Sink() override { finish({}); }
    void send(std::span<const uint8_t> message) override { finish(message); }

   private:
    void finish(std::span<const uint8_t> message) {
      if (const auto session = std::exchange(session_, {}).lock()) session->onLateAnswer(message);
    }
    std::weak_ptr<Session> session_;
  };

  void onLateAnswer(std::span<const uint8_t> message) {
    --pending_;
    if (!message.empty()) {
      std::vector<uint8_t> output;
      append(message, output);
      write(output);
    }
    proceed();
  }

  void onIdle() {
    if (pending_ > 0) return idle_.start(service_.limits_.idle);  // it is the upstream that is slow
    service_.context_.counters.tcp_timed_out.add(1);
    service_.close(*this);
  }

  bool isReady() const { return connection_->isDrained() && pending_ < service_.limits_.max_pending; }

  // Goes on where a full pipe or too many pending queries had stopped it.
  void proceed() {
    if (serving_) return;  // a handler that kept a client let it go at once
    if (!ended_ && isReady()) connection_->resumeReading();
    if (!input_.empty()) return serveInput();
    closeIfDone();
  }

  void serveInput() {
    const size_t used = serve(input_);
    if (used == kBroken) return service_.close(*this);
    input_.erase(input_.begin(), input_.begin() + static_cast<ptrdiff_t>(used));
    closeIfDone();
  }

  void closeIfDone() {
    if (ended_ && connection_->isDrained() && pending_ == 0) service_.close(*this);
  }

  // Answers every whole query at the front of `octets`, unless the client falls behind. Returns how many octets it
  // used.
  size_t serve(std::span<const uint8_t> octets) {
    std::vector<uint8_t> output;
    size_t used = 0;
    bool broken = false;
    serving_ = true;
    while (!broken && octets.size() - used >= kPrefix && isReady()) {
      const size_t size = dns::load16(octets.data() + used);
      if (size >= dns::kHeaderSize && octets.size() - used - kPrefix < size) break;
      broken = size < dns::kHeaderSize || !answer(octets.subspan(used + kPrefix, size), output);
      used += kPrefix + size;
      if (output.size() >= kWriteSize) write(output);
      service_.spend(kWorkOfQuery);
    }
    serving_ = false;
    if (!output.empty()) write(output);
    if (broken) return kBroken;
    if (!isReady()) connection_->pauseReading();
    if (used > 0) {
      idle_.start(service_.limits_.idle);
      service_.touch(*this);
    }
    return used;
  }

  // False for what is no query: whoever this is, it does not speak DNS.
  bool answer(std::span<const uint8_t> query, std::vector<uint8_t>& output) {
    const resolve::Outcome outcome = service_.answer(query, *this);
    if (outcome.kind == resolve::Outcome::Kind::kAnswer) append({service_.message_.data(), outcome.size}, output);
    return outcome.kind != resolve::Outcome::Kind::kDrop;
  }

  static void append(std::span<const uint8_t> message, std::vector<uint8_t>& output) {
    const size_t start = output.size();
    output.resize(start + kPrefix + message.size());
    dns::store16(output.data() + start, static_cast<uint16_t>(message.size()));
    std::copy(message.begin(), message.end(), output.begin() + static_cast<ptrdiff_t>(start + kPrefix));
  }

  void write(std::vector<uint8_t>& output) { connection_->write(std::exchange(output, {})); }

  TcpService& service_;
  std::unique_ptr<net::TcpConnection> connection_;
  net::Timer idle_;
  std::vector<uint8_t> input_;  // the beginning of a query, or queries that wait for the client to read
  size_t pending_ = 0;          // queries whose answers come later
  bool ended_ = false;
  bool serving_ = false;
};

TcpService::TcpService(WorkerContext& context, std::shared_ptr<const resolve::Resolver> resolver, Limits limits)
    : context_(context),
      limits_(withinDescriptors(limits)),
      resolver_(std::move(resolver)),
      message_(dns::kMaxMessageSize + dns::kReadSlack) {}

TcpService::~TcpService() = default;

Result<std::unique_ptr<TcpService>> TcpService::listen(WorkerContext& context, const SocketAddress& address,
                                                       bool reuse_port,
                                                       std::shared_ptr<const resolve::Resolver> resolver,
                                                       Limits limits) {
  std::unique_ptr<TcpService> service(new TcpService(context, std::move(resolver), limits));
  auto listener = net::TcpListener::listen(context.loop, address, reuse_port,
                                           [s = service.get()](auto connection) { s->accept(std::move(connection)); });
  if (!listener) return tl::unexpected(listener.error());
  service->listener_ = std::move(*listener);
  return service;
}

void TcpService::spend(size_t work) {
  work_since_udp_ += work;
  if (work_since_udp_ < kWorkBeforeUdp) return;
  work_since_udp_ = 0;
  UdpService::serveWaiting(context_);
}

void TcpService::accept(std::unique_ptr<net::TcpConnection> connection) {
  spend(kWorkOfAccept);
  if (sessions_.size() >= limits_.max_connections) {
    context_.counters.tcp_evicted.add(1);
    close(*sessions_.front());
  }
  context_.counters.tcp_accepted.add(1);
  sessions_.push_back(std::make_shared<Session>(*this, std::move(connection)));
  sessions_.back()->position = std::prev(sessions_.end());
  sessions_.back()->start();
}

void TcpService::touch(Session& session) { sessions_.splice(sessions_.end(), sessions_, session.position); }

void TcpService::close(Session& session) { sessions_.erase(session.position); }

resolve::Outcome TcpService::answer(std::span<const uint8_t> query, Session& session) {
  context_.counters.tcp_received.add(1);
  std::copy(query.begin(), query.end(), message_.begin());
  sockaddr_storage source;
  session.connection().remote().toSockaddr(&source);
  const resolve::Request request{.source = reinterpret_cast<const sockaddr*>(&source),
                                 .local = &session.connection().local(),
                                 .transport = resolve::Transport::kTcp,
                                 .response_limit = dns::kMaxMessageSize,
                                 .now = BootClock::now(),
                                 .client = &session};
  const records::ReadSection section(context_.reader);
  resolver_->begin(job_, message_.data(), query.size());
  return resolver_->answer(job_, request);
}

}  // namespace idetcd::server
