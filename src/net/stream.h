// A stream of bytes to a peer, whatever carries it: TCP, or TLS over TCP. Loop thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace idetcd::net {

// What a stream reports to its owner. The owner may destroy the stream in any of these calls.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  virtual void onConnected() {}  // of an outgoing stream: the peer is there, and has proved its identity
  virtual void onData(std::span<const uint8_t> bytes) = 0;
  virtual void onEnd() = 0;      // the peer will send no more; it may still read
  virtual void onDrained() = 0;  // everything written is in the kernel's hands
  virtual void onError() = 0;    // refused, reset, a write failed: nothing more will come
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
};

}  // namespace idetcd::net
