#include "etcd/client.h"
#include "etcd/client_internal.h"
#include "etcd/keep_alive_internal.h"

namespace idetcd::etcd {

// --- KeepAliveStream ---

std::shared_ptr<KeepAliveStream> KeepAliveStream::open(CompletionThread::Impl& thread,
                                                       const std::shared_ptr<Endpoints>& endpoints, size_t endpoint,
                                                       const std::string& token) {
  const std::shared_ptr<KeepAliveStream> stream(new KeepAliveStream(thread, endpoints, endpoint));
  prepareContext(stream->context(), true, token);
  pb::Lease::Stub stub(endpoints->channel(endpoint));
  stream->BidiStream::open([&stub](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
    return stub.PrepareAsyncLeaseKeepAlive(context, queue);
  });
  return stream;
}

Task<StoreResult<Lease>> KeepAliveStream::exchange(std::shared_ptr<KeepAliveStream> stream, int64_t id,
                                                   std::optional<BootClock::time_point> deadline) {
  Suspension pause(stream->thread().scheduler(), deadline);
  const auto exchange = std::make_shared<Exchange>(Exchange{id, &pause, {}, std::nullopt});
  stream->unsent_.push_back(exchange);
  pb::LeaseKeepAliveRequest request;
  request.set_id(id);
  stream->send(std::move(request));

  const auto outcome = co_await pause;
  exchange->waiter = nullptr;
  if (stream->retired_) stream->retire();  // this may have been the last answer that it was kept for
  if (exchange->result) co_return std::move(*exchange->result);
  if (outcome == Suspension::WakeReason::kStopped)
    co_return tl::unexpected<StoreError>({ErrorCode::kCancelled, "stopping", true});
  stream->retire();
  co_return tl::unexpected<StoreError>({ErrorCode::kDeadlineExceeded, "no answer to the keepalive in time", true});
}

void KeepAliveStream::onSend(const pb::LeaseKeepAliveRequest&) {
  auto exchange = std::move(unsent_.front());
  unsent_.pop_front();
  exchange->sent_at = BootClock::now();
  awaited_.push_back(std::move(exchange));
}

void KeepAliveStream::onMessage(pb::LeaseKeepAliveResponse& response) {
  const auto found = std::find_if(awaited_.begin(), awaited_.end(),
                                  [&](const auto& exchange) { return exchange->id == response.id(); });
  if (found == awaited_.end()) return;
  const auto exchange = std::move(*found);
  awaited_.erase(found);
  if (response.ttl() > 0) {
    exchange->result = Lease{response.id(), std::chrono::seconds(response.ttl()), exchange->sent_at, response.header().cluster_id()};
  } else {
    exchange->result =
        tl::unexpected<StoreError>({ErrorCode::kLeaseNotFound, "the lease has expired or was revoked", true});
  }
  if (exchange->waiter != nullptr) exchange->waiter->wake();
}

void KeepAliveStream::onEnd(const StoreError& error) {
  if (error.code == ErrorCode::kUnavailable) endpoints_->broke();
  for (auto* queue : {&unsent_, &awaited_}) {
    for (const auto& exchange : *queue) {
      exchange->result = tl::unexpected<StoreError>(error);
      if (exchange->waiter != nullptr) exchange->waiter->wake();
    }
    queue->clear();
  }
}

void KeepAliveStream::retire() {
  retired_ = true;
  const auto waits = [](const auto& exchange) { return exchange->waiter != nullptr; };
  if (std::none_of(unsent_.begin(), unsent_.end(), waits) && std::none_of(awaited_.begin(), awaited_.end(), waits))
    cancel();
}

// --- Client ---

Task<StoreResult<Lease>> Client::leaseGrant(std::chrono::seconds ttl) {
  pb::LeaseGrantRequest request;
  request.set_ttl(ttl.count());
  CallTraits traits;
  traits.repeatable = true;  // a lease granted twice holds no key and ends by itself
  const auto sent_at = BootClock::now();
  auto call = impl_->call(&pb::Lease::Stub::PrepareAsyncLeaseGrant, std::move(request), traits);
  auto response = co_await call;
  if (!response) co_return tl::unexpected<StoreError>(std::move(response.error()));
  if (!response->error().empty())
    co_return tl::unexpected<StoreError>({ErrorCode::kOther, std::move(*response->mutable_error()), true});
  co_return Lease{response->id(), std::chrono::seconds(response->ttl()), sent_at, response->header().cluster_id()};
}

Task<StoreResult<Lease>> Client::leaseKeepAlive(int64_t id, std::chrono::nanoseconds timeout) {
  Impl& impl = *impl_;
  const auto deadline = impl.public_thread.deadlineAfter(timeout);
  bool renewed = false;
  for (size_t attempt = 1;;) {
    auto token = impl.authenticator.token(false);
    StoreResult<Token> ready = co_await token;
    if (!ready) co_return tl::unexpected<StoreError>(std::move(ready.error()));
    if (impl.thread.stopping()) co_return tl::unexpected<StoreError>(cancelledBeforeSending());
    const size_t count = impl.endpoints->count();
    if (count == 0) co_return tl::unexpected<StoreError>(noEndpoint());
    const size_t current = impl.endpoints->current();
    auto identifying = impl.identify(current, ready->text, CallTraits{}, timeout);
    const StoreResult<void> ours = co_await identifying;
    if (impl.thread.stopping()) co_return tl::unexpected<StoreError>(cancelledBeforeSending());
    if (!ours) {
      if (!impl.endpoints->isStranger(current)) impl.endpoints->failed(current, ours.error());
      if (BootClock::now() >= deadline || attempt++ >= count)
        co_return tl::unexpected<StoreError>(ours.error());
      continue;  // another one is the current one now
    }
    const bool usable = impl.keep_alive && impl.keep_alive->usable();
    if (!usable || impl.keep_alive->endpoint() != impl.endpoints->current()) {
      if (usable) impl.keep_alive->retire();
      impl.keep_alive = KeepAliveStream::open(impl.thread, impl.endpoints, impl.endpoints->current(), ready->text);
    }
    const size_t index = impl.keep_alive->endpoint();
    auto exchange = KeepAliveStream::exchange(impl.keep_alive, id, deadline);
    auto result = co_await exchange;

    if (result || result.error().code == ErrorCode::kLeaseNotFound) {
      impl.endpoints->succeeded(index);
      co_return std::move(result);
    }
    if (!endpointIsAway(result.error())) {
      // The stream has ended with this, so the next round opens another.
      if (std::exchange(renewed, true) || !impl.authenticator.dismiss(*ready, result.error()))
        co_return std::move(result);
      continue;
    }
    impl.endpoints->failed(index, result.error());
    if (result.error().code == ErrorCode::kDeadlineExceeded || attempt >= count)
      co_return std::move(result);
    ++attempt;
  }
}

Task<StoreResult<std::chrono::seconds>> Client::leaseTimeToLive(int64_t id) {
  pb::LeaseTimeToLiveRequest request;
  request.set_id(id);
  CallTraits traits;
  traits.repeatable = true;
  auto call = impl_->call(&pb::Lease::Stub::PrepareAsyncLeaseTimeToLive, std::move(request), traits);
  auto response = co_await call;
  if (!response) co_return tl::unexpected<StoreError>(std::move(response.error()));
  if (response->ttl() < 0)
    co_return tl::unexpected<StoreError>({ErrorCode::kLeaseNotFound, "the lease has expired or was revoked", true});
  co_return std::chrono::seconds(response->ttl());
}

Task<StoreResult<void>> Client::leaseRevoke(int64_t id) {
  pb::LeaseRevokeRequest request;
  request.set_id(id);
  CallTraits traits;
  traits.repeatable = true;
  traits.survives_stop = true;
  auto call = impl_->call(&pb::Lease::Stub::PrepareAsyncLeaseRevoke, std::move(request), traits);
  auto response = co_await call;
  if (!response) co_return tl::unexpected<StoreError>(std::move(response.error()));
  co_return StoreResult<void>{};
}

}  // namespace idetcd::etcd
