#include "etcd/server.h"

#include <openssl/crypto.h>
#include <thread>

#include <etcdserverpb/rpc.grpc.pb.h>
#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "base/executor.h"
#include "base/random.h"
#include "etcd/acceptor_internal.h"
#include "etcd/completion_thread_internal.h"
#include "etcd/self_signed_internal.h"

namespace idetcd::etcd {
namespace {

namespace pb = etcdserverpb;
using runtime::Task;
using store::StoreError;
using store::StoreResult;
using namespace std::chrono_literals;

constexpr std::string_view kRangeMethod = "/etcdserverpb.KV/Range";
constexpr std::string_view kWatchMethod = "/etcdserverpb.Watch/Watch";
constexpr std::string_view kMemberListMethod = "/etcdserverpb.Cluster/MemberList";
constexpr int kMaxRequestBytes = 64 << 10;
constexpr int64_t kNoRange = -1;  // the watch of an answer to a progress request

// Something that gRPC does for a call, as something to co_await: whether it was done.
template <typename Start>
class Step final : public CompletionTag {
 public:
  Step(runtime::Scheduler& scheduler, Start start) : scheduler_(scheduler), start_(std::move(start)) {}
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    start_(static_cast<CompletionTag*>(this));
  }
  bool await_resume() const { return done_; }
  void onEvent(bool done) override {
    done_ = done;
    scheduler_.resumeSoon(waiter_);
  }

 private:
  runtime::Scheduler& scheduler_;
  Start start_;
  std::coroutine_handle<> waiter_;
  bool done_ = false;
};

grpc::Status statusOf(const StoreError& error) {
  if (error.code == ErrorCode::kCompacted)
    return {grpc::StatusCode::OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"};
  return {grpc::StatusCode::UNAVAILABLE, error.message};
}

void fill(pb::ResponseHeader& header, uint64_t cluster_id, int64_t revision) {
  header.set_cluster_id(cluster_id);
  header.set_revision(revision);
}

void fill(mvccpb::KeyValue& to, store::KeyValue&& kv) {
  to.set_key(std::move(kv.key));
  to.set_value(std::move(kv.value));
  to.set_create_revision(kv.create_revision);
  to.set_mod_revision(kv.mod_revision);
  to.set_version(kv.version);
  to.set_lease(kv.lease);
}

int milliseconds(std::chrono::milliseconds duration) { return static_cast<int>(duration.count()); }

template <typename Message>
grpc::ByteBuffer toBytes(const Message& message) {
  grpc::ByteBuffer buffer;
  bool own = false;
  grpc::SerializationTraits<Message>::Serialize(message, &buffer, &own);
  return buffer;
}

template <typename Message>
bool fromBytes(grpc::ByteBuffer& buffer, Message* message) {
  return grpc::SerializationTraits<Message>::Deserialize(&buffer, message).ok();
}

}  // namespace

// --- one call ---

struct Server::Impl final : public Operation, public CompletionTag, public std::enable_shared_from_this<Server::Impl> {
  class Call;

  struct Counters : metrics::Group {
    using Group::Group;
    metrics::Counter refused{*this, "idetcd_relay_refused_total",
                             "Calls of a relay that had not its token, or were too many."};
    metrics::Counter closed{*this, "idetcd_relay_closed_connections_total",
                            "Connections to a relay that were closed at once, as there were too many."};
  };

  Impl(CompletionThread& completion_thread, std::shared_ptr<store::Source> given_source, Options given_options,
       Logger logger)
      : scheduler(completion_thread),
        thread(completion_thread.impl()),
        source(std::move(given_source)),
        options(std::move(given_options)),
        counters(options.metrics),
        log(std::move(logger)),
        acceptor(options.max_connections, counters.closed) {}

  Result<void> start();
  Result<void> listen();
  void abandon();
  void close();
  void cancel() override { close(); }
  void onEvent(bool) override;
  void request();
  void pump();
  void accept(const std::shared_ptr<Call>& call);
  bool isTrusted(const grpc::GenericServerContext& context) const;
  static Task<void> handle(std::shared_ptr<Impl> self, std::shared_ptr<Call> call);
  Task<grpc::Status> answer(std::shared_ptr<Call> call);
  Task<grpc::Status> range(std::shared_ptr<Call> call);
  Task<grpc::Status> memberList(std::shared_ptr<Call> call);
  Task<grpc::Status> watch(std::shared_ptr<Call> call);
  static Task<void> sendBatches(std::shared_ptr<Impl> self, std::shared_ptr<Call> call, int64_t id,
                                std::shared_ptr<store::WatchStream> stream, int64_t start);

