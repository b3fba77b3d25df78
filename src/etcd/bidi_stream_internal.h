// A bidirectional RPC: a queue of messages to send, and a callback for each that comes. For etcd/*.cc only; completion
// thread only.
//
// The stream keeps itself alive from open() until its last tag has come back, and reports its end exactly once, by
// onEnd().
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/status.h>

#include "etcd/completion_thread_internal.h"
#include "etcd/errors_internal.h"

namespace idetcd::etcd {

template <typename Request, typename Response>
class BidiStream : public Operation, public std::enable_shared_from_this<BidiStream<Request, Response>> {
 public:
  using ReaderWriter = grpc::ClientAsyncReaderWriter<Request, Response>;

  BidiStream(const BidiStream&) = delete;
  BidiStream& operator=(const BidiStream&) = delete;
  virtual ~BidiStream() = default;

  void send(Request message) {
    if (ended_) return;
    outbox_.push_back(std::move(message));
    writeNext();
  }

  void cancel() override {
    if (ended_) return;
    cancelled_ = true;
    context_.TryCancel();
    readNext();  // a reader that has paused learns of the end too
  }

  bool ended() const { return ended_; }

 protected:
  explicit BidiStream(CompletionThread::Impl& thread) : thread_(thread) {}

  // `prepare(context, queue)` makes the ReaderWriter. Once.
  template <typename Prepare>
  void open(Prepare prepare) {
    self_ = this->shared_from_this();
    thread_.add(this);
    reader_writer_ = prepare(&context_, &thread_.queue());
    reader_writer_->StartCall(&start_tag_);
  }

  grpc::ClientContext& context() { return context_; }
  CompletionThread::Impl& thread() { return thread_; }

  virtual void onSend(const Request&) {}  // the message is about to be handed to gRPC
  virtual void onMessage(Response& message) = 0;
  // Asked before each read: false pauses reading until resumeReading().
  virtual bool wantsMore() const { return true; }
  virtual void onEnd(const StoreError& error) = 0;

  void resumeReading() { readNext(); }

 private:
  using Stream = BidiStream<Request, Response>;
  struct Tag final : CompletionTag {
    Tag(Stream& stream, void (Stream::*handler)(bool)) : stream_(stream), handler_(handler) {}
    void onEvent(bool ok) override { (stream_.*handler_)(ok); }
    Stream& stream_;
    void (Stream::*handler_)(bool);
  };

  void onStarted(bool ok) {
    if (!ok) return finish();
    started_ = true;
    readNext();
    writeNext();
  }

  void readNext() {
    if (!started_ || reading_ || finishing_ || (!cancelled_ && !wantsMore())) return;
    reading_ = true;
    reader_writer_->Read(&incoming_, &read_tag_);
  }

  void onRead(bool ok) {
    reading_ = false;
    if (!ok) return finish();
    if (!cancelled_) onMessage(incoming_);
    readNext();
  }

  void writeNext() {
    if (!started_ || writing_ || finishing_ || outbox_.empty()) return;
    writing_ = true;
    onSend(outbox_.front());
    reader_writer_->Write(outbox_.front(), &write_tag_);
    outbox_.pop_front();  // it is serialised already
  }

  // A write that fails needs nothing: the call has ended then, and the read says so.
  void onWritten(bool ok) {
    writing_ = false;
    if (finish_done_) return end();
    if (ok) writeNext();
  }

  // REQUIRES: no read under way.
  void finish() {
    assert(!reading_);
    finishing_ = true;
    reader_writer_->Finish(&status_, &finish_tag_);
  }

  void onFinished(bool) {
    finish_done_ = true;
    if (!writing_) end();
  }

  void end() {
    ended_ = true;
    thread_.remove(this);
    const auto keep_alive = std::move(self_);
    if (status_.ok()) {
      onEnd({ErrorCode::kUnavailable, "the server closed the stream", true});
    } else {
      onEnd(toError(status_, cancelled_));
    }
  }

  CompletionThread::Impl& thread_;
  grpc::ClientContext context_;
  std::unique_ptr<ReaderWriter> reader_writer_;
  std::shared_ptr<Stream> self_;
  std::deque<Request> outbox_;
  Response incoming_;
  grpc::Status status_;
  bool started_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool finishing_ = false;
  bool finish_done_ = false;
  bool cancelled_ = false;
  bool ended_ = false;
  Tag start_tag_{*this, &Stream::onStarted};
  Tag read_tag_{*this, &Stream::onRead};
  Tag write_tag_{*this, &Stream::onWritten};
  Tag finish_tag_{*this, &Stream::onFinished};
};

}  // namespace idetcd::etcd
