// `autopath`: walks the clients' search list for them. A name within the first domain of the list is asked for as it is, then in
// each of the other domains, then alone; the first answer that is not NXDOMAIN, nor a failure, is the client's, behind a CNAME
// from the name that was asked for. If there is none, the answer to that name is.
//
// One for each server block and loop; loop thread only; nothing blocks.
#pragma once

#include "base/metrics.h"
#include "dns/response_rewriter.h"
#include "records/epoch.h"
#include "resolve/inner_question.h"

namespace idetcd::directive {

// Of a file like resolv.conf: the domains of its last line `search` or `domain`. The error is a text without a place.
Result<std::vector<dns::Name>> parseSearchList(std::string_view content);

// Written on one loop's thread.
struct AutopathCounters : metrics::Group {
  using Group::Group;

  // CoreDNS's name.
  metrics::Counter found{*this, "coredns_autopath_success_total",
                         "Queries that were answered with a name further on in the search list."};
};

class Autopath final : public resolve::Handler {
 public:
  // After which no other domain is tried.
  static constexpr std::chrono::milliseconds kMaxTime{2500};

  struct Options {
    std::vector<dns::Name> zones{};
    std::vector<dns::Name> search{};  // at least one
    HashSeed hash_seed{};             // of the chain's queries
    resolve::DirectiveId directive = resolve::DirectiveNames::kServer;
  };

  // Asks the handlers of `chain` from the one at `behind` on. REQUIRES: the chain, and `epochs`, outlive this.
  Autopath(const resolve::Chain& chain, size_t behind, Options options, records::EpochDomain& epochs,
           metrics::Scope scope);

  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;

 private:
  struct Walk;
  using Walking = std::shared_ptr<Walk>;

  bool isOurs(const dns::Query& query, const resolve::Request& request) const;
  std::optional<dns::Name> candidate(const Walk& walk, size_t index) const;
  bool mayAsk(const dns::Query& question, const resolve::Request& request) const;
  resolve::LateAnswer::Then goOnLater(const Walking& walk, size_t index);
  resolve::QueryOutcome ask(const resolve::InnerQuestion& question, const resolve::Request& request,
                            resolve::LateAnswer& late, const Walk& walk) const;
  void goOn(resolve::KeptReply reply, const Walking& walk, size_t index);
  bool isFound(Walk& walk, size_t index, const dns::MessageView& response) const;
  dns::RewrittenResponse conclude(const dns::Query& query, const Walk& walk, size_t index,
                                  const dns::MessageView& response);
  dns::RewrittenResponse concludeWithFirst(const dns::Query& query, const Walk& walk);
  void send(resolve::DeferredReply& reply, const dns::RewrittenResponse& response) const;

  const resolve::Chain& chain_;
  const size_t behind_;
  const Options options_;
  const resolve::LateExit exit_;
  records::EpochDomain::Reader reader_;  // for what is asked late, when no other section of this loop is open
  AutopathCounters counters_;
};

}  // namespace idetcd::directive