  CompletionThread& scheduler;
  CompletionThread::Impl& thread;
  const std::shared_ptr<store::Source> source;
  const Options options;
  Counters counters;
  const Logger log;
  std::vector<std::string> endpoints;
  SelfSigned identity = makeSelfSigned();
  std::string token;

  grpc::AsyncGenericService service;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  std::unique_ptr<grpc::Server> server;
  Acceptor acceptor;
  std::thread pumping;
  std::shared_ptr<Call> requested;  // pump's alone
  grpc::Alarm closing;              // wakes the pump
  grpc::Alarm closed;               // the pump has ended
  bool is_closing = false;
  size_t calls = 0;
  size_t watches = 0;
  bool refusal_logged = false;
  std::shared_ptr<Impl> self;  // until it is closed
};

class Server::Impl::Call final : public Operation {
 public:
  explicit Call(CompletionThread& scheduler) : scheduler_(scheduler) {}

  void cancel() override { context.TryCancel(); }

  template <typename Message>
  Task<bool> read(Message* message) {
    grpc::ByteBuffer buffer;
    Step step(scheduler_, [&](void* tag) { stream.Read(&buffer, tag); });
    const bool came = co_await step;
    co_return came&& fromBytes(buffer, message);
  }
  // One after the other. False: the call has ended.
  template <typename Message>
  Task<bool> write(const Message& message) {
    const grpc::ByteBuffer buffer = toBytes(message);
    co_await Turn{*this};
    bool done = false;
    if (!is_over) {
      Step step(scheduler_, [&](void* tag) { stream.Write(buffer, tag); });
      done = co_await step;
    }
    endTurn();
    co_return done;
  }
  Task<void> finish(grpc::Status status) {
    Step step(scheduler_, [&](void* tag) { stream.Finish(status, tag); });
    co_await step;
  }
  void senderEnded() {
    if (--senders == 0 && waits_for_senders_) scheduler_.resumeSoon(std::exchange(waits_for_senders_, nullptr));
  }
  // These waits end by what they wait for, also while the thread stops, which ends that.
  struct SendersEnd {
    Call& call;
    bool await_ready() const { return call.senders == 0; }
    void await_suspend(std::coroutine_handle<> waiter) const { call.waits_for_senders_ = waiter; }
    void await_resume() const {}
  };

  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter stream{&context};
  std::vector<std::weak_ptr<store::WatchStream>> watches;
  size_t senders = 0;
  bool is_over = false;  // nothing is sent any more
  std::optional<grpc::Status> failure;

 private:
  struct Turn {
    Call& call;
    bool await_ready() const { return !std::exchange(call.is_writing_, true); }
    void await_suspend(std::coroutine_handle<> waiter) const { call.writers_.push_back(waiter); }
    void await_resume() const {}
  };
  void endTurn() {
    is_writing_ = !writers_.empty();
    if (!is_writing_) return;
    scheduler_.resumeSoon(writers_.front());
    writers_.pop_front();
  }

  CompletionThread& scheduler_;
  bool is_writing_ = false;
  std::deque<std::coroutine_handle<>> writers_;
  std::coroutine_handle<> waits_for_senders_;
};

// --- start and end ---

Result<void> Server::Impl::start() {
  KernelRandom random;
  token = fmt::format("{:016x}{:016x}", random.next(), random.next());
  if (auto listens = listen(); !listens) return listens;
  grpc::ServerBuilder builder;
  grpc::SslServerCredentialsOptions tls(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  tls.pem_key_cert_pairs.push_back({identity.key, identity.certificate});
  auto taker = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::SslServerCredentials(tls));
  builder.RegisterAsyncGenericService(&service);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 8);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, milliseconds(options.handshake));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, milliseconds(options.idle));
  // What a client of etcd may do, and how one that is gone is noticed.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 4'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  queue = builder.AddCompletionQueue();
  server = builder.BuildAndStart();
  Result<std::thread> pump_thread = fail("gRPC makes no server");
  if (server) pump_thread = startThread([this] { pump(); });
  if (!pump_thread) {
    abandon();
    return tl::unexpected(pump_thread.error());
  }
  pumping = std::move(*pump_thread);
  self = shared_from_this();
  thread.add(this);
  if (auto accepts = acceptor.start(std::move(taker)); !accepts) {
    close();
    return accepts;
  }
  return {};
}

