#include "resolve/deferred_reply.h"

#include "dns/response.h"
#include "resolve/query_meter.h"
#include "resolve/query_samples.h"
#include "resolve/router.h"

namespace idetcd::resolve {

KeptRequest::KeptRequest(const Request& request)
    : source_{},
      local_(request.local != nullptr ? *request.local : SocketAddress{}),
      transport_(request.transport),
      is_inner_(request.is_inner),
      inner_depth_(request.inner_depth),
      signed_by_(request.signed_by),
      response_limit_(request.response_limit),
      received_at_(request.now) {
  if (request.router != nullptr) router_ = request.router->weak_from_this();
  if (request.source == nullptr) return;
  const size_t source_size = request.source->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&source_, request.source, source_size);
}

Request KeptRequest::request() const {
  const bool has_source = source_.ss_family != AF_UNSPEC;
  return {.source = has_source ? reinterpret_cast<const sockaddr*>(&source_) : nullptr,
          .local = &local_,
          .transport = transport_,
          .response_limit = response_limit_,
          .now = received_at_,
          .is_inner = is_inner_,
          .inner_depth = inner_depth_,
          .signed_by = signed_by_,
          .router = router_.lock().get()};  // it stays while it is busy
}

DeferredReply::DeferredReply(const dns::Query& query, const Request& request)
    : query_(query),
      kept_(request),
      is_inner_(request.is_inner),
      name_exists_(request.name_exists),
      meter_(request.meter),
      samples_(request.samples),
      response_limit_(request.response_limit),
      sink_(request.deferrer->keepClient()) {
  std::memcpy(buffer_.data(), query.message, query.question_end);
  query_.message = buffer_.data();
  query_.nsid = nullptr;  // this node may have another name by then
}

void DeferredReply::makeRoom(std::vector<uint8_t>& room, const NsidSource* nsid) {
  if (room.size() < response_limit_) room.resize(response_limit_);
  std::memcpy(room.data(), query_.message, query_.question_end);
  query_.message = room.data();
  query_.nsid = query_.asksFor(dns::kAsksNsid) && nsid != nullptr ? nsid->text() : nullptr;
}

Request DeferredReply::request() const {
  Request request = kept_.request();
  request.response_limit = response_limit_;
  request.name_exists = name_exists_;
  request.meter = meter_;
  request.samples = samples_;
  return request;
}

bool DeferredReply::pushBack() {
  if (!sink_ || !sink_->pushBack()) return false;
  sink_.reset();
  return true;
}

void DeferredReply::finish(size_t size, RateLimiter* limiter, const QueryObserver* log, DirectiveId by, uint32_t wildcard) {
  Router::correctDenial(query_, request());
  if (limiter != nullptr && !is_inner_) size = limiter->limit(query_, request(), size, wildcard);
  if (size == 0) return drop(DropReason::kRrl);
  if (log != nullptr && !is_inner_) {
    log->onAnswered(query_, request(), {query_.message, size}, BootClock::now() - receivedAt());
  }
  if (samples_ != nullptr && !is_inner_) samples_->onLateAnswer(query_, receivedAt(), BootClock::now());
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
