// A stream of bytes to a peer, whatever carries it: TCP, or TLS over TCP. Loop thread only.
#pragma once

#include "base/std.h"

namespace idetcd::net {

// A stream's reports to its owner. The owner may destroy the stream in any of these calls.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  virtual void onConnected() {}  // of an outgoing stream: the peer is there, and has proved its identity
  virtual void onData(std::span<const uint8_t> bytes) = 0;
  virtual void onEnd() = 0;      // the peer will send no more; it may still read
  virtual void onDrained() = 0;  // everything written is in the kernel's hands
  virtual void onError() = 0;    // refused, reset, a write failed: nothing more will come
  // There will be no answer to the question `id`. `worth_another_try`: the peer has not looked at it.
  virtual void onUnanswered(uint16_t /*id*/, const std::string& /*reason*/, bool /*worth_another_try*/) {}
};

class Stream {
 public:
  virtual ~Stream() = default;  // closes it at once

  // Begins to connect if need be, and to read. `handler` must outlive the stream.
  virtual void start(StreamHandler& handler) = 0;
  // Writes at once what the kernel takes and queues the rest, in order; before onConnected() everything is queued.
  // Returns false if something is queued, then onDrained() follows.
  virtual bool write(std::vector<uint8_t>&& bytes) = 0;
  // After onError(): why, for a log.
  virtual std::string failure() const = 0;

  // Of a stream of questions and answers: whether another question may be written now.
  virtual bool takesMore() const { return true; }
  // Nobody waits for the answer to the question `id` any more.
  virtual void cancel(uint16_t /*id*/) {}
};

}  // namespace idetcd::net
