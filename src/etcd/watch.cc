#include "etcd/bidi_stream_internal.h"
#include "etcd/client.h"
#include "etcd/client_internal.h"

namespace idetcd::etcd {
namespace {

// Limits of what is not taken yet, and of a fragmented response: beyond them reading pauses, or it is delivered in
// parts.
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
                                         size_t endpoint, const std::vector<WatchRange>& ranges,
                                         const std::string& token);

  // Waits for the next thing to happen: a message, the end, a time-out.
  static Task<Suspension::WakeReason> waitForNews(std::shared_ptr<WatchCall> call, std::chrono::nanoseconds timeout);

  bool created() const { return created_.size() == parts_.size(); }
  size_t endpoint() const { return endpoint_; }
  int64_t createdRevision() const { return created_revision_; }
  uint64_t clusterId() const { return cluster_id_; }
  const std::optional<StoreError>& error() const { return error_; }
  std::optional<WatchBatch> take();
  void doubt(std::chrono::nanoseconds patience);
  const std::optional<std::chrono::nanoseconds>& doubted() const { return doubted_; }
  // The endpoint did not answer in time.
  StoreError giveUp();
  void reportTo(Endpoints& endpoints) const;
  using BidiStream::thread;

 private:
  WatchCall(CompletionThread::Impl& thread, std::shared_ptr<Endpoints> endpoints, size_t endpoint)
      : BidiStream<pb::WatchRequest, pb::WatchResponse>(thread),
        endpoints_(std::move(endpoints)),
        endpoint_(endpoint) {}

  bool wantsMore() const override { return inbox_.size() < kMaxInboxBatches && inbox_bytes_ < kMaxInboxBytes; }
  void onMessage(pb::WatchResponse& response) override;
  void onEnd(const StoreError& error) override;
  void onCreated(const pb::WatchResponse& response);
  void onCancelled(const pb::WatchResponse& response);
  void onEvents(pb::WatchResponse& response);
  void fail(StoreError error);
  void wakeReader() {
    if (reader_ != nullptr) reader_->wake();
  }

  struct Pending {
    WatchBatch batch;
    size_t bytes = 0;
  };
  // One of the ranges.
  struct Part {
    int64_t start_revision = 0;
    int64_t resume_revision = 0;
    int64_t newest = 0;  // that has come
    Pending partial;     // fragments so far
  };
  size_t partOf(int64_t watch_id) const;
  static bool inOrder(const pb::WatchResponse& response, Part& part);

  const std::shared_ptr<Endpoints> endpoints_;
  const size_t endpoint_;
  std::vector<Part> parts_;
  std::vector<int64_t> created_;  // etcd's IDs of the ranges: it answers in the order of the requests
  int64_t created_revision_ = 0;
  uint64_t cluster_id_ = 0;
  std::deque<Pending> inbox_;
  size_t inbox_bytes_ = 0;
  std::optional<StoreError> error_;
  Suspension* reader_ = nullptr;
  std::optional<std::chrono::nanoseconds> doubted_;  // how long the reader waits, since a sign of life was asked for
};

std::shared_ptr<WatchCall> WatchCall::open(CompletionThread::Impl& thread, std::shared_ptr<Endpoints> endpoints,
                                           size_t endpoint, const std::vector<WatchRange>& ranges,
                                           const std::string& token) {
  const std::shared_ptr<WatchCall> call(new WatchCall(thread, std::move(endpoints), endpoint));
  prepareContext(call->context(), true, token);
  pb::Watch::Stub stub(call->endpoints_->channel(endpoint));
  call->BidiStream::open([&stub](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
    return stub.PrepareAsyncWatch(context, queue);
  });
  for (const WatchRange& watched : ranges) {
    call->parts_.push_back({watched.start_revision, watched.start_revision, 0, {}});
    pb::WatchRequest request;
    auto& create = *request.mutable_create_request();
    create.set_key(watched.range.begin);
    create.set_range_end(watched.range.end);
    create.set_start_revision(watched.start_revision);
    create.set_progress_notify(true);
    create.set_fragment(true);
    call->send(std::move(request));
  }
  return call;
}