Result<void> Server::Impl::listen() {
  for (const IpAddress& address : options.addresses) {
    const auto listens = acceptor.listen(address);
    if (!listens) return tl::unexpected(listens.error());
    endpoints.push_back("https://" + listens->toString());
  }
  return {};
}

// Of a queue that nothing has been asked of.
void Server::Impl::abandon() {
  if (server) server->Shutdown();
  queue->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
  }
}

// The pump ends the server, which waits until all calls have ended, on this thread.
void Server::Impl::close() {
  if (std::exchange(is_closing, true)) return;
  acceptor.stop();
  closing.Set(queue.get(), gpr_time_0(GPR_CLOCK_MONOTONIC), &closing);
}

void Server::Impl::onEvent(bool) {
  pumping.join();
  thread.remove(this);
  const auto keep = std::move(self);
}

// --- the pump's thread: of each call it learns that it has come, and no more ---

void Server::Impl::request() {
  requested = std::make_shared<Call>(scheduler);
  service.RequestCall(&requested->context, &requested->stream, &thread.queue(), queue.get(), requested.get());
}

void Server::Impl::pump() {
  request();
  bool ends = false;
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
    if (tag == &closing) {
      ends = true;
      server->Shutdown(gpr_time_0(GPR_CLOCK_MONOTONIC));
      queue->Shutdown();
      continue;
    }
    const std::shared_ptr<Call> call = std::move(requested);
    if (!ok) continue;
    if (!ends) request();
    scheduler.post([this, call] { accept(call); });
  }
  closed.Set(&thread.queue(), gpr_time_0(GPR_CLOCK_MONOTONIC), static_cast<CompletionTag*>(this));
}

// --- calls ---

void Server::Impl::accept(const std::shared_ptr<Call>& call) { scheduler.spawn(handle(shared_from_this(), call)); }

bool Server::Impl::isTrusted(const grpc::GenericServerContext& context) const {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("token");
  return found != metadata.end() && found->second.size() == token.size() &&
         CRYPTO_memcmp(found->second.data(), token.data(), token.size()) == 0;
}

Task<void> Server::Impl::handle(std::shared_ptr<Impl> self, std::shared_ptr<Call> call) {
  self->thread.add(call.get());
  ++self->calls;
  auto answering = self->answer(call);
  const grpc::Status status = co_await answering;
  auto finishing = call->finish(status);
  co_await finishing;
  --self->calls;
  self->thread.remove(call.get());
}

Task<grpc::Status> Server::Impl::answer(std::shared_ptr<Call> call) {
  const bool is_trusted = isTrusted(call->context);
  if (!is_trusted || calls > options.max_calls) {
    counters.refused.add();
    if (!is_trusted && !std::exchange(refusal_logged, true))
      log.warning("a call of {} has not this relay's token: it is refused", call->context.peer());
    co_return is_trusted ? grpc::Status{grpc::StatusCode::UNAVAILABLE, "the relay serves as many as it may"}
                         : grpc::Status{grpc::StatusCode::UNAUTHENTICATED, "the token is not this relay's"};
  }
  const std::string& method = call->context.method();
  if (method == kWatchMethod) co_return co_await watch(call);
  if (method == kRangeMethod) co_return co_await range(call);
  if (method == kMemberListMethod) co_return co_await memberList(call);
  co_return grpc::Status{grpc::StatusCode::UNIMPLEMENTED, "a relay serves ranges and watches"};
}

Task<grpc::Status> Server::Impl::range(std::shared_ptr<Call> call) {
  pb::RangeRequest request;
  const bool came = co_await call->read(&request);
  if (!came) co_return grpc::Status{grpc::StatusCode::INVALID_ARGUMENT, "no request"};
  const store::RangeOptions wanted{.revision = request.revision(), .limit = request.limit()};
  store::KeyRange asked{request.key(), request.range_end()};
  StoreResult<store::RangeResult> found = co_await source->range(std::move(asked), wanted);
  if (!found) co_return statusOf(found.error());
  pb::RangeResponse response;
  fill(*response.mutable_header(), found->cluster_id, found->revision);
  response.set_more(found->more);
  response.set_count(found->count);
  for (store::KeyValue& kv : found->kvs) fill(*response.add_kvs(), std::move(kv));
  co_await call->write(response);
  co_return grpc::Status::OK;
}

