// The directives that keep a value, or are there or not: any, bufsize, cancel, debug, loadbalance, minimal, tcp, timeouts,
// whoami, workers and zonelimit. Each is a row of the table in values.cc; all of a server block fill one struct. Their
// README.md stand in directive/NAME.
#pragma once

#include "dns/query.h"
#include "resolve/directive.h"
#include "resolve/request.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

// The answer of `any`: a query for every type gets one short record, HINFO "RFC8482" "" (RFC 8482 §4.2), so that a
// forged source address gets no large answer; kNext for a query of another type. Any thread; no allocation.
resolve::QueryOutcome answerAny(const dns::Query& query, size_t limit, uint16_t flags);

// The answer of `whoami`: the address, port and transport of the client, in the additional section. As above.
resolve::QueryOutcome answerWhoami(const dns::Query& query, const resolve::Request& request, uint16_t flags);

// The values of a server block. Nothing: it does not have the directive.
struct Values {
  std::vector<dns::Name> zones;  // of the block
  bool any = false;
  std::optional<size_t> bufsize;        // bytes that a UDP response may have
  std::chrono::milliseconds cancel{0};  // for which a query may wait; 0: there is no `cancel`
  bool debug = false;
  bool loadbalance = false;
  std::vector<IpNetwork> preferred;  // of `loadbalance`: addresses within the first of these come first, and so on
  bool minimal = false;
  std::optional<size_t> tcp_max_per_client;
  std::optional<std::chrono::milliseconds> tcp_idle;
  std::optional<std::chrono::milliseconds> first_timeout;  // `timeouts`: until the first query is there
  std::optional<std::chrono::milliseconds> write_timeout;  // without a byte read by the client
  std::optional<std::chrono::milliseconds> idle_timeout;   // between queries
  bool whoami = false;
  size_t workers = 1;
  std::optional<resolver::ZoneLimiter::Options> zonelimit;  // of what `forward` asks
};

// The defaults, where the block has none of these directives. The reference is good as long as the block.
const Values& valuesOf(const resolve::Block& block);

struct ValueRow;

class ValueDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
  size_t workerCount() const override { return values_->workers; }
  bool limitTcp(resolve::TcpLimits& limits) const override;
  void fill(resolver::ResolverSettings& settings) const override;
  void start() override;
  void stop() override { debug_.reset(); }

  const std::shared_ptr<Values>& values() const { return values_; }

 private:
  const ValueRow* row_ = nullptr;                                // once it is read
  std::shared_ptr<Values> values_ = std::make_shared<Values>();  // of the block
  Logger log_;
  std::shared_ptr<const void> debug_;
};

}  // namespace idetcd::directive