Task<Suspension::WakeReason> WatchCall::waitForNews(std::shared_ptr<WatchCall> call, std::chrono::nanoseconds timeout) {
  CompletionThread& scheduler = call->thread().scheduler();
  Suspension pause(scheduler, scheduler.deadlineAfter(timeout));
  call->reader_ = &pause;
  const auto outcome = co_await pause;
  call->reader_ = nullptr;
  co_return outcome;
}

void WatchCall::onMessage(pb::WatchResponse& response) {
  doubted_.reset();
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
  if (created()) return;  // not asked for
  const int64_t revision = response.header().revision();
  created_revision_ = created_.empty() ? revision : std::min(created_revision_, revision);
  cluster_id_ = response.header().cluster_id();
  if (cluster_id_ == 0) {
    endpoints_->foundProxy(endpoint_);
    fail(strangeEndpoint());
    return cancel();
  }
  Part& part = parts_[created_.size()];
  if (part.resume_revision == 0) part.resume_revision = revision + 1;
  created_.push_back(response.watch_id());
}

// The answer to a progress request belongs to no range, and says nothing of any.
size_t WatchCall::partOf(int64_t watch_id) const {
  const auto found = std::find(created_.begin(), created_.end(), watch_id);
  return found == created_.end() ? 0 : static_cast<size_t>(found - created_.begin());
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

bool WatchCall::inOrder(const pb::WatchResponse& response, Part& part) {
  for (const auto& event : response.events()) {
    if (event.kv().mod_revision() < part.newest) return false;
    part.newest = event.kv().mod_revision();
  }
  return true;
}

void WatchCall::onEvents(pb::WatchResponse& response) {
  const size_t index = partOf(response.watch_id());
  Part& part = parts_[index];
  if (!inOrder(response, part)) {
    fail({ErrorCode::kDisordered, "etcd has sent a change after a later one", true});
    return cancel();
  }
  // The answer to a progress request may come between two fragments, and is no end of them.
  Pending requested_progress;
  const bool is_requested = response.watch_id() == kNoWatchId;
  Pending& pending = is_requested ? requested_progress : part.partial;
  pending.bytes += response.ByteSizeLong();
  pending.batch.revision = response.header().revision();
  pending.batch.cluster_id = response.header().cluster_id();
  pending.batch.range = index;
  for (auto& event : *response.mutable_events()) {
    // A member that was behind when it created the watch may begin with what it has applied since.
    if (event.kv().mod_revision() >= part.start_revision) pending.batch.events.push_back(fromProto(event));
  }
  if (response.events_size() > 0 && pending.batch.events.empty()) return;  // all of it was too old
  // Only what is delivered moves the place to resume at: a part that is still gathering fragments is not.
  if (response.fragment() && pending.bytes < kMaxInboxBytes) return;
  if (!pending.batch.events.empty()) {
    const int64_t newest = pending.batch.events.back().kv.mod_revision;
    // The rest of the newest revision may be in the next fragment: to resume there is safe, to resume behind it is not.
    part.resume_revision = std::max(part.resume_revision, response.fragment() ? newest : newest + 1);
  } else if (!is_requested) {
    // etcd's own notification comes in order, behind all events.
    part.resume_revision = std::max(part.resume_revision, response.header().revision() + 1);
  }
  pending.batch.resume_revision = part.resume_revision;
  inbox_bytes_ += pending.bytes;
  inbox_.push_back(std::exchange(pending, {}));
}

void WatchCall::onEnd(const StoreError& error) {
  fail(error);
  wakeReader();
}

void WatchCall::fail(StoreError error) {
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

void WatchCall::doubt(std::chrono::nanoseconds patience) {
  if (doubted_ || error_) return;
  doubted_ = patience;
  pb::WatchRequest request;
  request.mutable_progress_request();
  send(std::move(request));
  wakeReader();
}

StoreError WatchCall::giveUp() {
  fail({ErrorCode::kDeadlineExceeded, "the watch is silent", true});
  cancel();
  return *error_;
}

void WatchCall::reportTo(Endpoints& endpoints) const {
  if (error_ && endpointIsAway(*error_) && !endpoints.isStranger(endpoint_)) endpoints.failed(endpoint_, *error_);
}

// --- WatchStream ---

class ClientWatchStream final : public WatchStream {
 public:
  ClientWatchStream(std::shared_ptr<WatchCall> call, std::shared_ptr<Endpoints> endpoints)
      : call_(std::move(call)), endpoints_(std::move(endpoints)) {}
  ~ClientWatchStream() override {
    CompletionThread::Impl& thread = call_->thread();
    // After stop() began the post is refused, and stop() itself cancels the call.
    if (thread.onThread()) {
      call_->cancel();
    } else {
      thread.post([call = std::move(call_)] { call->cancel(); });
    }
  }

  Task<StoreResult<WatchBatch>> next(std::chrono::nanoseconds timeout) override;
  int64_t createdRevision() const override { return call_->createdRevision(); }
  uint64_t clusterId() const override { return call_->clusterId(); }
  bool isAtCurrentEndpoint() const override { return call_->endpoint() == endpoints_->current(); }
  void doubt(std::chrono::nanoseconds patience) override { call_->doubt(patience); }
  void leave(const std::string& why) override {
    endpoints_->failed(call_->endpoint(), {ErrorCode::kUnavailable, why, true});
  }

 private:
  std::shared_ptr<WatchCall> call_;
  const std::shared_ptr<Endpoints> endpoints_;
};

Task<StoreResult<WatchBatch>> ClientWatchStream::next(std::chrono::nanoseconds timeout) {
  const std::shared_ptr<WatchCall> call = call_;
  while (true) {
    if (auto batch = call->take()) co_return std::move(*batch);
    if (call->error()) {
      call->reportTo(*endpoints_);
      co_return tl::unexpected<StoreError>(*call->error());
    }
    auto wait = WatchCall::waitForNews(call, call->doubted().value_or(timeout / 2));
    const auto outcome = co_await wait;
    if (outcome == Suspension::WakeReason::kStopped)
      co_return tl::unexpected<StoreError>({ErrorCode::kCancelled, "stopping", true});
    if (outcome == Suspension::WakeReason::kWoken) continue;
    if (call->doubted()) call->giveUp();
    call->doubt(timeout / 2);
  }
}

}  // namespace

// --- Client ---

Task<StoreResult<std::unique_ptr<WatchStream>>> Client::watch(std::vector<WatchRange> ranges) {
  assert(!ranges.empty());
  const std::shared_ptr<Endpoints> endpoints = impl_->endpoints;
  const size_t count = endpoints->count();
  if (count == 0) co_return tl::unexpected<StoreError>(noEndpoint());
  size_t index = endpoints->current();
  bool renewed = false;
  for (size_t attempt = 0;;) {
    auto token = impl_->authenticator.token(false);
    StoreResult<Token> ready = co_await token;
    if (!ready) co_return tl::unexpected<StoreError>(std::move(ready.error()));
    if (impl_->thread.stopping()) co_return tl::unexpected<StoreError>(cancelledBeforeSending());
    auto identifying = impl_->identify(index, ready->text, CallTraits{}, impl_->options.call_timeout);
    const StoreResult<void> ours = co_await identifying;
    if (impl_->thread.stopping()) co_return tl::unexpected<StoreError>(cancelledBeforeSending());
    if (!ours) {
      if (!endpoints->isStranger(index)) endpoints->failed(index, ours.error());
      if (++attempt >= count) co_return tl::unexpected<StoreError>(ours.error());
      index = endpoints->after(index);
      continue;
    }
    const auto call = WatchCall::open(impl_->thread, endpoints, index, ranges, ready->text);
    auto outcome = Suspension::WakeReason::kWoken;
    while (outcome == Suspension::WakeReason::kWoken && !call->created() && !call->error()) {
      auto wait = WatchCall::waitForNews(call, impl_->options.call_timeout);
      outcome = co_await wait;
    }
    if (call->created()) {
      endpoints->succeeded(index);
      co_return std::make_unique<ClientWatchStream>(call, endpoints);
    }
    if (outcome == Suspension::WakeReason::kStopped)
      co_return tl::unexpected<StoreError>({ErrorCode::kCancelled, "stopping", true});
    if (!call->error()) call->giveUp();
    call->reportTo(*endpoints);
    const StoreError error = *call->error();
    if (!endpointIsAway(error)) {
      if (std::exchange(renewed, true) || !impl_->authenticator.dismiss(*ready, error))
        co_return tl::unexpected<StoreError>(error);
      continue;
    }
    if (++attempt >= count) co_return tl::unexpected<StoreError>(error);
    index = endpoints->after(index);
  }
}

}  // namespace idetcd::etcd