// It has none; the answer says whose names they are.
Task<grpc::Status> Server::Impl::memberList(std::shared_ptr<Call> call) {
  pb::MemberListRequest request;
  co_await call->read(&request);
  store::KeyRange any = store::KeyRange::single("0");
  const StoreResult<store::RangeResult> found = co_await source->range(std::move(any), {.limit = 1});
  if (!found) co_return statusOf(found.error());
  pb::MemberListResponse response;
  fill(*response.mutable_header(), found->cluster_id, found->revision);
  co_await call->write(response);
  co_return grpc::Status::OK;
}

// A client asks for its watches one after the other, and has them answered in this order.
Task<grpc::Status> Server::Impl::watch(std::shared_ptr<Call> call) {
  ++watches;
  pb::WatchRequest request;
  for (int64_t next = 0; !call->is_over;) {
    const bool came = co_await call->read(&request);
    if (!came) break;
    if (request.has_progress_request()) {
      for (const auto& one : call->watches) {
        if (const auto stream = one.lock()) stream->doubt(1s);
      }
    }
    if (!request.has_create_request()) continue;
    const auto& create = request.create_request();
    std::vector<store::WatchRange> ranges{{{create.key(), create.range_end()}, create.start_revision()}};
    StoreResult<std::unique_ptr<store::WatchStream>> opened = co_await source->watch(std::move(ranges));
    if (!opened && opened.error().code != ErrorCode::kCompacted) {
      call->failure = statusOf(opened.error());
      break;
    }
    pb::WatchResponse response;
    response.set_watch_id(next);
    response.set_created(opened.has_value());
    response.set_canceled(!opened);
    if (opened) {
      fill(*response.mutable_header(), (*opened)->clusterId(), (*opened)->createdRevision());
    } else {
      response.set_compact_revision(std::max<int64_t>(1, create.start_revision()));
    }
    co_await call->write(response);
    if (!opened) continue;
    const std::shared_ptr<store::WatchStream> stream = std::move(*opened);
    call->watches.push_back(stream);
    ++call->senders;
    if (!scheduler.spawn(sendBatches(shared_from_this(), call, next, stream, create.start_revision())))
      call->senderEnded();
    ++next;
  }
  call->is_over = true;
  co_await Call::SendersEnd{*call};
  --watches;
  co_return call->failure.value_or(grpc::Status::OK);
}

Task<void> Server::Impl::sendBatches(std::shared_ptr<Impl> self, std::shared_ptr<Call> call, int64_t id,
                                     std::shared_ptr<store::WatchStream> stream, int64_t start) {
  while (!call->is_over && !self->is_closing) {
    StoreResult<store::WatchBatch> batch = co_await stream->next(1s);
    if (!batch && batch.error().code == ErrorCode::kDeadlineExceeded) continue;
    pb::WatchResponse response;
    if (!batch) {
      if (batch.error().code != ErrorCode::kCompacted) break;
      response.set_watch_id(id);
      response.set_canceled(true);
      response.set_compact_revision(std::max<int64_t>(1, start));
      co_await call->write(response);
      call->senderEnded();
      co_return;  // the client ends the call
    }
    fill(*response.mutable_header(), batch->cluster_id, batch->revision);
    const bool in_order = !batch->events.empty() || batch->resume_revision > batch->revision;
    response.set_watch_id(in_order ? id : kNoRange);
    if (!batch->events.empty()) response.set_fragment(batch->resume_revision <= batch->events.back().kv.mod_revision);
    for (store::WatchEvent& event : batch->events) {
      mvccpb::Event& made = *response.add_events();
      if (event.type == store::WatchEvent::Type::kDelete) made.set_type(mvccpb::Event::DELETE);
      fill(*made.mutable_kv(), std::move(event.kv));
    }
    const bool sent = co_await call->write(response);
    if (!sent) break;
  }
  // The reading of requests ends with the call.
  if (!std::exchange(call->is_over, true)) call->context.TryCancel();
  call->senderEnded();
}

// --- Server ---

Result<std::unique_ptr<Server>> Server::make(CompletionThread& thread, std::shared_ptr<store::Source> source,
                                             Options options, const Logger& log) {
  auto impl = std::make_shared<Impl>(thread, std::move(source), std::move(options), log);
  if (auto started = impl->start(); !started) return tl::unexpected(started.error());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { impl_->close(); }

const std::vector<std::string>& Server::endpoints() const { return impl_->endpoints; }
const std::string& Server::certificate() const { return impl_->identity.certificate; }
const std::string& Server::token() const { return impl_->token; }
size_t Server::watches() const { return impl_->watches; }

}  // namespace idetcd::etcd
