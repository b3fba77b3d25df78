// A directive's work on a query: handlers of one server block on one loop, asked in the order of directive/order.h
// until one answers. A directive may also supply a Gate (which clients), RateLimiter (how often), NsidSource (which
// node), QueryObserver and FailureObserver. Handlers and limiters are called on their loop's thread only; the others
// are shared by all loops of the block: any thread.
#pragma once

#include "base/ip_address.h"
#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::resolve {

class Handler {
 public:
  virtual ~Handler() = default;

  // The passes over a batch that come before answer(): begin to fetch the memory that it reads. Called only if
  // prefetches() is true.
  virtual bool prefetches() const { return false; }
  virtual void prefetchBucket(const dns::Query&) {}
  virtual void prefetchEntry(const dns::Query&) {}

  // The response over the query, in query.message; or pending: the client was kept; or next: not a question for this
  // handler. `flags` are added to the response's header.
  virtual QueryOutcome answer(const dns::Query& query, const Request& request, uint16_t flags) = 0;

  // NODATA for what answer() has left to others by QueryOutcome::nextOfExisting(), and they to it.
  virtual QueryOutcome answerNoData(const dns::Query&, const Request&, uint16_t) { return QueryOutcome::next(); }

  // Whether it answers for a zone that this name, of another server block's zone, is below: the DS of that zone is its to
  // answer (RFC 4035 §3.1.4.1). `name`: lower case, not the root.
  virtual bool hasZoneAbove(std::span<const uint8_t>) const { return false; }

  // Whether an answer is still to come, which would be lost with the handler.
  virtual bool isBusy() const { return false; }
};

// A handler that is a function with answer()'s parameters.
template <typename Answer>
std::unique_ptr<Handler> makeHandler(Answer answer_query) {
  struct Made final : Handler {
    explicit Made(Answer made_of) : function(std::move(made_of)) {}
    QueryOutcome answer(const dns::Query& query, const Request& request, uint16_t flags) override {
      return function(query, request, flags);
    }
    const Answer function;
  };
  return std::make_unique<Made>(std::move(answer_query));
}

// `acl`: judges which clients may query, before anything else, even for messages that cannot be parsed.
class Gate {
 public:
  enum class AclVerdict : uint8_t {  // by how much is withheld
    kAllow,
    kFilter,  // NOERROR without records, EDE 17
    kBlock,   // REFUSED, EDE 15
    kDrop,    // no answer
  };

  virtual ~Gate() = default;
  // `source`: nothing if it is no IP address. `name`: valid, uncompressed, lower case; `type`: nothing if it is not
  // known.
  virtual AclVerdict judge(const std::optional<IpAddress>& source, std::span<const uint8_t> name,
                        std::optional<uint16_t> type) const = 0;

  // The response to `query` by this verdict; next for kAllow.
  static QueryOutcome answer(AclVerdict verdict, const dns::Query& query, size_t limit, uint16_t flags);
};

// `rrl`: how many queries over UDP are answered. Belongs to one loop.
class RateLimiter {
 public:
  enum class RateVerdict : uint8_t {
    kSend,
    kTruncate,  // TC and nothing else: a client that is there asks over TCP
    kDrop,
  };

  virtual ~RateLimiter() = default;
  // Before the query is looked at. False: it is dropped.
  virtual bool mayAsk(const dns::Query& query, const Request& request) = 0;
  // `response`: to `query`, in its buffer. `wildcard`: what Request::wildcard has noted, or 0.
  virtual RateVerdict judge(const dns::Query& query, const Request& request, std::span<const uint8_t> response,
                            uint32_t wildcard) = 0;

  // The bytes to send of a response of `size` bytes in the query's buffer; 0: nothing.
  size_t limit(const dns::Query& query, const Request& request, size_t size, uint32_t wildcard);
};

// The NSID option (RFC 5001) of responses.
class NsidSource {
 public:
  virtual ~NsidSource() = default;
  // The text at this moment. Null: no option. Valid for as long as this object lives.
  virtual const std::string* text() const = 0;
};

// `log`: called for each response that leaves.
class QueryObserver {
 public:
  virtual ~QueryObserver() = default;
  virtual void onAnswered(const dns::Query& query, const Request& request, std::span<const uint8_t> response,
                          std::chrono::nanoseconds duration) const = 0;
};

// `errors`: called for each query that this server could not answer.
class FailureObserver {
 public:
  virtual ~FailureObserver() = default;
  virtual void onFailed(const dns::Query& query, dns::Rcode rcode, std::string_view reason) = 0;
};

}  // namespace idetcd::resolve
