#include "server/udp_service.h"

#include <algorithm>

namespace idetcd::server {

namespace {

// What the client takes, but no more than what crosses any path unfragmented.
size_t responseLimit(const dns::Query& query) {
  return query.has_edns ? std::min<size_t>(query.udp_payload, dns::kDefaultUdpPayload) : dns::kMinUdpPayload;
}

}  // namespace

UdpService::UdpService(WorkerContext& context, net::UdpSocket socket, std::shared_ptr<const resolve::Resolver> resolver)
    : context_(context),
      socket_(std::move(socket)),
      local_(socket_.localAddress()),
      resolver_(std::move(resolver)),
      jobs_(net::UdpBatch::kCapacity),
      watcher_(context.loop, socket_.fd(), [this] { onReadable(); }) {}

void UdpService::onReadable() {
  for (int i = 0; i < kMaxBatches; ++i) {
    if (serveBatch() < net::UdpBatch::kCapacity) return;
  }
}

size_t UdpService::serveBatch() {
  const size_t count = batch_.receive(socket_);
  if (count == 0) return 0;
  const records::ReadSection section(context_.reader);
  for (size_t i = 0; i < count; ++i) resolver_->begin(jobs_[i], batch_.buffer(i), batch_.size(i));
  for (size_t i = 0; i < count; ++i) resolver_->prefetch(jobs_[i]);
  for (size_t i = 0; i < count; ++i) answer(i);
  const size_t failed = batch_.flush(socket_);
  context_.counters.udp_received.add(count);
  context_.counters.udp_send_failed.add(failed);
  return count;
}

void UdpService::answer(size_t i) {
  resolve::Job& job = jobs_[i];
  // Nobody can be reached at port 0; what was cut off by the buffer is no query that anyone sends.
  const bool droppable = batch_.sourcePort(i) == 0 || batch_.isTruncated(i);
  const resolve::Request request{.source = batch_.source(i),
                                 .local = &local_,
                                 .transport = resolve::Transport::kUdp,
                                 .response_limit = responseLimit(job.query)};
  const size_t size = droppable ? 0 : resolver_->answer(job, request);
  if (size == 0) {
    context_.counters.udp_dropped.add(1);
    return;
  }
  batch_.reply(i, size);
  context_.counters.udp_sent.add(1);
}

}  // namespace idetcd::server
