// A question that a handler asks those behind it for a client, before it answers that one. The answer comes at once, or late:
// after the handler's answer() has returned. Loop thread only.
#pragma once

#include "base/hash.h"
#include "dns/response_rewriter.h"
#include "resolve/chain.h"
#include "resolve/deferred_reply.h"
#include "resolve/handler.h"

namespace idetcd::resolve {

using KeptReply = std::unique_ptr<DeferredReply>;

// In the place of the client's way back: keeps the client, when an answer is to come late, and goes on with that.
class LateAnswer final : public ReplyDeferrer {
 public:
  using Keep = std::function<KeptReply()>;
  using Then = std::function<void(KeptReply reply, const dns::MessageView& response)>;

  LateAnswer(Keep keep, Then then) : keep_(std::move(keep)), then_(std::move(then)) {}
  std::unique_ptr<ReplySink> keepClient() override;

  size_t question_end = 0;  // of the question that is asked

 private:
  const Keep keep_;
  Then then_;
};

// Writes a client's question with another name and type to `room` (kMaxQuestionSize + kReadSlack at least), and reads it as
// `query`: with the client's RD, CD, AD and EDNS, without its options. `id_change`: what the ID differs by from the client's,
// which may be on its way as well: what has the same ID counts as sent twice (resolver/waiting_clients). False: of this type
// there are no ordinary queries, as of transfers.
bool writeInnerQuestion(const dns::Query& client, std::span<const uint8_t> name, uint16_t type, uint16_t id_change,
                        HashSeed seed, uint8_t* room, dns::Query& query);

// The question, and the room for its answer.
class InnerQuestion {
 public:
  // With the client's RD, CD, AD and EDNS, without its options. `limit`: of the client's answer. `seed`: of the chain's queries.
  InnerQuestion(const dns::Query& client, std::span<const uint8_t> name, uint16_t type, size_t limit, HashSeed seed);
  InnerQuestion(const InnerQuestion&) = delete;
  InnerQuestion& operator=(const InnerQuestion&) = delete;

  // False: of this type there are no ordinary queries, as of transfers. Nobody is to be asked.
  bool isQuery() const { return is_query_; }
  const dns::Query& query() const { return query_; }
  // For the response, at least what every client can take: the question may be longer than the client's.
  size_t limit() const { return limit_; }
  // An answer of this size, which stands where the question was.
  dns::MessageView answerOf(size_t size) const { return {{query_.message, size}, query_.question_end}; }

 private:
  const size_t limit_;
  const std::unique_ptr<uint8_t[]> room_;
  dns::Query query_;
  bool is_query_;
};

// By which a handler's late answers leave: with the parts of its block.
struct LateExit {
  const Chain& chain;     // outlives this
  DirectiveId directive;  // who has answered

  // `write(query, limit)`: of a response into the query's buffer; returns its size.
  template <typename Write>
  void send(DeferredReply& reply, Write&& write) const {
    std::vector<uint8_t> room;
    reply.makeRoom(room, chain.parts.nsid.get());
    const size_t size = write(reply.query(), reply.responseLimit());
    reply.finish(size, chain.parts.limiter.get(), chain.parts.log.get(), directive);
  }
  // The response as it is, but for the client's ID. REQUIRES: it fits.
  void pass(DeferredReply& reply, std::span<const uint8_t> response) const;
};

}  // namespace idetcd::resolve
