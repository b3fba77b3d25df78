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
#include "dns/response_rewriter.h"
#include "records/epoch.h"
#include "resolve/chain.h"
#include "resolve/handler.h"
#include "resolve/inner_question.h"
#include "resolver/counters.h"

namespace idetcd::resolver {

// The prefix of a NAT64, and the IPv6 addresses within it that stand for IPv4 addresses (RFC 6052 §2.2). Any thread.
//
//   length  octets of the address: p prefix, 4 the IPv4 address, u zero, . suffix
//     32    pppp 4444 u... ....
//     40    pppp p444 u4.. ....
//     48    pppp pp44 u44. ....
//     56    pppp ppp4 u444 ....
//     64    pppp pppp u444 4...
//     96    pppp pppp uppp 4444
class Nat64Prefix {
 public:
  using V6 = std::array<uint8_t, 16>;

  Nat64Prefix() = default;  // the well-known one, 64:ff9b::/96

  // "2001:db8:64::/96". The error is a text without a place.
  static Result<Nat64Prefix> parse(std::string_view text);

  // Whether the address may stand in this prefix: the well-known one is for addresses of the world only (RFC 6052 §3.1),
  // since packets to others are dropped by the NAT64. REQUIRES: `v4` is an IPv4 address.
  bool mayEmbed(const IpAddress& v4) const;
  // REQUIRES: 4 octets.
  V6 embed(std::span<const uint8_t> v4) const;
  // The IPv4 address that `v6` stands for; none if it is not of this prefix. The suffix is not looked at. REQUIRES: an IPv6
  // address.
  std::optional<IpAddress> extract(const IpAddress& v6) const;

 private:
  static constexpr V6 kWellKnown{0x00, 0x64, 0xff, 0x9b};

  V6 octets_ = kWellKnown;
  uint8_t size_ = 12;  // octets of the prefix
};

// DNS64 reads responses and makes others of them (RFC 6147 §5), as messages of the handlers that it asks. No I/O; one
// thread.

using dns::MessageView;

// The findings in a response to a question for AAAA.
struct AaaaFindings {
  bool is_final = false;      // the client's answer, whatever its records are: NXDOMAIN (§5.1.2), TC, or unreadable
  bool has_usable = false;    // an AAAA record that is not in ::ffff:0:0/96 (§5.1.4)
  bool has_excluded = false;  // one that is
  // For how long there is no AAAA record, and so a synthesized one at most (§5.1.7).
  uint32_t negative_ttl_seconds = 600;
};
AaaaFindings examineAaaa(const MessageView& response);

// A response that another one has become.
struct Translated : dns::RewrittenResponse {
  uint16_t made = 0;      // records that are new
  uint16_t left_out = 0;  // records that were not translated, and are gone
};

// All of it but AAAA records in ::ffff:0:0/96. `query`: whose question the response answers.
dns::RewrittenResponse withoutExcluded(const dns::Query& query, const MessageView& response);

// The response to a question for A as one to `query`, for AAAA and the same name: each A record an AAAA record, for as
// long at most; signatures of A records and addresses that the prefix is not for are left out (§5.1.7, §5.5).
Translated translateAddresses(const dns::Query& query, const MessageView& response, const Nat64Prefix& prefix,
                              uint32_t most_seconds);

// The response to a question for PTR of `name` as one to `query`, whose name a CNAME leads to `name` (§5.3.1). `made`: 0 if
// there is no PTR.
Translated translatePointers(const dns::Query& query, const MessageView& response, const dns::Name& name);

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
  };

  // Asks the handlers of `chain` from the one at `behind` on. REQUIRES: the chain, and `epochs`, outlive this.
  Dns64(const resolve::Chain& chain, size_t behind, Options options, records::EpochDomain& epochs,
        metrics::Scope metrics)
      : chain_(chain),
        behind_(behind),
        options_(std::move(options)),
        exit_{chain, options_.directive},
        reader_(epochs),
        counters_(std::move(metrics)) {}

  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;

 private:
  using Reply = resolve::KeptReply;
  using Deferrer = resolve::LateAnswer;
  struct Question;
  struct First;

  bool isOurs(const dns::Query& query, const resolve::Request& request) const;
  bool isAbovePrefix(const dns::Query& query) const;
  bool mayTranslate(const dns::Query& query, const resolve::Request& request) const;
  resolve::QueryOutcome answerAddress(const dns::Query& query, const resolve::Request& request, uint16_t flags);
  resolve::QueryOutcome answerPointer(const dns::Query& query, const dns::Name& name, const resolve::Request& request,
                                      uint16_t flags);

  std::shared_ptr<const First> examine(const dns::Query& query, const MessageView& response) const;
  Translated conclude(const dns::Query& query, const MessageView& response, const First& first);
  Translated reverse(const dns::Query& query, const MessageView& response, const dns::Name& name);
  void onFirst(Reply reply, const MessageView& response, uint16_t flags);
  void onPointer(Reply reply, const MessageView& response, const dns::Name& name, uint16_t flags);

  resolve::QueryOutcome ask(const Question& question, const resolve::Request& request, Deferrer& deferrer, uint16_t flags);
  void askLate(const Question& question, Reply reply, const Deferrer::Then& then, uint16_t flags);
  void finish(const Reply& reply, const dns::RewrittenResponse& response) const;

  const resolve::Chain& chain_;
  const size_t behind_;
  const Options options_;
  const resolve::LateExit exit_;
  records::EpochDomain::Reader reader_;  // for what is asked late, when no other section of this loop is open
  std::vector<uint8_t> question_room_;   // where our own questions are answered
  Dns64Counters counters_;
};

}  // namespace idetcd::resolver
