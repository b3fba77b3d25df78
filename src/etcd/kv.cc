#include "etcd/client.h"
#include "etcd/client_internal.h"

namespace idetcd::etcd {
namespace {

constexpr std::chrono::seconds kTimeoutOfOthers{2};  // of an endpoint that is not the current one

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

// --- to protobuf ---

void fill(pb::RangeRequest& request, KeyRange range, const RangeOptions& options) {
  request.set_key(std::move(range.begin));
  request.set_range_end(std::move(range.end));
  request.set_revision(options.revision);
  request.set_limit(options.limit);
  request.set_min_mod_revision(options.min_mod_revision);
  request.set_keys_only(options.keys_only);
  request.set_count_only(options.count_only);
  request.set_serializable(options.serializable);
  if (options.sort_by_create_revision) {
    request.set_sort_order(pb::RangeRequest::ASCEND);
    request.set_sort_target(pb::RangeRequest::CREATE);
  }
}

void fill(pb::PutRequest& request, PutOp op) {
  request.set_key(std::move(op.key));
  request.set_value(std::move(op.value));
  request.set_lease(op.lease);
}

void fill(pb::DeleteRangeRequest& request, DeleteOp op) {
  request.set_key(std::move(op.range.begin));
  request.set_range_end(std::move(op.range.end));
}

pb::Compare toProto(Compare compare) {
  pb::Compare result;
  result.set_key(std::move(compare.key));
  result.set_result(compare.differs ? pb::Compare::NOT_EQUAL : pb::Compare::EQUAL);
  switch (compare.target) {
    case Compare::Target::kCreateRevision:
      result.set_target(pb::Compare::CREATE);
      result.set_create_revision(compare.number);
      break;
    case Compare::Target::kModRevision:
      result.set_target(pb::Compare::MOD);
      result.set_mod_revision(compare.number);
      break;
    case Compare::Target::kLease:
      result.set_target(pb::Compare::LEASE);
      result.set_lease(compare.number);
      break;
    case Compare::Target::kValue:
      result.set_target(pb::Compare::VALUE);
      result.set_value(std::move(compare.value));
      break;
  }
  return result;
}

pb::RequestOp toProto(Op op) {
  pb::RequestOp result;
  std::visit(Overloaded{
                 [&](PutOp& put) { fill(*result.mutable_request_put(), std::move(put)); },
                 [&](DeleteOp& del) { fill(*result.mutable_request_delete_range(), std::move(del)); },
                 [&](RangeOp& range) { fill(*result.mutable_request_range(), std::move(range.range), range.options); },
             },
             op);
  return result;
}

// --- from protobuf ---

KeyValue fromProto(mvccpb::KeyValue& kv) {
  KeyValue result;
  result.key = std::move(*kv.mutable_key());
  result.value = std::move(*kv.mutable_value());
  result.create_revision = kv.create_revision();
  result.mod_revision = kv.mod_revision();
  result.version = kv.version();
  result.lease = kv.lease();
  return result;
}

RangeResult fromProto(pb::RangeResponse& response) {
  RangeResult result;
  result.revision = response.header().revision();
  result.cluster_id = response.header().cluster_id();
  result.more = response.more();
  result.count = response.count();
  result.kvs.reserve(static_cast<size_t>(response.kvs_size()));
  for (auto& kv : *response.mutable_kvs()) result.kvs.push_back(fromProto(kv));
  return result;
}

StoreResult<TxnResult> fromProto(pb::TxnResponse& response, size_t expected_results) {
  TxnResult result;
  result.succeeded = response.succeeded();
  result.revision = response.header().revision();
  result.cluster_id = response.header().cluster_id();
  for (auto& op : *response.mutable_responses()) {
    switch (op.response_case()) {
      case pb::ResponseOp::kResponsePut:
        result.results.emplace_back(PutResult{});
        break;
      case pb::ResponseOp::kResponseDeleteRange:
        result.results.emplace_back(DeleteResult{op.response_delete_range().deleted()});
        break;
      case pb::ResponseOp::kResponseRange:
        result.results.emplace_back(fromProto(*op.mutable_response_range()));
        // The ranges of a Txn see its outcome; etcd leaves these to the answer's own header.
        std::get<RangeResult>(result.results.back()).revision = result.revision;
        std::get<RangeResult>(result.results.back()).cluster_id = result.cluster_id;
        break;
      default:
        break;
    }
  }
  if (result.results.size() != expected_results)
    return tl::unexpected<StoreError>({ErrorCode::kOther, "the answer to a Txn does not fit its operations", true});
  return result;
}

}  // namespace

Task<StoreResult<RangeResult>> Client::range(KeyRange range, RangeOptions options) {
  pb::RangeRequest request;
  fill(request, std::move(range), options);
  CallTraits traits;
  traits.repeatable = true;
  traits.needs_leader = !options.serializable;
  auto call = impl_->call(&pb::KV::Stub::PrepareAsyncRange, std::move(request), traits);
  auto response = co_await call;
  if (!response) co_return tl::unexpected<StoreError>(std::move(response.error()));
  if (const uint64_t id = response->header().cluster_id(); options.cluster_id != 0 && id != options.cluster_id) {
    co_return tl::unexpected<StoreError>(
        {ErrorCode::kOtherCluster, fmt::format("the cluster is {:x}, not {:x}", id, options.cluster_id), true});
  }
  co_return fromProto(*response);
}

uint64_t Client::breaks() const { return impl_->endpoints->breaks(); }

Task<void> Client::identifyEndpoints() {
  if (impl_->options.self_founded) co_return;
  const std::shared_ptr<Endpoints> endpoints = impl_->endpoints;
  std::vector<size_t> unknown;  // they were away when all were asked, or came later
  endpoints->visit([&](size_t i) {
    if (!endpoints->isKnown(i) && !endpoints->isIdentified(i)) unknown.push_back(i);
  });
  for (const size_t i : unknown) {
    if (impl_->thread.stopping()) break;
    auto token = impl_->authenticator.token(false);
    const StoreResult<Token> ready = co_await token;
    if (!ready || impl_->thread.stopping()) co_return;
    auto asking = Impl::askCluster(impl_->thread, endpoints, i, ready->text, false, kTimeoutOfOthers);
    co_await asking;
    endpoints->disconnect(i);
  }
}

Task<bool> Client::returnHome() {
  constexpr int kAnswersWanted = 2;  // a member that starts may fall again at once
  const std::shared_ptr<Endpoints> endpoints = impl_->endpoints;
  if (endpoints->count() == 0) co_return false;
  const size_t home = endpoints->home();
  if (endpoints->current() == home || impl_->thread.stopping()) {
    impl_->home_answers = 0;
    co_return false;
  }
  auto token = impl_->authenticator.token(false);
  const StoreResult<Token> ready = co_await token;
  if (!ready || impl_->thread.stopping()) co_return false;
  // Linearizable: a member that is cut off from the others, or applies nothing, does not answer.
  pb::RangeRequest request;
  fill(request, KeyRange::single("0"), {.keys_only = true});
  auto call = impl_->callAt(home, &pb::KV::Stub::PrepareAsyncRange, request, CallTraits{}, ready->text, kTimeoutOfOthers);
  const StoreResult<pb::RangeResponse> answer = co_await call;
  // A refusal (no permission for this key) is an answer too: it comes after the read's turn.
  if (answer) endpoints->identified(home, answer->header().cluster_id());
  const bool answers = !endpoints->isStranger(home) && endpoints->home() == home &&
                       (answer || answer.error().code == ErrorCode::kPermissionDenied);
  impl_->home_answers = answers ? impl_->home_answers + 1 : 0;
  if (!answers || impl_->home_answers < kAnswersWanted || endpoints->current() == home) co_return false;
  impl_->home_answers = 0;
  endpoints->succeeded(home);
  endpoints->settleHome();
  co_return true;
}

Task<StoreResult<TxnResult>> Client::txn(TxnRequest request) {
  const size_t on_success = request.success.size();
  const size_t on_failure = request.failure.size();
  pb::TxnRequest message;
  for (Compare& compare : request.compares) *message.add_compare() = toProto(std::move(compare));
  for (Op& op : request.success) *message.add_success() = toProto(std::move(op));
  for (Op& op : request.failure) *message.add_failure() = toProto(std::move(op));
  CallTraits traits;
  traits.repeatable = request.repeatable;
  traits.timeout = request.timeout;
  auto call = impl_->call(&pb::KV::Stub::PrepareAsyncTxn, std::move(message), traits);
  auto response = co_await call;
  if (!response) co_return tl::unexpected<StoreError>(std::move(response.error()));
  co_return fromProto(*response, response->succeeded() ? on_success : on_failure);
}

}  // namespace idetcd::etcd
