// Answers out of templates: the directives `template` of a server block, in their order.
//
//   a template for the type, the zone and the name   its records, AA
//   ... for the type and the zone, not for the name  SERVFAIL, or the next template where `fallthrough` says so
//   none                                             the next handler
//   a text that becomes no record                    SERVFAIL, and a line of `errors`
//
// An answer that ends with a CNAME is completed by the whole server.
//
// One for each server block and loop; loop thread only.
#pragma once

#include "base/metrics.h"
#include "directive/template/record_template.h"
#include "dns/query.h"
#include "resolve/chain.h"
#include "resolve/handler.h"
#include "resolver/alias_completion.h"

namespace re2 {
class RE2;
}

namespace idetcd::directive {

struct TemplateRule {
  uint16_t type = 0;                                    // ANY: every one
  std::vector<dns::Name> zones{};                       // the block's where the directive names none
  std::vector<std::shared_ptr<const re2::RE2>> match{};  // the first that matches counts; none: every name
  std::vector<RecordTemplate> answers{};
  std::vector<RecordTemplate> authorities{};
  std::vector<RecordTemplate> additionals{};
  dns::Rcode rcode = dns::Rcode::kNoError;
  std::optional<dns::EdeCode> ede{};
  std::string ede_text{};
  std::vector<dns::Name> fallthrough{};  // zones; `fallthrough` without any is the root
};

// Written on one loop's thread.
struct TemplateCounters : metrics::Group {
  using Group::Group;

  // CoreDNS's name.
  metrics::Counter matches{*this, "coredns_template_matches_total", "Queries that a template matched."};
  metrics::Counter failures{*this, "idetcd_template_failures_total",
                            "Queries that a template matched, but became no record for."};
};

class TemplateHandler final : public resolve::Handler {
 public:
  // The chain outlives this. `aliases` may be null: a CNAME stays as it is.
  TemplateHandler(std::shared_ptr<const std::vector<TemplateRule>> rules, const resolve::Chain& chain,
                  std::unique_ptr<resolver::AliasCompletion> aliases, metrics::Scope scope)
      : rules_(std::move(rules)), chain_(chain), aliases_(std::move(aliases)), counters_(std::move(scope)) {}

  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;
  bool isBusy() const override { return aliases_ && aliases_->isBusy(); }

 private:
  struct Expanded;

  static Result<Expanded> expand(const TemplateRule& rule, const TemplateData& data);
  resolve::QueryOutcome respond(const TemplateRule& rule, const TemplateData& data, const dns::Query& query,
                                const resolve::Request& request, uint16_t flags);
  resolve::QueryOutcome fail(const dns::Query& query, const resolve::Request& request, uint16_t flags,
                             std::string_view reason);

  const std::shared_ptr<const std::vector<TemplateRule>> rules_;
  const resolve::Chain& chain_;
  const std::unique_ptr<resolver::AliasCompletion> aliases_;
  TemplateCounters counters_;
};

}  // namespace idetcd::directive
