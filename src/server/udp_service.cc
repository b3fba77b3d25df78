#include "server/udp_service.h"

namespace idetcd::server {

namespace {

class UdpSink : public resolve::ReplySink {
 public:
  UdpSink(const std::shared_ptr<net::UdpReplies>& replies, const net::UdpPeer& peer, Counters& counters)
      : replies_(replies), peer_(peer), counters_(counters) {}
  void send(std::span<const uint8_t> message) override {
    if (const auto replies = replies_.lock()) replies->add(peer_, message);
  }
  void noteDropped(resolve::DropReason reason) override {
    if (const auto replies = replies_.lock()) counters_.dropped.add(reason);
  }

 private:
  std::weak_ptr<net::UdpReplies> replies_;  // an address that is closed is free at once
  net::UdpPeer peer_;
  Counters& counters_;  // of the loop, which outlives the replies
};

// The client of one datagram of the batch after the other.
class UdpReplyDeferrer : public resolve::ReplyDeferrer {
 public:
  UdpReplyDeferrer(const std::shared_ptr<net::UdpReplies>& replies, const net::UdpBatch& batch, Counters& counters)
      : replies_(replies), batch_(batch), counters_(counters) {}
  void moveTo(size_t i) { i_ = i; }
  std::unique_ptr<resolve::ReplySink> keepClient() override {
    return std::make_unique<UdpSink>(replies_, batch_.peer(i_), counters_);
  }

 private:
  const std::shared_ptr<net::UdpReplies>& replies_;
  const net::UdpBatch& batch_;
  Counters& counters_;
  size_t i_ = 0;
};

// Of the socket as it is from now on: what it has not had room for before is another process's to tell.
metrics::CounterFunction countOverflows(const Counters& counters, const net::UdpSocket& socket) {
  return {counters.scope().with(Counters::kReason, "receive_buffer"), "idetcd_queries_dropped_total",
          Counters::kDroppedHelp,
          [&socket, before = socket.overflowed()] { return static_cast<double>(socket.overflowed() - before); }};
}

// No client can be reached at port 0; what was cut off by the buffer is no valid query.
bool isUnusable(const net::UdpBatch& batch, size_t i) { return batch.sourcePort(i) == 0 || batch.isTruncated(i); }
[[gnu::cold, gnu::noinline]] resolve::QueryOutcome passOver(const net::UdpBatch& batch, size_t i, resolve::Job& job) {
  resolve::Router::pass(job);
  return resolve::QueryOutcome::drop(batch.sourcePort(i) == 0 ? resolve::DropReason::kPortZero
                                                         : resolve::DropReason::kOversized);
}

}  // namespace

UdpService::UdpService(WorkerContext& context, net::UdpSocket socket, std::shared_ptr<const resolve::Router> router)
    : context_(context),
      socket_(std::make_shared<net::UdpSocket>(std::move(socket))),
      overflowed_(countOverflows(context.counters, *socket_)),
      replies_(std::make_shared<net::UdpReplies>(context.loop, socket_, context.counters.udp_send_failed)),
      local_(socket_->localAddress()),
      router_(std::move(router)),
      jobs_(net::UdpBatch::kCapacity),
      watcher_(std::in_place, context.loop, socket_->fd(), [this] { onReadable(); }) {
  context.udp_services.push_back(this);
}

UdpService::~UdpService() { std::erase(context_.udp_services, this); }

// An answer over UDP may bring a late one over TCP with it, whose session then goes on with its own queries.
void UdpService::serveWaiting(WorkerContext& context) {
  for (UdpService* service : context.udp_services) {
    if (service->serving_) return;
  }
  for (UdpService* service : context.udp_services) {
    if (service->watcher_) service->serveBatch();
  }
}

void UdpService::onReadable() {
  for (int i = 0; i < kMaxBatches; ++i) {
    const size_t count = serveBatch();
    if (count == 0 && i == 0) batch_.takeHidden(*socket_);
    if (count < net::UdpBatch::kCapacity) return;
  }
}

size_t UdpService::serveBatch() {
  const size_t count = batch_.receive(*socket_);
  if (count == 0) return 0;
  serving_ = true;
  const auto begin = BootClock::now();
  const resolve::Router& router = *router_;
  const records::ReadSection section(context_.reader);
  const auto jobs = std::span(jobs_).first(count);
  for (size_t i = 0; i < count; ++i) router.begin(jobs[i], batch_.buffer(i), batch_.size(i));
  for (const resolve::Job& job : jobs) router.prefetch(job);
  context_.counters.udp_batches.observe(count);
  context_.counters.udp_received.add(count);  // before a client can know of it
  const resolve::BatchCounts counts = answerBatch(count, begin);
  const size_t failed = batch_.flush(*socket_);
  context_.counters.udp_send_failed.add(failed);
  router.onBatchDone(jobs, counts, begin);
  serving_ = false;
  return count;
}

resolve::BatchCounts UdpService::answerBatch(size_t count, BootClock::time_point begin) {
  UdpReplyDeferrer deferrer(replies_, batch_, context_.counters);
  resolve::Request request{.source = nullptr,
                           .local = &local_,
                           .transport = resolve::Transport::kUdp,
                           .response_limit = 0,
                           .now = begin,
                           .deferrer = &deferrer,
                           .router = router_.get(),
                           .samples = router_->samples()};
  resolve::BatchCounts counts{.queries = static_cast<uint32_t>(count)};
  const auto jobs = std::span(jobs_).first(count);
  for (size_t i = 0; i < count; ++i) {
    resolve::Job& job = jobs[i];
    deferrer.moveTo(i);
    request.source = batch_.source(i);
    request.response_limit = resolve::Router::udpResponseLimit(job);
    const resolve::QueryOutcome outcome =
        isUnusable(batch_, i) ? passOver(batch_, i, job) : router_->answerInBatch(job, request);
    if (outcome.kind == resolve::QueryOutcome::Kind::kAnswer) [[likely]] {
      batch_.reply(i, outcome.size);
      counts.addAnswer(batch_.buffer(i));
    } else if (outcome.kind == resolve::QueryOutcome::Kind::kDrop) {
      context_.counters.dropped.add(outcome.dropReason());
    }
  }
  router_->countBatch(jobs, local_);
  context_.counters.udp_sent.add(counts.answered);
  return counts;
}

}  // namespace idetcd::server
