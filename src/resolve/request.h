// Who asked, over what, and how an answer gets back: the seam between the listeners (server/) and the handlers here.
//
// A handler answers at once, in place, or keeps the client and answers later. Loop thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/ip_address.h"

struct sockaddr;

namespace idetcd::resolve {

enum class Transport : uint8_t { kUdp, kTcp };

// What is left of a client while its query is resolved elsewhere. Destroying it unused means: no answer.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  // Sends a whole message, if the client is still there. At most once.
  virtual void send(std::span<const uint8_t> message) = 0;
  // Asked before an answer is written. True: the client has yet to read so much that there is no room for another one;
  // its query will be answered anew when it has read, and this is used up.
  virtual bool defer() { return false; }
};

class ClientKeeper {
 public:
  virtual ~ClientKeeper() = default;
  virtual std::unique_ptr<ReplySink> keepClient() = 0;
};

// Borrowed for the time of one call.
struct Request {
  const sockaddr* source = nullptr;
  const SocketAddress* local = nullptr;  // of the listener
  Transport transport = Transport::kUdp;
  size_t response_limit = 0;    // octets: what this transport and client can take
  BootClock::time_point now{};  // read once a batch: close enough for TTLs
  ClientKeeper* client = nullptr;
};

// What became of a query.
struct Outcome {
  enum class Kind : uint8_t {
    kAnswer,   // the response stands in the query's buffer, `size` octets
    kDrop,     // there will be none
    kPending,  // a handler has kept the client
    kNext,     // between handlers only: not a question for this one
  };
  Kind kind = Kind::kNext;
  size_t size = 0;

  static Outcome answer(size_t size) { return {Kind::kAnswer, size}; }
  static Outcome drop() { return {Kind::kDrop, 0}; }
  static Outcome pending() { return {Kind::kPending, 0}; }
  static Outcome next() { return {Kind::kNext, 0}; }
  bool isNext() const { return kind == Kind::kNext; }
};

}  // namespace idetcd::resolve
