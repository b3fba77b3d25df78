#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "etcd/bidi_stream_internal.h"
#include "etcd/client.h"
#include "etcd/client_internal.h"

namespace idetcd::etcd {
namespace {

// What is not taken yet, and what a fragmented response may gather: then reading pauses, or it is delivered in parts.
constexpr size_t kMaxInboxBatches = 64;
constexpr size_t kMaxInboxBytes = size_t{16} << 20;
// etcd answers a progress request to the stream, not to a watch: clientv3.InvalidWatchID.
constexpr int64_t kNoWatchId = -1;

WatchEvent fromProto(mvccpb::Event& event) {
  mvccpb::KeyValue& kv = *event.mutable_kv();
  WatchEvent result;
  result.type = event.type() == mvccpb::Event::DELETE ? WatchEvent::Type::kDelete : WatchEvent::Type::kPut;
  result.kv.key = std::move(*kv.mutable_key());
  result.kv.value = std::move(*kv.mutable_value());
  result.kv.create_revision = kv.create_revision();
  result.kv.mod_revision = kv.mod_revision();
  result.kv.version = kv.version();
  result.kv.lease = kv.lease();
  return result;
}

class WatchCall final : public BidiStream<pb::WatchRequest, pb::WatchResponse> {
 public:
  static std::shared_ptr<WatchCall> open(CompletionThread::Impl& thread, std::shared_ptr<Endpoints> endpoints,
                                         size_t endpoint, const KeyRange& range, int64_t start_revision,
                                         const std::string& token);

  // Waits for the next thing to happen: a message, the end, a time-out.
  static Task<Suspension::Outcome> waitForNews(std::shared_ptr<WatchCall> call, std::chrono::nanoseconds timeout);

  bool created() const { return created_; }
  int64_t createdRevision() const { return created_revision_; }
  uint64_t clusterId() const { return cluster_id_; }
  const std::optional<EtcdError>& error() const { return error_; }
  std::optional<WatchBatch> take();
  void requestProgress();
  // The endpoint did not answer in time.
  EtcdError giveUp();
  void reportTo(Endpoints& endpoints) const;
  using BidiStream::thread;

 private:
  WatchCall(CompletionThread::Impl& thread, std::shared_ptr<Endpoints> endpoints, size_t endpoint)
      : BidiStream<pb::WatchRequest, pb::WatchResponse>(thread),
        endpoints_(std::move(endpoints)),
        endpoint_(endpoint) {}

  bool wantsMore() const override { return inbox_.size() < kMaxInboxBatches && inbox_bytes_ < kMaxInboxBytes; }
  void onMessage(pb::WatchResponse& response) override;
  void onEnd(const EtcdError& error) override;
  void onCreated(const pb::WatchResponse& response);
  void onCancelled(const pb::WatchResponse& response);
  void onEvents(pb::WatchResponse& response);
  void fail(EtcdError error);
  void wakeReader() {
    if (reader_ != nullptr) reader_->wake();
  }

  struct Pending {
    WatchBatch batch;
    size_t bytes = 0;
  };

