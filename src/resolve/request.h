// A query's client and transport, and the way back for its answer: the seam between the listeners (server/) and the
// handlers here.
//
// A handler answers at once, in place, or defers the reply. Loop thread only.
#pragma once

#include "base/clock.h"
#include "base/ip_address.h"

struct sockaddr;

namespace idetcd::resolve {

// Small numbers that stand for the names of directives, for the whole process: what is counted by the directive that
// has answered is an element of an array. Any thread.
using DirectiveId = uint8_t;

class DirectiveNames {
 public:
  static constexpr DirectiveId kServer = 0;  // no directive: the server itself has answered. Its name is empty
  static constexpr size_t kMax = 64;         // ids are below; more names than that get kServer

  DirectiveId idOf(std::string_view name) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return static_cast<DirectiveId>(i);
    }
    if (names_.size() == kMax) return kServer;
    names_.emplace_back(name);
    return static_cast<DirectiveId>(names_.size() - 1);
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_{""};  // guarded by mutex_
};

enum class Transport : uint8_t { kUdp, kTcp };

class QueryMeter;
class QuerySamples;
class Router;
struct SignatureRules;

// Why a query gets no answer.
enum class DropReason : uint8_t {
  kMalformed,  // no query: shorter than a header, or a response
  kOversized,  // a datagram that is longer than its buffer
  kPortZero,   // no client can be reached there
  kAcl,
  kRrl,
  kTcpLimits,  // its connection was closed, while the answer was to come, since the client reads too slowly or for room
};
inline constexpr std::array<std::string_view, 6> kDropReasons{"malformed", "oversized", "port_zero",
                                                              "acl",       "rrl",       "tcp_limits"};

// The messages of a reply that has many, made as the client reads them.
class MessageStream {
 public:
  virtual ~MessageStream() = default;
  // Writes the next one to `room`, which takes any message. Its size; 0: there are no more; nothing: it cannot go on, and the
  // client is to see that something is missing.
  virtual std::optional<size_t> next(std::span<uint8_t> room) = 0;
};

// The client of a query that is resolved elsewhere. Destroying it ends the reply; unused, it means: no answer.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  // Sends a whole message, if the client is still there.
  virtual void send(std::span<const uint8_t> message) = 0;
  // The whole reply to a query over TCP. What the client does not read is not made.
  virtual void sendAll(std::unique_ptr<MessageStream>) { assert(false); }
  // Asked before an answer is written. True: the client has yet to read so much that there is no room for another one;
  // its query will be answered anew when it has read, and this is used up.
  virtual bool pushBack() { return false; }
  // There will be no answer, on purpose. Before it is destroyed; at most once.
  virtual void noteDropped(DropReason) {}
};

// One client, whose reply a handler wants to send later.
class ReplyDeferrer {
 public:
  virtual ~ReplyDeferrer() = default;
  // To be called at most once for a query.
  virtual std::unique_ptr<ReplySink> keepClient() = 0;
};

// Borrowed for the time of one call.
struct Request {
  const sockaddr* source = nullptr;
  const SocketAddress* local = nullptr;  // of the listener
  Transport transport = Transport::kUdp;
  size_t response_limit = 0;    // bytes: what this transport and client can take
  BootClock::time_point now{};  // read once a batch: close enough for TTLs
  ReplyDeferrer* deferrer = nullptr;
  // A handler asks the others for a client of its own: it limits and logs what that client gets, they do not.
  bool is_inner = false;
  uint8_t inner_depth = 0;         // how many of Router::answerInner() it is within
  // By whose rules the client's query is signed; null: it is not. To be compared only.
  const SignatureRules* signed_by = nullptr;
  // Wanted is only whether this block has an answer of its own, or has none for this client: nothing of the cache or of
  // other servers, and REFUSED for what is another block's.
  // nextOfAbove() where the name itself is not this server's, but some below it are.
  bool own_only = false;           // of Router::answerInner()
  const Router* router = nullptr;  // of the listener; null: there is none
  // The name is known to exist here, though not to who is asked: NXDOMAIN would be wrong, and becomes NODATA (RFC 8020).
  bool name_exists = false;
  // It was asked before, and there was no room for its answer (ReplySink::pushBack()).
  bool is_again = false;
  bool one_message = false;  // a reply is one message: DNS over HTTPS (RFC 8484 §4.2)
  // Null, or where a handler notes that its answer is made from a wildcard or a DNAME, as are those of names without number:
  // its name's hash. The limit of answers of one name counts them together.
  uint32_t* wildcard = nullptr;
  QueryMeter* meter = nullptr;      // null: what leaves is not counted. Set by the router
  QuerySamples* samples = nullptr;  // of the loop; may be null
};

// The outcome of a query.
struct QueryOutcome {
  enum class Kind : uint8_t {
    kAnswer,   // the response stands in the query's buffer, `size` bytes
    kDrop,     // there will be none
    kPending,  // a handler has deferred the reply
    kNext,     // between handlers only: not a question for this one
  };
  Kind kind = Kind::kNext;
  DirectiveId answered_by = DirectiveNames::kServer;
  size_t size = 0;  // of kDrop: the reason, so that an answer is no larger than two words

  static QueryOutcome answer(size_t size) { return {.kind = Kind::kAnswer, .size = size}; }
  static QueryOutcome drop(DropReason reason) { return {.kind = Kind::kDrop, .size = static_cast<size_t>(reason)}; }
  static QueryOutcome pending() { return {.kind = Kind::kPending}; }
  static QueryOutcome next() { return {.kind = Kind::kNext}; }
  // Next, but the name exists: if nobody else answers, Handler::answerNoData() of this handler does, and NXDOMAIN of
  // others becomes NODATA. Of a name whose data are somebody else's: DS of a zone's apex (RFC 4035 §3.1.4.1), and the
  // names above one that a handler answers for in a tree that is not its own.
  static QueryOutcome nextOfExisting() { return {.kind = Kind::kNext, .size = 1}; }
  // Next, and below the name are names of ours: NXDOMAIN of others becomes NODATA (RFC 8020 §2). Their data, and that nobody
  // answers, is passed on.
  static QueryOutcome nextOfAbove() { return {.kind = Kind::kNext, .size = 2}; }
  bool isNextOfExisting() const { return kind == Kind::kNext && size != 0; }
  bool isNextOfAbove() const { return kind == Kind::kNext && size == 2; }
  bool isNext() const { return kind == Kind::kNext; }
  DropReason dropReason() const {
    assert(kind == Kind::kDrop);
    return static_cast<DropReason>(size);
  }
};

}  // namespace idetcd::resolve
