#include "resolve/deferred_reply.h"

#include "dns/response.h"
#include "resolve/query_meter.h"
#include "resolve/query_samples.h"

namespace idetcd::resolve {

DeferredReply::DeferredReply(const dns::Query& query, const Request& request)
    : query_(query),
      source_{},
      local_(*request.local),
      transport_(request.transport),
      is_inner_(request.is_inner),
      name_exists_(request.name_exists),
      meter_(request.meter),
      samples_(request.samples),
      response_limit_(request.response_limit),
      received_at_(request.now),
      sink_(request.deferrer->keepClient()) {
  std::memcpy(buffer_.data(), query.message, query.question_end);
  query_.message = buffer_.data();
  query_.nsid = nullptr;  // this node may have another name by then
  const size_t source_size = request.source->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&source_, request.source, source_size);
}

void DeferredReply::makeRoom(std::vector<uint8_t>& room, const NsidSource* nsid) {
  if (room.size() < response_limit_) room.resize(response_limit_);
  std::memcpy(room.data(), query_.message, query_.question_end);
  query_.message = room.data();
  query_.nsid = query_.asksFor(dns::kAsksNsid) && nsid != nullptr ? nsid->text() : nullptr;
}

Request DeferredReply::request() const {
  return {.source = reinterpret_cast<const sockaddr*>(&source_),
          .local = &local_,
          .transport = transport_,
          .response_limit = response_limit_,
          .now = received_at_,
          .deferrer = nullptr,
          .is_inner = is_inner_,
          .name_exists = name_exists_,
          .meter = meter_,
          .samples = samples_};
}

bool DeferredReply::pushBack() {
  if (!sink_ || !sink_->pushBack()) return false;
  sink_.reset();
  return true;
}

void DeferredReply::finish(size_t size, RateLimiter* limiter, const QueryObserver* log, DirectiveId by) {
  if (name_exists_) dns::denyDataOnly(query_.message);
  if (limiter != nullptr && !is_inner_) size = limiter->limit(query_, request(), size);
  if (size == 0) return drop(DropReason::kRrl);
  if (log != nullptr && !is_inner_) {
    log->onAnswered(query_, request(), {query_.message, size}, BootClock::now() - received_at_);
  }
  if (samples_ != nullptr && !is_inner_) samples_->onLateAnswer(query_, received_at_, BootClock::now());
  if (meter_ != nullptr && !is_inner_) meter_->onLateAnswer(query_, request(), size, by);
  send(size);
}

void DeferredReply::drop(DropReason reason) {
  if (const auto sink = std::exchange(sink_, nullptr)) sink->noteDropped(reason);
  query_.message = buffer_.data();
}

void DeferredReply::send(size_t size) {
  if (sink_) std::exchange(sink_, nullptr)->send({query_.message, size});
  query_.message = buffer_.data();
}

}  // namespace idetcd::resolve
