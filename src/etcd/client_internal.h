// The inside of Client, shared by kv.cc, lease.cc and watch.cc. Completion thread only, save for construction.
#pragma once

#include <etcdserverpb/rpc.grpc.pb.h>

#include "base/log.h"
#include "etcd/authenticator_internal.h"
#include "etcd/client.h"
#include "etcd/completion_thread_internal.h"
#include "etcd/counters_internal.h"
#include "etcd/endpoints_internal.h"
#include "etcd/errors_internal.h"
#include "etcd/unary_call_internal.h"
#include "runtime/scheduler.h"

namespace idetcd::etcd {

namespace pb = etcdserverpb;

class KeepAliveStream;

// How a call may be treated.
struct CallTraits {
  bool repeatable = false;              // doing it twice does no harm
  bool needs_leader = true;             // a member without a leader is to refuse
  bool survives_stop = false;           // see Client::leaseRevoke()
  bool identifies = false;              // it comes before the endpoint's cluster is known
  std::chrono::nanoseconds timeout{0};  // of an attempt; 0: Options::call_timeout
};

// The metadata that each RPC carries.
inline void prepareContext(grpc::ClientContext& context, bool needs_leader, const std::string& token) {
  if (needs_leader) context.AddMetadata("hasleader", "true");
  if (!token.empty()) context.AddMetadata("token", token);
}

// A member of a generated stub: PrepareAsync….
template <typename Stub, typename Request, typename Response>
using PrepareMethod = std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Stub::*)(grpc::ClientContext*,
                                                                                           const Request&,
                                                                                           grpc::CompletionQueue*);

struct Client::Impl {
  Impl(CompletionThread& completion_thread, Options client_options, const Logger& logger)
      : public_thread(completion_thread),
        thread(completion_thread.impl()),
        options(std::move(client_options)),
        listed(options.endpoints),
        endpoints(std::make_shared<Endpoints>(options, counters, logger)),
        authenticator(completion_thread, options.credentials, *counters, logger,
                      [this](bool survives_stop) { return authenticate(survives_stop); },
                      options.pinned ? options.pinned->token : "") {}

  // One unary call, with the fail-over and the authentication that client.h promises.
  template <typename Stub, typename Request, typename Response>
  Task<StoreResult<Response>> call(PrepareMethod<Stub, Request, Response> method, Request request, CallTraits traits) {
    for (bool renewed = false;; renewed = true) {
      auto token = authenticator.token(traits.survives_stop);
      StoreResult<Token> ready = co_await token;
      if (!ready) co_return tl::unexpected<StoreError>(std::move(ready.error()));
      auto all = identifyAll(ready->text);
      co_await all;
      auto attempt = callWithToken(method, request, traits, ready->text);
      StoreResult<Response> result = co_await attempt;
      // A call refused for its token was certainly not done, so even a write may be repeated.
      if (result || renewed || !authenticator.dismiss(*ready, result.error())) co_return std::move(result);
    }
  }

  // Whether the endpoint is of our cluster. The error is as of a call that was not sent.
  Task<StoreResult<void>> identify(size_t index, const std::string& token, CallTraits traits,
                                   std::chrono::nanoseconds timeout) {
    if (!traits.needs_leader || traits.identifies) co_return StoreResult<void>{};
    if (!endpoints->isIdentified(index)) {
      auto asking = askCluster(thread, endpoints, index, token, traits.survives_stop, timeout);
      StoreResult<void> asked = co_await asking;
      if (!asked) co_return std::move(asked);
    }
    if (!endpoints->isStranger(index)) co_return StoreResult<void>{};
    endpoints->disconnect(index);
    co_return tl::unexpected<StoreError>(strangeEndpoint());
  }
  void takeList();  // see setEndpoints()
  // Asks all endpoints at once, before the first call chooses among them.
  Task<void> identifyAll(const std::string& token);
  // Its members, which a grpc-proxy makes up itself. Where listing them is not permitted, any lease that is not there:
  // that needs no permission, and every answer says its cluster. One that is refused otherwise is left to the call itself.
  static Task<StoreResult<void>> askCluster(CompletionThread::Impl& thread, std::shared_ptr<Endpoints> endpoints,
                                            size_t index, std::string token, bool survives_stop,
                                            std::chrono::nanoseconds timeout);

