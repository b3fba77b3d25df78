#include "directive/values/values.h"

#include "base/text.h"
#include "config/option_table.h"
#include "dns/response.h"

namespace idetcd::directive {

using dns::RrType;

resolve::QueryOutcome answerAny(const dns::Query& query, size_t limit, uint16_t flags) {
  if (query.qtype != dns::code(dns::RrType::kAny)) return resolve::QueryOutcome::next();
  constexpr uint32_t kTtlSeconds = 8482;
  constexpr std::string_view kRdata("\7RFC8482\0", 9);  // HINFO of CPU "RFC8482" and OS "" (RFC 8482 §4.2)
  std::array<uint8_t, dns::kRecordHeadSize + kRdata.size()> record;
  dns::putBytes(
      dns::putRecordHead(record.data(), dns::kQuestionPointer, dns::RrType::kHinfo, kTtlSeconds, kRdata.size()),
      kRdata);
  dns::ResponseBuilder response(query, limit);
  response.addAnswer(record, 1);
  return resolve::QueryOutcome::answer(response.finish(dns::Rcode::kNoError, flags));
}

resolve::QueryOutcome answerWhoami(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  const auto source = SocketAddress::fromSockaddr(request.source).value_or(SocketAddress{});
  std::array<uint8_t, dns::kRecordHeadSize + 16> address;
  uint8_t* p = dns::putRecordHead(address.data(), dns::kQuestionPointer, source.ip.isV4() ? RrType::kA : RrType::kAaaa,
                                  0, source.ip.size());
  p = dns::putBytes(p, std::span(source.ip.data(), source.ip.size()));
  dns::ResponseBuilder response(query, request.response_limit);
  response.addAdditional({address.data(), p}, 1);

  // _udp.<qname> SRV 0 0 <port> . — unless that name is too long.
  const std::string_view label = request.transport == resolve::Transport::kUdp ? "\x04_udp" : "\x04_tcp";
  if (query.qname_size + label.size() <= dns::kMaxNameLength) {
    constexpr size_t kSrvSize = 7;
    std::array<uint8_t, 5 + dns::kRecordHeadSize + kSrvSize> service;
    p = dns::putBytes(service.data(), label);
    p = dns::putRecordHead(p, dns::kQuestionPointer, RrType::kSrv, 0, kSrvSize);
    p = dns::put16(dns::put32(p, 0), source.port);  // priority and weight 0
    *p++ = 0;                                       // the root
    response.addAdditional({service.data(), p}, 1);
  }
  return resolve::QueryOutcome::answer(
      response.finish(dns::Rcode::kNoError, static_cast<uint16_t>(flags | dns::kFlagAa)));
}

struct ValueRow {
  std::string_view name;
  config::Options<Values> options;
  // Adds to a loop's chain; null: nothing is added.
  void (*add)(resolve::Chain& chain, const Values& values) = nullptr;
  // Whether all that was read is enough; null: it always is.
  Result<void> (*check)(const config::DirectiveCursor& cursor, const Values& values) = nullptr;
};

namespace {

using namespace std::chrono_literals;
using config::DirectiveCursor;

Result<void> readBufsize(DirectiveCursor& cursor, Values& values) {
  values.bufsize = dns::kDefaultUdpPayload;
  if (!cursor.argumentFollows()) return {};
  const auto bytes = config::readNumber(cursor, 512, 4096, "bufsize must be within {least} - {most}: {word}");
  if (!bytes) return tl::unexpected(bytes.error());
  values.bufsize = static_cast<size_t>(*bytes);
  return {};
}

constexpr std::chrono::milliseconds kDefaultCancel{5001};

Result<void> readCancel(DirectiveCursor& cursor, Values& values) {
  // More is no limit: every query is answered sooner. So clocks do not overflow.
  constexpr std::chrono::milliseconds kMost = 24h;
  values.cancel = kDefaultCancel;
  if (!cursor.argumentFollows()) return {};
  const auto time = config::readDuration(cursor, {.least = 1ns, .wrong = "a duration above 0 is needed, not '{word}'"});
  if (!time) return tl::unexpected(time.error());
  values.cancel = std::min(std::chrono::ceil<std::chrono::milliseconds>(*time), kMost);
  return {};
}

Result<void> readPolicy(DirectiveCursor& cursor, Values& values) {
  values.loadbalance = true;
  const std::vector<std::string> policy = cursor.remainingArgs();
  if (!policy.empty() && policy.front() != "round_robin") {
    return cursor.error(fmt::format("loadbalance policy '{}' is not supported", policy.front()));
  }
  return policy.size() > 1 ? cursor.argError() : Result<void>();
}

// `zonelimit [OUTSTANDING] [ZONES…]`
Result<void> readZonelimit(DirectiveCursor& cursor, Values& values) {
  constexpr int64_t kMost = 1'000'000;
  auto& limit = values.zonelimit.emplace();
  std::vector<std::string> words = cursor.remainingArgs();
  if (const auto number = words.empty() ? std::nullopt : parseNumber<int64_t>(words.front())) {
    if (*number < 1 || *number > kMost)
      return cursor.error(fmt::format("'{}' is no number from 1 to {}", *number, kMost));
    limit.outstanding = static_cast<size_t>(*number);
    words.erase(words.begin());
  }
  auto zones = config::parseZones(cursor, words);
  if (!zones) return tl::unexpected(zones.error());
  limit.zones = zones->empty() ? values.zones : std::move(*zones);
  return {};
}

Result<void> readSuffix(DirectiveCursor& cursor, Values& values) {
  return config::readZones(cursor, 1, values.zonelimit->suffixes);  // the head has been read
}

Result<void> checkTimeouts(const DirectiveCursor& cursor, const Values& values) {
  if (values.first_timeout || values.write_timeout || values.idle_timeout) return {};
  return cursor.error("timeouts without a block in which there is a read, write or idle");
}

void addAny(resolve::Chain& chain, const Values&) {
  chain.add(resolve::makeHandler([](const dns::Query& query, const resolve::Request& request, uint16_t flags) {
    return answerAny(query, request.response_limit, flags);
  }));
}
void addWhoami(resolve::Chain& chain, const Values&) { chain.add(resolve::makeHandler(answerWhoami)); }
void addBufsize(resolve::Chain& chain, const Values& values) { chain.parts.bufsize = *values.bufsize; }

const std::vector<ValueRow>& rows() {
  using namespace config;
  using V = Values;
  const resolve::TcpLimits unsaid;
  const std::string idle = durationText(unsaid.idle);
  const size_t outstanding = resolver::ZoneLimiter::Options{}.outstanding;
  constexpr DurationRange kTimeout{.least = 1s, .most = 24h, .bare_seconds = true};
  // `tcp` idle: what one datagram's answer over TCP needs, and what the option of RFC 7828 can say in 16 bits of 100 ms.
  static const std::vector<ValueRow> kRows{
      {"any", {flag(&V::any), {}}, addAny},
      {"bufsize",
       {Field<V>(readBufsize).orElse(fmt::to_string(dns::kDefaultUdpPayload)).named("SIZE"), {}},
       addBufsize},
      {"cancel", {Field<V>(readCancel).orElse(durationText(kDefaultCancel)).named("TIMEOUT"), {}}},
      {"debug", {flag(&V::debug), {}}},
      {"loadbalance",
       {readPolicy, {{"prefer", "prefer NETWORKS..., like prefer 10.0.0.0/8", networks(&V::preferred)}}}},
      {"minimal", {flag(&V::minimal), {}}},
      {"tcp",
       {{"max_per_client", "max_per_client N, from 1 to 1000000",
         number(&V::tcp_max_per_client, 1, 1'000'000).orElse(fmt::to_string(unsaid.max_per_client))},
        {"idle", "idle DURATION, from 1s to 1h", duration(&V::tcp_idle, {.least = 1s, .most = 1h}).orElse(idle)}}},
      {"timeouts",
       {{"read", "read DURATION, from 1s to 24h", duration(&V::first_timeout, kTimeout).orElse(idle)},
        {"write", "write DURATION, from 1s to 24h", duration(&V::write_timeout, kTimeout).orElse(idle)},
        {"idle", "idle DURATION, from 1s to 24h", duration(&V::idle_timeout, kTimeout).orElse(idle)}},
       nullptr,
       checkTimeouts},
      {"whoami", {flag(&V::whoami), {}}, addWhoami},
      {"workers",
       {number(&V::workers, 1, 256, "workers must be a number from {least} to {most}: '{word}'").named("N"), {}}},
      {"zonelimit",
       {Field<V>(readZonelimit).orElse(fmt::to_string(outstanding)).named("OUTSTANDING"),
        {{"suffix", "suffix NAMES..., like suffix dyn.example.org", readSuffix}}}},
  };
  return kRows;
}

const ValueRow& rowOf(std::string_view name) { return *std::ranges::find(rows(), name, &ValueRow::name); }

constexpr auto kMake = resolve::makeDirective<ValueDirective>;

}  // namespace

const Values& valuesOf(const resolve::Block& block) {
  static const Values kNone;
  const auto* any = block.find<ValueDirective>();
  return any != nullptr ? *any->values() : kNone;
}

Result<void> ValueDirective::read(DirectiveCursor& cursor, const resolve::Block& block) {
  if (const auto* first = block.find<ValueDirective>()) values_ = first->values();
  values_->zones = config::zonesOf(block.keys);
  row_ = &rowOf(cursor.directive());
  if (auto read = row_->options.read(cursor, *values_); !read) return read;
  return row_->check != nullptr ? row_->check(cursor, *values_) : Result<void>();
}

Result<void> ValueDirective::prepare(resolve::Process& process, const resolve::Block&) {
  log_ = process.log;
  return {};
}

Result<void> ValueDirective::addTo(resolve::Chain& chain, const resolve::LoopContext&) {
  if (row_->add != nullptr) row_->add(chain, *values_);
  return {};
}

void ValueDirective::start() {
  if (values_->debug) debug_ = log_.showDebug();
}

// `timeouts`, and over it `tcp`. A long idle time is for clients that have asked something: it is no reason to wait as long
// for the first query.
bool ValueDirective::limitTcp(resolve::TcpLimits& limits) const {
  const Values& values = *values_;
  const bool has_timeouts = values.first_timeout || values.write_timeout || values.idle_timeout;
  if (has_timeouts) {
    constexpr std::chrono::milliseconds kDefault = resolve::TcpLimits{}.idle;
    limits.idle = values.idle_timeout.value_or(kDefault);
    const auto unsaid = std::min(limits.idle, kDefault);
    limits.first = values.first_timeout.value_or(unsaid);
    limits.write = values.write_timeout.value_or(unsaid);
  }
  if (values.tcp_max_per_client) limits.max_per_client = *values.tcp_max_per_client;
  if (values.tcp_idle) limits.idle = *values.tcp_idle;
  return has_timeouts || row_->name == "tcp";
}

void ValueDirective::fill(resolver::ResolverSettings& settings) const {
  settings.minimal = values_->minimal;
  settings.zone_limit = values_->zonelimit;
  settings.udp_payload = std::min(dns::kDefaultUdpPayload, values_->bufsize.value_or(dns::kDefaultUdpPayload));
  settings.cancel_time = values_->cancel;
  settings.loadbalance = values_->loadbalance;
  settings.preferred_networks = values_->preferred;
}

extern const resolve::DirectiveType kAnyDirective{.name = "any", .syntax = "any", .make = kMake};
extern const resolve::DirectiveType kBufsizeDirective{
    .name = "bufsize", .syntax = "bufsize [SIZE], from 512 to 4096", .make = kMake, .defaults = [] {
      return rowOf("bufsize").options.defaults();
    }};
extern const resolve::DirectiveType kCancelDirective{
    .name = "cancel", .syntax = "cancel [TIMEOUT]", .make = kMake, .defaults = [] {
      return rowOf("cancel").options.defaults();
    }};
extern const resolve::DirectiveType kDebugDirective{.name = "debug", .syntax = "debug", .make = kMake};
extern const resolve::DirectiveType kLoadbalanceDirective{
    .name = "loadbalance", .syntax = "loadbalance [round_robin] [{ prefer NETWORKS... }]", .make = kMake};
extern const resolve::DirectiveType kMinimalDirective{.name = "minimal", .syntax = "minimal", .make = kMake};
extern const resolve::DirectiveType kTcpDirective{
    .name = "tcp", .syntax = "tcp { ... }", .make = kMake, .once = true, .defaults = [] {
      return rowOf("tcp").options.defaults();
    }};
extern const resolve::DirectiveType kTimeoutsDirective{
    .name = "timeouts",
    .syntax = "timeouts { read DURATION; write DURATION; idle DURATION }",
    .make = kMake,
    .defaults = [] { return rowOf("timeouts").options.defaults(); }};
extern const resolve::DirectiveType kWhoamiDirective{.name = "whoami", .syntax = "whoami", .make = kMake};
extern const resolve::DirectiveType kWorkersDirective{
    .name = "workers", .syntax = "workers N", .make = kMake, .defaults = [] {
      return rowOf("workers").options.defaults();
    }};
extern const resolve::DirectiveType kZonelimitDirective{
    .name = "zonelimit",
    .syntax = "zonelimit [OUTSTANDING] [ZONES...] [{ suffix NAMES... }]",
    .make = kMake,
    .once = true,
    .defaults = [] { return rowOf("zonelimit").options.defaults(); }};

}  // namespace idetcd::directive
