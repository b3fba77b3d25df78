// One unary RPC to one endpoint, as something to co_await. For etcd/*.cc only; completion thread only.
#pragma once

#include <coroutine>

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/status.h>

#include "etcd/completion_thread_internal.h"
#include "etcd/errors_internal.h"

namespace idetcd::etcd {

// Lives in the frame of the coroutine that awaits it, which nothing resumes before the tag has come back.
template <typename Response>
class UnaryCall final : public CompletionTag, public Operation {
 public:
  using Reader = grpc::ClientAsyncResponseReader<Response>;

  UnaryCall(CompletionThread::Impl& thread, bool survives_stop) : thread_(thread), survives_stop_(survives_stop) {}
  UnaryCall(const UnaryCall&) = delete;
  UnaryCall& operator=(const UnaryCall&) = delete;

  grpc::ClientContext& context() { return context_; }
  void setReader(std::unique_ptr<Reader> reader) { reader_ = std::move(reader); }

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    thread_.add(this);
    reader_->StartCall();
    reader_->Finish(&response_, &status_, static_cast<CompletionTag*>(this));
  }
  StoreResult<Response> await_resume() {
    if (status_.ok()) return std::move(response_);
    return tl::unexpected<StoreError>(toError(status_, cancelled_));
  }

  void onEvent(bool) override {  // always true for Finish(); the status says all
    thread_.remove(this);
    thread_.scheduler().resumeSoon(waiter_);
  }
  void cancel() override {
    cancelled_ = true;
    context_.TryCancel();
  }
  bool survivesStop() const override { return survives_stop_; }

 private:
  CompletionThread::Impl& thread_;
  const bool survives_stop_;
  grpc::ClientContext context_;
  std::unique_ptr<Reader> reader_;
  Response response_;
  grpc::Status status_;
  std::coroutine_handle<> waiter_;
  bool cancelled_ = false;
};

}  // namespace idetcd::etcd