  const std::shared_ptr<Endpoints> endpoints_;
  const size_t endpoint_;
  bool created_ = false;
  int64_t created_revision_ = 0;
  uint64_t cluster_id_ = 0;
  int64_t resume_revision_ = 0;
  std::deque<Pending> inbox_;
  size_t inbox_bytes_ = 0;
  Pending partial_;  // fragments so far
  std::optional<EtcdError> error_;
  Suspension* reader_ = nullptr;
};

std::shared_ptr<WatchCall> WatchCall::open(CompletionThread::Impl& thread, std::shared_ptr<Endpoints> endpoints,
                                           size_t endpoint, const KeyRange& range, int64_t start_revision,
                                           const std::string& token) {
  const std::shared_ptr<WatchCall> call(new WatchCall(thread, std::move(endpoints), endpoint));
  call->resume_revision_ = start_revision;
  prepareContext(call->context(), true, token);
  pb::Watch::Stub stub(call->endpoints_->channel(endpoint));
  call->BidiStream::open([&stub](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
    return stub.PrepareAsyncWatch(context, queue);
  });
  pb::WatchRequest request;
  auto& create = *request.mutable_create_request();
  create.set_key(range.begin);
  create.set_range_end(range.end);
  create.set_start_revision(start_revision);
  create.set_progress_notify(true);
  create.set_fragment(true);
  call->send(std::move(request));
  return call;
}

Task<Suspension::Outcome> WatchCall::waitForNews(std::shared_ptr<WatchCall> call, std::chrono::nanoseconds timeout) {
  Suspension pause(call->thread(), deadlineAfter(timeout));
  call->reader_ = &pause;
  const auto outcome = co_await pause;
  call->reader_ = nullptr;
  co_return outcome;
}

void WatchCall::onMessage(pb::WatchResponse& response) {
  if (response.canceled()) {
    onCancelled(response);
  } else if (response.created()) {
    onCreated(response);
  } else {
    onEvents(response);
  }
  wakeReader();  // even if nothing is complete yet: the endpoint lives
}

void WatchCall::onCreated(const pb::WatchResponse& response) {
  created_ = true;
  created_revision_ = response.header().revision();
  cluster_id_ = response.header().cluster_id();
  if (resume_revision_ == 0) resume_revision_ = created_revision_ + 1;
}

// A watch that is refused is "created" and cancelled in one message.
void WatchCall::onCancelled(const pb::WatchResponse& response) {
  if (response.compact_revision() > 0) {
    fail({ErrorCode::kCompacted, "the store is compacted up to revision " + std::to_string(response.compact_revision()),
          true});
  } else if (response.cancel_reason().empty()) {
    fail({ErrorCode::kUnavailable, "etcd cancelled the watch", true});
  } else {
    fail(toError(response.cancel_reason()));
  }
  cancel();
}

void WatchCall::onEvents(pb::WatchResponse& response) {
  partial_.bytes += response.ByteSizeLong();
  partial_.batch.revision = response.header().revision();
  partial_.batch.cluster_id = response.header().cluster_id();
  int64_t newest = 0;
  for (auto& event : *response.mutable_events()) {
    partial_.batch.events.push_back(fromProto(event));
    newest = std::max(newest, partial_.batch.events.back().kv.mod_revision);
  }
  if (response.fragment()) {
    // The rest of the newest revision may be in the next fragment: to resume there is safe, to resume behind it is not.
    resume_revision_ = std::max(resume_revision_, newest);
    if (partial_.bytes < kMaxInboxBytes) return;
  } else if (!partial_.batch.events.empty()) {
    for (const WatchEvent& event : partial_.batch.events) newest = std::max(newest, event.kv.mod_revision);
    resume_revision_ = std::max(resume_revision_, newest + 1);
  } else if (response.watch_id() != kNoWatchId) {
    // etcd's own notification comes in order, behind all events.
    resume_revision_ = std::max(resume_revision_, response.header().revision() + 1);
  }
  partial_.batch.resume_revision = resume_revision_;
  inbox_bytes_ += partial_.bytes;
  inbox_.push_back(std::exchange(partial_, {}));
}

void WatchCall::onEnd(const EtcdError& error) {
  fail(error);
  wakeReader();
}

void WatchCall::fail(EtcdError error) {
  if (!error_) error_ = std::move(error);
}

std::optional<WatchBatch> WatchCall::take() {
  if (inbox_.empty()) return std::nullopt;
  Pending next = std::move(inbox_.front());
  inbox_.pop_front();
  inbox_bytes_ -= next.bytes;
  resumeReading();
  return std::move(next.batch);
}

void WatchCall::requestProgress() {
  pb::WatchRequest request;
  request.mutable_progress_request();
  send(std::move(request));
}

EtcdError WatchCall::giveUp() {
  fail({ErrorCode::kDeadlineExceeded, "the watch is silent", true});
  cancel();
  return *error_;
}

void WatchCall::reportTo(Endpoints& endpoints) const {
  if (error_ && endpointIsAway(*error_)) endpoints.failed(endpoint_, *error_);
}

}  // namespace

// --- WatchStream ---

struct WatchStream::Impl {
  std::shared_ptr<WatchCall> call;
  std::shared_ptr<Endpoints> endpoints;