  // With fail-over only. REQUIRES: `request` and `token` outlive the Task.
  template <typename Stub, typename Request, typename Response>
  Task<StoreResult<Response>> callWithToken(PrepareMethod<Stub, Request, Response> method, const Request& request,
                                            CallTraits traits, const std::string& token) {
    const size_t count = endpoints->count();
    if (count == 0) co_return tl::unexpected<StoreError>(noEndpoint());
    size_t index = endpoints->current();
    bool sent = false;
    for (size_t attempt = 1;; ++attempt, index = endpoints->after(index)) {
      std::chrono::nanoseconds timeout = traits.timeout;
      if (timeout.count() == 0) timeout = options.call_timeout;
      if (const auto grace = thread.graceLeft()) {
        timeout = traits.survives_stop ? std::min(timeout, *grace) : std::chrono::nanoseconds(0);
        if (timeout.count() == 0) co_return tl::unexpected<StoreError>(cancelledBeforeSending());
      }
      auto identifying = identify(index, token, traits, timeout);
      StoreResult<void> ours = co_await identifying;
      StoreResult<Response> result;
      if (ours) {
        auto one = callAt(index, method, request, traits, token, timeout);
        result = co_await one;
      } else {
        result = tl::unexpected<StoreError>(std::move(ours.error()));
      }
      if (result) {
        endpoints->succeeded(index);
        co_return std::move(result);
      }
      StoreError& error = result.error();
      if (!endpointIsAway(error)) co_return std::move(result);
      if (!endpoints->isStranger(index)) endpoints->failed(index, error);
      sent = sent || error.sent;
      error.sent = sent;
      if ((sent && !traits.repeatable) || attempt >= count) co_return std::move(result);
    }
  }

  // One attempt at one endpoint. REQUIRES: `request` and `token` outlive the Task.
  template <typename Stub, typename Request, typename Response>
  Task<StoreResult<Response>> callAt(size_t index, PrepareMethod<Stub, Request, Response> method,
                                     const Request& request, CallTraits traits, const std::string& token,
                                     std::chrono::nanoseconds timeout) {
    return callAt(thread, *endpoints, index, method, request, traits, token, timeout);
  }
  template <typename Stub, typename Request, typename Response>
  static Task<StoreResult<Response>> callAt(CompletionThread::Impl& thread, Endpoints& endpoints, size_t index,
                                            PrepareMethod<Stub, Request, Response> method, const Request& request,
                                            CallTraits traits, const std::string& token,
                                            std::chrono::nanoseconds timeout) {
    UnaryCall<Response> rpc(thread, traits.survives_stop);
    rpc.context().set_deadline(monotonicDeadline(timeout));
    prepareContext(rpc.context(), traits.needs_leader, token);
    Stub stub(endpoints.channel(index));
    rpc.setReader((stub.*method)(&rpc.context(), request, &thread.queue()));
    StoreResult<Response> result = co_await rpc;
    co_return result;
  }

  // Makes a token: empty if etcd has authentication switched off.
  Task<StoreResult<std::string>> authenticate(bool survives_stop);

  CompletionThread& public_thread;
  CompletionThread::Impl& thread;
  const Options options;
  mutable std::mutex mutex;
  std::vector<std::string> listed;  // guarded by the mutex
  const std::shared_ptr<Counters> counters = std::make_shared<Counters>(options.metrics);
  const std::shared_ptr<Endpoints> endpoints;
  Authenticator authenticator;
  std::shared_ptr<KeepAliveStream> keep_alive;
  // Of the requests to all endpoints; null: not sent yet.
  struct Identification {
    explicit Identification(runtime::Scheduler& scheduler, size_t endpoints) : done(scheduler), left(endpoints) {}
    runtime::Event done;
    size_t left;
  };
  std::shared_ptr<Identification> identification;
  int home_answers = 0;  // in a row, of an endpoint that is not the current one: see returnHome()
};

}  // namespace idetcd::etcd
