// The inside of Client, shared by kv.cc, lease.cc and watch.cc. Completion thread only, save for construction.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <etcdserverpb/rpc.grpc.pb.h>

#include "base/log.h"
#include "etcd/client.h"
#include "etcd/completion_thread_internal.h"
#include "etcd/endpoints_internal.h"
#include "etcd/errors_internal.h"
#include "etcd/unary_call_internal.h"

namespace idetcd::etcd {

namespace pb = etcdserverpb;

class KeepAliveStream;

// How a call may be treated.
struct CallTraits {
  bool repeatable = false;     // doing it twice does no harm
  bool needs_leader = true;    // a member without a leader is to refuse
  bool survives_stop = false;  // see Client::leaseRevoke()
};

// The metadata that each RPC carries. The place for the authentication token.
inline void prepareContext(grpc::ClientContext& context, bool needs_leader) {
  if (needs_leader) context.AddMetadata("hasleader", "true");
}

// A member of a generated stub: PrepareAsync….
template <typename Stub, typename Request, typename Response>
using PrepareMethod = std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Stub::*)(grpc::ClientContext*,
                                                                                           const Request&,
                                                                                           grpc::CompletionQueue*);

struct Client::Impl {
  Impl(CompletionThread& completion_thread, Options client_options, Logger logger)
      : public_thread(completion_thread),
        thread(completion_thread.impl()),
        options(std::move(client_options)),
        endpoints(std::make_shared<Endpoints>(options, std::move(logger))) {}

  // One unary call, with fail-over as client.h promises it.
  template <typename Stub, typename Request, typename Response>
  Task<EtcdResult<Response>> call(PrepareMethod<Stub, Request, Response> method, Request request, CallTraits traits) {
    const size_t first = endpoints->current();
    bool sent = false;
    for (size_t attempt = 0;; ++attempt) {
      std::chrono::nanoseconds timeout = options.call_timeout;
      if (const auto grace = thread.graceLeft()) {
        timeout = traits.survives_stop ? std::min(timeout, *grace) : std::chrono::nanoseconds(0);
        if (timeout.count() == 0) co_return tl::unexpected<EtcdError>(cancelledBeforeSending());
      }
      const size_t index = (first + attempt) % endpoints->size();
      UnaryCall<Response> rpc(thread, traits.survives_stop);
      rpc.context().set_deadline(monotonicDeadline(timeout));
      prepareContext(rpc.context(), traits.needs_leader);
      Stub stub(endpoints->channel(index));
      rpc.setReader((stub.*method)(&rpc.context(), request, &thread.queue()));
      EtcdResult<Response> result = co_await rpc;

      if (result) {
        endpoints->succeeded(index);
        co_return std::move(result);
      }
      EtcdError& error = result.error();
      if (!endpointIsAway(error)) co_return std::move(result);
      endpoints->failed(index, error);
      sent = sent || error.sent;
      error.sent = sent;
      if ((sent && !traits.repeatable) || attempt + 1 == endpoints->size()) co_return std::move(result);
    }
  }

  CompletionThread& public_thread;
  CompletionThread::Impl& thread;
  const Options options;
  const std::shared_ptr<Endpoints> endpoints;
  std::shared_ptr<KeepAliveStream> keep_alive;
};

}  // namespace idetcd::etcd
