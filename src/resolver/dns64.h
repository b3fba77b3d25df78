// `dns64`: IPv6 addresses for IPv4-only hosts, for a NAT64 (RFC 6147). It asks the handlers behind it: cluster,
// `hosts`, cache, upstreams.
//
//   AAAA, usable ones exist       those, without the ones in ::ffff:0:0/96
//   AAAA, none                    one for each A record, with the lesser of its TTL and the denial's
//   AAAA, NXDOMAIN                that
//   AAAA, no A either             the answer to the question for A
//   PTR of the prefix's addresses a CNAME to the reverse name of the IPv4 address, and its records; else next
//   DO and CD                     the next handler: the client synthesizes by itself (§5.5)
//   of an inner question          the next handler: its answer is part of one that is translated as a whole
//   any other                     the next handler
//
// One per server block and loop; loop thread only; nothing blocks.
#pragma once

#include "base/hash.h"
#include "records/epoch.h"
#include "resolve/chain.h"
#include "resolve/deferred_reply.h"
#include "resolve/handler.h"
#include "resolver/counters.h"
#include "resolver/nat64_prefix.h"
#include "resolver/translation.h"

namespace idetcd::resolver {

class Dns64 final : public resolve::Handler {
 public:
  // A client that has waited so long for AAAA records does not wait for as long again for A records.
  static constexpr std::chrono::milliseconds kSecondQuestionTime{2500};

  struct Options {
    Nat64Prefix prefix{};
    bool translate_all = false;                                         // even where AAAA records exist
    bool allow_ipv4 = false;                                            // for clients that ask over IPv4 too
    HashSeed hash_seed{};                                               // of the chain's queries
    resolve::DirectiveId directive = resolve::DirectiveNames::kServer;  // who has answered
    // Of the block; may be null.
    std::shared_ptr<const resolve::NsidSource> nsid{};
    std::shared_ptr<resolve::RateLimiter> limiter{};
    std::shared_ptr<const resolve::QueryObserver> log{};
  };

  // Asks the handlers of `chain` from the one at `behind` on. REQUIRES: the chain, and `epochs`, outlive this.
  Dns64(const resolve::Chain& chain, size_t behind, Options options, records::EpochDomain& epochs,
        metrics::Scope metrics)
      : chain_(chain), behind_(behind), options_(std::move(options)), reader_(epochs), counters_(std::move(metrics)) {}

  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;

 private:
  using Reply = std::unique_ptr<resolve::DeferredReply>;
  // Takes on with the response to a question, where that came late.
  using Then = std::function<void(Reply reply, const MessageView& response)>;
  class Sink;
  class Deferrer;
  struct Question;
  struct First;

  bool isOurs(const dns::Query& query, const resolve::Request& request) const;
  resolve::QueryOutcome answerAddress(const dns::Query& query, const resolve::Request& request, uint16_t flags);
  resolve::QueryOutcome answerPointer(const dns::Query& query, const resolve::Request& request, uint16_t flags);

  std::shared_ptr<const First> examine(const dns::Query& query, const MessageView& response) const;
  Translated conclude(const dns::Query& query, const MessageView& response, const First& first);
  Translated reverse(const dns::Query& query, const MessageView& response, const dns::Name& name);
  void onFirst(Reply reply, const MessageView& response, uint16_t flags);
  void onPointer(Reply reply, const MessageView& response, const dns::Name& name, uint16_t flags);

  resolve::QueryOutcome ask(const Question& question, const resolve::Request& request, Deferrer& deferrer, uint16_t flags);
  void askLate(const Question& question, Reply reply, const Then& then, uint16_t flags);
  static size_t write(const dns::Query& query, size_t limit, const Translated& response);
  void finish(Reply reply, const Translated& response);
  void pass(Reply reply, const MessageView& response);

  const resolve::Chain& chain_;
  const size_t behind_;
  const Options options_;
  records::EpochDomain::Reader reader_;  // for what is asked late, when no other section of this loop is open
  std::vector<uint8_t> question_room_;   // where our own questions are answered
  std::vector<uint8_t> reply_room_;      // where late responses are written
  Dns64Counters counters_;
};

}  // namespace idetcd::resolver
