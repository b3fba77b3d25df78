#include "server/udp_service.h"

namespace idetcd::server {

namespace {

class UdpSink : public resolve::ReplySink {
 public:
  UdpSink(const std::shared_ptr<net::UdpReplies>& replies, const net::UdpPeer& peer) : replies_(replies), peer_(peer) {}
  void send(std::span<const uint8_t> message) override {
    if (const auto replies = replies_.lock()) replies->add(peer_, message);
  }

 private:
  std::weak_ptr<net::UdpReplies> replies_;  // an address that is closed is free at once
  net::UdpPeer peer_;
};

// The client of one datagram of the batch after the other.
class UdpClient : public resolve::ClientKeeper {
 public:
  UdpClient(const std::shared_ptr<net::UdpReplies>& replies, const net::UdpBatch& batch)
      : replies_(replies), batch_(batch) {}
  void moveTo(size_t i) { i_ = i; }
  std::unique_ptr<resolve::ReplySink> keepClient() override {
    return std::make_unique<UdpSink>(replies_, batch_.peer(i_));
  }

 private:
  const std::shared_ptr<net::UdpReplies>& replies_;
  const net::UdpBatch& batch_;
  size_t i_ = 0;
};

}  // namespace

UdpService::UdpService(WorkerContext& context, net::UdpSocket socket, std::shared_ptr<const resolve::Resolver> resolver)
    : context_(context),
      socket_(std::make_shared<net::UdpSocket>(std::move(socket))),
      replies_(std::make_shared<net::UdpReplies>(context.loop, socket_)),
      local_(socket_->localAddress()),
      resolver_(std::move(resolver)),
      jobs_(net::UdpBatch::kCapacity),
      watcher_(context.loop, socket_->fd(), [this] { onReadable(); }) {
  context.udp_services.push_back(this);
}

UdpService::~UdpService() { std::erase(context_.udp_services, this); }

// An answer over UDP may bring a late one over TCP with it, whose session then goes on with its own queries.
void UdpService::serveWaiting(WorkerContext& context) {
  for (UdpService* service : context.udp_services) {
    if (service->serving_) return;
  }
  for (UdpService* service : context.udp_services) service->serveBatch();
}

void UdpService::onReadable() {
  for (int i = 0; i < kMaxBatches; ++i) {
    if (serveBatch() < net::UdpBatch::kCapacity) return;
  }
}

size_t UdpService::serveBatch() {
  const size_t count = batch_.receive(*socket_);
  if (count == 0) return 0;
  serving_ = true;
  const resolve::Resolver& resolver = *resolver_;
  const records::ReadSection section(context_.reader);
  for (size_t i = 0; i < count; ++i) resolver.begin(jobs_[i], batch_.buffer(i), batch_.size(i));
  for (size_t i = 0; i < count; ++i) resolver.prefetch(jobs_[i]);
  answerBatch(count);
  const size_t failed = batch_.flush(*socket_);
  context_.counters.udp_received.add(count);
  context_.counters.udp_send_failed.add(failed);
  serving_ = false;
  return count;
}

void UdpService::answerBatch(size_t count) {
  UdpClient client(replies_, batch_);
  resolve::Request request{.source = nullptr,
                           .local = &local_,
                           .transport = resolve::Transport::kUdp,
                           .response_limit = 0,
                           .now = BootClock::now(),
                           .client = &client};
  size_t dropped = 0;
  size_t answered = 0;
  for (size_t i = 0; i < count; ++i) {
    resolve::Job& job = jobs_[i];
    client.moveTo(i);
    request.source = batch_.source(i);
    request.response_limit = resolve::Resolver::udpResponseLimit(job);
    // Nobody can be reached at port 0; what was cut off by the buffer is no query that anyone sends.
    const bool droppable = batch_.sourcePort(i) == 0 || batch_.isTruncated(i);
    const resolve::Outcome outcome = droppable ? resolve::Outcome::drop() : resolver_->answer(job, request);
    if (outcome.kind == resolve::Outcome::Kind::kAnswer) [[likely]] {
      batch_.reply(i, outcome.size);
      ++answered;
    } else if (outcome.kind == resolve::Outcome::Kind::kDrop) {
      ++dropped;
    }
  }
  context_.counters.udp_sent.add(answered);
  context_.counters.udp_dropped.add(dropped);
}

}  // namespace idetcd::server
