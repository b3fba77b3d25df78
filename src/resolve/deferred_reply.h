// A query whose answer comes later: a copy of all that its buffer held, and the way back to the client. One thread.
#pragma once

#include "base/clock.h"
#include "base/ip_address.h"
#include "dns/query.h"
#include "resolve/handler.h"
#include "resolve/request.h"

namespace idetcd::resolve {

// A copy of a request, but for the way back to its client and what is counted for it.
class KeptRequest {
 public:
  explicit KeptRequest(const Request& request);
  // Borrowed from this object.
  Request request() const;
  BootClock::time_point receivedAt() const { return received_at_; }

 private:
  sockaddr_storage source_;  // of no family: none was given
  SocketAddress local_;
  Transport transport_;
  bool is_inner_;
  uint8_t inner_depth_;
  const SignatureRules* signed_by_;
  std::weak_ptr<const Router> router_;  // a reload may replace it meanwhile
  size_t response_limit_;
  BootClock::time_point received_at_;
};

class DeferredReply {
 public:
  // REQUIRES: request.deferrer is set.
  DeferredReply(const dns::Query& query, const Request& request);
  DeferredReply(const DeferredReply&) = delete;
  DeferredReply& operator=(const DeferredReply&) = delete;

  // As parsed. Its `message` is a buffer of this object that holds the header and the question and nothing more.
  const dns::Query& query() const { return query_; }
  // Moves that to `room`, borrowed until send(), which grows to responseLimit() bytes if it is smaller: a response can
  // be written there. `nsid`: which NSID it carries, as of now; may be null.
  void makeRoom(std::vector<uint8_t>& room, const NsidSource* nsid);
  size_t responseLimit() const { return response_limit_; }
  // REQUIRES: before makeRoom(). At least what the question and an OPT record take.
  void limitResponse(size_t limit) { response_limit_ = limit; }
  // As the handlers and logs want it; borrowed from this object.
  Request request() const;
  const KeptRequest& kept() const { return kept_; }
  BootClock::time_point receivedAt() const { return kept_.receivedAt(); }

  // Sends what stands in the query's buffer, and returns that to where it was borrowed. At most once.
  void send(size_t size);
  // Sends the `size` bytes in the query's buffer, as far as `limiter` lets them leave, and logs into `log`; both may be
  // null, and neither is asked of a handler's own questions (Request::is_inner). `by`: who has answered. `wildcard`: as
  // for RateLimiter::judge(). As send().
  void finish(size_t size, RateLimiter* limiter, const QueryObserver* log, DirectiveId by = DirectiveNames::kServer,
              uint32_t wildcard = 0);
  // As send(), but the client gets nothing.
  void drop(DropReason reason);
  // True: no answer is wanted now, and this counts as answered; ReplySink::pushBack().
  bool pushBack();
  bool isAnswered() const { return sink_ == nullptr; }

 private:
  static constexpr size_t kQuestionTail = 4;
  std::array<uint8_t, dns::kHeaderSize + dns::kMaxNameLength + kQuestionTail> buffer_;
  dns::Query query_;
  KeptRequest kept_;
  bool is_inner_;
  bool name_exists_;
  QueryMeter* meter_;
  QuerySamples* samples_;
  size_t response_limit_;
  std::unique_ptr<ReplySink> sink_;
};

}  // namespace idetcd::resolve
