#include "server/tcp_service.h"

#include <algorithm>

#include "dns/wire.h"

namespace idetcd::server {

namespace {

constexpr size_t kPrefix = 2;  // the length in front of a message
// Answers are collected up to this much before they are written, so that pipelined queries share a system call.
constexpr size_t kWriteSize = size_t{64} << 10;

}  // namespace

class TcpService::Session : public net::TcpHandler {
 public:
  Session(TcpService& service, std::unique_ptr<net::TcpConnection> connection)
      : service_(service), connection_(std::move(connection)), idle_(service.context_.loop, [this] {
          service_.context_.counters.tcp_timed_out.add(1);
          service_.close(*this);
        }) {}

  void start() {
    idle_.start(kIdle);
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
    if (connection_->isDrained()) service_.close(*this);
  }

  void onDrained() override {
    if (!ended_) connection_->resumeReading();
    serveInput();
  }

  void onError() override { service_.close(*this); }

  Sessions::iterator position;

 private:
  static constexpr size_t kBroken = SIZE_MAX;

  void serveInput() {
    const size_t used = serve(input_);
    if (used == kBroken) return service_.close(*this);
    input_.erase(input_.begin(), input_.begin() + static_cast<ptrdiff_t>(used));
    if (ended_ && connection_->isDrained()) service_.close(*this);
  }

  // Answers every whole query at the front of `octets`, unless the client falls behind. Returns how many octets it
  // used.
  size_t serve(std::span<const uint8_t> octets) {
    std::vector<uint8_t> output;
    size_t used = 0;
    bool broken = false;
    while (!broken && octets.size() - used >= kPrefix && connection_->isDrained()) {
      const size_t size = dns::load16(octets.data() + used);
      if (size >= dns::kHeaderSize && octets.size() - used - kPrefix < size) break;
      broken = size < dns::kHeaderSize || !answer(octets.subspan(used + kPrefix, size), output);
      used += kPrefix + size;
      if (output.size() >= kWriteSize) write(output);
    }
    if (!output.empty()) write(output);
    if (broken) return kBroken;
    if (used > 0) {
      idle_.start(kIdle);
      service_.touch(*this);
    }
    return used;
  }

  bool answer(std::span<const uint8_t> query, std::vector<uint8_t>& output) {
    const size_t size = service_.answer(query, connection_->remote(), connection_->local());
    if (size == 0) return false;  // no query: whoever this is, it does not speak DNS
    const size_t start = output.size();
    output.resize(start + kPrefix + size);
    dns::store16(output.data() + start, static_cast<uint16_t>(size));
    std::copy_n(service_.message_.data(), size, output.data() + start + kPrefix);
    return true;
  }

  void write(std::vector<uint8_t>& output) {
    if (!connection_->write(std::exchange(output, {}))) connection_->pauseReading();
  }

  TcpService& service_;
  std::unique_ptr<net::TcpConnection> connection_;
  net::Timer idle_;
  std::vector<uint8_t> input_;  // the beginning of a query, or queries that wait for the client to read
  bool ended_ = false;
};

TcpService::TcpService(WorkerContext& context, std::shared_ptr<const resolve::Resolver> resolver)
    : context_(context), resolver_(std::move(resolver)), message_(dns::kMaxMessageSize + dns::kReadSlack) {}

TcpService::~TcpService() = default;

Result<std::unique_ptr<TcpService>> TcpService::listen(WorkerContext& context, const SocketAddress& address,
                                                       bool reuse_port,
                                                       std::shared_ptr<const resolve::Resolver> resolver) {
  std::unique_ptr<TcpService> service(new TcpService(context, std::move(resolver)));
  auto listener = net::TcpListener::listen(context.loop, address, reuse_port,
                                           [s = service.get()](auto connection) { s->accept(std::move(connection)); });
  if (!listener) return tl::unexpected(listener.error());
  service->listener_ = std::move(*listener);
  return service;
}

void TcpService::accept(std::unique_ptr<net::TcpConnection> connection) {
  if (sessions_.size() >= kMaxConnections) {
    context_.counters.tcp_evicted.add(1);
    close(*sessions_.front());
  }
  context_.counters.tcp_accepted.add(1);
  sessions_.push_back(std::make_unique<Session>(*this, std::move(connection)));
  sessions_.back()->position = std::prev(sessions_.end());
  sessions_.back()->start();
}

void TcpService::touch(Session& session) { sessions_.splice(sessions_.end(), sessions_, session.position); }

void TcpService::close(Session& session) { sessions_.erase(session.position); }

size_t TcpService::answer(std::span<const uint8_t> query, const SocketAddress& remote, const SocketAddress& local) {
  context_.counters.tcp_received.add(1);
  std::copy(query.begin(), query.end(), message_.begin());
  sockaddr_storage source;
  remote.toSockaddr(&source);
  const resolve::Request request{.source = reinterpret_cast<const sockaddr*>(&source),
                                 .local = &local,
                                 .transport = resolve::Transport::kTcp,
                                 .response_limit = dns::kMaxMessageSize};
  const records::ReadSection section(context_.reader);
  resolver_->begin(job_, message_.data(), query.size());
  return resolver_->answer(job_, request);
}

}  // namespace idetcd::server