  ~Impl() {
    CompletionThread::Impl& thread = call->thread();
    // After stop() began the post is refused, and stop() itself cancels the call.
    if (thread.onCompletionThread()) {
      call->cancel();
    } else {
      thread.post([stream = std::move(call)] { stream->cancel(); });
    }
  }
  Impl(std::shared_ptr<WatchCall> watch_call, std::shared_ptr<Endpoints> client_endpoints)
      : call(std::move(watch_call)), endpoints(std::move(client_endpoints)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
};

WatchStream::WatchStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WatchStream::WatchStream(WatchStream&&) noexcept = default;
WatchStream& WatchStream::operator=(WatchStream&&) noexcept = default;
WatchStream::~WatchStream() = default;

int64_t WatchStream::createdRevision() const { return impl_->call->createdRevision(); }
uint64_t WatchStream::clusterId() const { return impl_->call->clusterId(); }

Task<EtcdResult<WatchBatch>> WatchStream::next(std::chrono::nanoseconds timeout) {
  const std::shared_ptr<WatchCall> call = impl_->call;
  bool asked = false;
  while (true) {
    if (auto batch = call->take()) co_return std::move(*batch);
    if (call->error()) {
      call->reportTo(*impl_->endpoints);
      co_return tl::unexpected<EtcdError>(*call->error());
    }
    auto wait = WatchCall::waitForNews(call, timeout / 2);
    const auto outcome = co_await wait;
    if (outcome == Suspension::Outcome::kStopped)
      co_return tl::unexpected<EtcdError>({ErrorCode::kCancelled, "stopping", true});
    if (outcome == Suspension::Outcome::kWoken) {
      asked = false;
    } else if (!std::exchange(asked, true)) {
      call->requestProgress();
    } else {
      call->giveUp();
    }
  }
}

// --- Client ---

Task<EtcdResult<WatchStream>> Client::watch(KeyRange range, int64_t start_revision) {
  const std::shared_ptr<Endpoints> endpoints = impl_->endpoints;
  const size_t first = endpoints->current();
  bool renewed = false;
  for (size_t attempt = 0;;) {
    auto token = impl_->authenticator.token(false);
    EtcdResult<Token> ready = co_await token;
    if (!ready) co_return tl::unexpected<EtcdError>(std::move(ready.error()));
    if (impl_->thread.stopping()) co_return tl::unexpected<EtcdError>(cancelledBeforeSending());
    const size_t index = (first + attempt) % endpoints->size();
    const auto call = WatchCall::open(impl_->thread, endpoints, index, range, start_revision, ready->text);
    auto wait = WatchCall::waitForNews(call, impl_->options.call_timeout);
    const auto outcome = co_await wait;
    if (call->created()) {
      endpoints->succeeded(index);
      co_return WatchStream(std::make_unique<WatchStream::Impl>(call, endpoints));
    }
    if (outcome == Suspension::Outcome::kStopped)
      co_return tl::unexpected<EtcdError>({ErrorCode::kCancelled, "stopping", true});
    if (!call->error()) call->giveUp();
    call->reportTo(*endpoints);
    const EtcdError error = *call->error();
    if (!endpointIsAway(error)) {
      if (std::exchange(renewed, true) || !impl_->authenticator.dismiss(*ready, error))
        co_return tl::unexpected<EtcdError>(error);
      continue;
    }
    if (++attempt == endpoints->size()) co_return tl::unexpected<EtcdError>(error);
  }
}

}  // namespace idetcd::etcd
