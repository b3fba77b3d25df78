// A stream of bytes to a peer, whatever carries it: TCP, or TLS over TCP. Loop thread only.
#pragma once

#include "base/ip_address.h"

namespace idetcd::net {

// A stream's reports to its owner. The owner may destroy the stream in any of these calls.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // The peer is there: of an outgoing stream, and has proved its identity; of an accepted one over TLS, after the handshake.
  virtual void onConnected() {}
  // Something of an accepted stream's TLS handshake has come; that may have taken a millisecond.
  virtual void onHandshakeStep() {}
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
  // The question `id` is given up: nobody waits for its answer any more, or the owner will not answer it.
  virtual void cancel(uint16_t /*id*/) {}
};

// One whose owner bounds what the peer can make it hold.
class BoundedStream : public Stream {
 public:
  // REQUIRES: connected.
  virtual void pauseReading() = 0;
  virtual void resumeReading() = 0;
  virtual bool isDrained() const = 0;
  // Bytes that were written but wait for the kernel to take them, and a number that grows as the peer takes some.
  virtual size_t queued() const = 0;
  virtual uint64_t taken() const = 0;
  // Bytes that have come and wait for more before they are reported.
  virtual size_t held() const { return 0; }
  // When this is destroyed, what the peer has not received is thrown away, in the kernel too, and the peer gets a RST.
  virtual void resetAtEnd() = 0;
  virtual const SocketAddress& remote() const = 0;
  virtual const SocketAddress& local() const = 0;  // of an incoming connection
};

}  // namespace idetcd::net
