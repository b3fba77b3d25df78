// A response from an upstream: read, and written for clients of every kind, at once or after they have waited; kept in
// the cache, and found there for as long as it may be and for no other question; and without private addresses behind
// `private`.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ip_address.h"
#include "directive/nsid/identity.h"
#include "directive/private/setup.h"
#include "dns/message_reader.h"
#include "dns/query.h"
#include "fuzz/check.h"
#include "resolve/deferred_reply.h"
#include "resolver/cache.h"
#include "resolver/rebinding_filter.h"
#include "resolver/stored_response.h"
#include "unit/dns/message.h"

namespace {

using namespace idetcd;
using dns::test::MessageReader;
using dns::test::ReadMessage;
using dns::test::ReadRecord;

// What the client asked: the question of the response, if it has one. All else is drawn from the input's hash.
std::string queryFor(std::span<const uint8_t> upstream, uint64_t draw) {
  dns::ExpandedName name;
  const size_t end = upstream.size() > dns::kHeaderSize ? dns::expandName(upstream, dns::kHeaderSize, name) : 0;
  std::string question = dns::test::question(dns::test::wireName("www.example.org."), 1);
  if (end != 0 && upstream.size() - end >= 4) {
    question =
        dns::test::question(dns::test::text(name.span()), dns::load16(&upstream[end]), dns::load16(&upstream[end + 2]));
  }
  const bool edns = (draw & 1) != 0;
  const std::string opt = dns::test::opt(512, (draw & 2) != 0 ? 0x8000 : 0, dns::test::option(3, ""));
  return dns::test::header(1, 0x0100, {.additionals = edns ? 1u : 0u}) + question + (edns ? opt : "");
}

// Nowhere to be sent: the clients of this target are looked at, not answered.
struct NoClient : resolve::ReplyDeferrer {
  std::unique_ptr<resolve::ReplySink> keepClient() override { return nullptr; }
};

ReadMessage checkWritten(const dns::Query& query, size_t size, size_t limit) {
  FUZZ_CHECK(size >= dns::kHeaderSize && size <= limit);
  const auto response = MessageReader::read({query.message, size});
  FUZZ_CHECK(response.has_value());
  FUZZ_CHECK((response->opt() != nullptr) == query.has_edns);
  return *response;
}

void writeAtOnce(const resolver::StoredResponse& response, const dns::Query& parsed, const std::string& message,
                 size_t limit, const std::string* nsid, const dns::WriteOptions& options) {
  // Exactly as much room as may be used.
  const auto buffer = std::make_unique_for_overwrite<uint8_t[]>(std::max(limit, message.size()));
  std::memcpy(buffer.get(), message.data(), message.size());
  dns::Query query = parsed;
  query.message = buffer.get();
  query.nsid = query.asksFor(dns::kAsksNsid) ? nsid : nullptr;
  checkWritten(query, dns::writePackedResponse(*response.packed, query, limit, options), limit);
}

void writeLate(const resolver::StoredResponse& response, const dns::Query& query, size_t limit,
               const directive::Identity& identity, const dns::WriteOptions& options) {
  NoClient client;
  const SocketAddress address{.ip = IpAddress::v4({127, 0, 0, 1}), .port = 53};
  sockaddr_storage source;
  address.toSockaddr(&source);
  resolve::DeferredReply pending(query, {.source = reinterpret_cast<const sockaddr*>(&source),
                                         .local = &address,
                                         .transport = resolve::Transport::kUdp,
                                         .response_limit = limit,
                                         .now = {},
                                         .deferrer = &client});
  std::vector<uint8_t> room;
  pending.makeRoom(room, &identity);
  FUZZ_CHECK(room.size() == limit);
  checkWritten(pending.query(), dns::writePackedResponse(*response.packed, pending.query(), limit, options), limit);
}

// The query with a buffer of its own, in which a response of `limit` bytes can be written.
struct Asked {
  Asked(const dns::Query& parsed, const std::string& message, size_t limit)
      : buffer(std::make_unique_for_overwrite<uint8_t[]>(std::max(limit, message.size()))), query(parsed) {
    std::memcpy(buffer.get(), message.data(), message.size());
    query.message = buffer.get();
  }
  std::unique_ptr<uint8_t[]> buffer;
  dns::Query query;
};

using Records = std::vector<ReadRecord>;

// What a section says, but for TTLs.
bool saysTheSame(const Records& a, const Records& b) {
  return std::ranges::equal(a, b, [](const ReadRecord& x, const ReadRecord& y) {
    if (x.type == dns::code(dns::RrType::kOpt)) return y.type == x.type;
    return x.owner == y.owner && x.type == y.type && x.klass == y.klass && x.rdata == y.rdata;
  });
}

class CacheCheck {
 public:
  CacheCheck(const resolver::StoredResponse& response, const dns::Query& query, const std::string& message,
             uint64_t draw)
      : response_(response), query_(query), message_(message), options_(drawOptions(draw)), cache_(options_) {
    cache_.insert(query, response, kNow);
    const Asked asked(query, message, dns::kMaxMessageSize);
    direct_ =
        checkWritten(asked.query, dns::writePackedResponse(*response.packed, asked.query, dns::kMaxMessageSize, {}),
                     dns::kMaxMessageSize);
  }

  void at(uint32_t age_seconds) {
    const auto now = kNow + std::chrono::seconds(age_seconds);
    const resolver::Cache::Found found = cache_.find(query_, now);
    if (response_.kind == resolver::ResponseKind::kUncacheable)
      FUZZ_CHECK(found.state == resolver::Cache::State::kMiss);
    if (found.state == resolver::Cache::State::kMiss) return;
    FUZZ_CHECK(found.age_seconds == (options_.keep_ttl ? 0 : age_seconds));
    if (found.state == resolver::Cache::State::kStale) FUZZ_CHECK(options_.serve_stale.count() > 0);
    const Asked asked(query_, message_, dns::kMaxMessageSize);
    const size_t size = dns::writePackedResponse(*found.response, asked.query, dns::kMaxMessageSize,
                                                 {.age_seconds = found.age_seconds});
    checkFound(checkWritten(asked.query, size, dns::kMaxMessageSize), found.state, age_seconds);
    checkFast(now, found.state, age_seconds);
  }

  // Another type, and another name of the same length.
  void otherQuestions() {
    dns::Query other = query_;
    ++other.qtype;
    FUZZ_CHECK(cache_.find(other, kNow).state == resolver::Cache::State::kMiss);
    other = query_;
    if (other.qname[0] == 0) return;
    other.qname[1] ^= 0x80;
    FUZZ_CHECK(cache_.find(other, kNow).state == resolver::Cache::State::kMiss);  // with the same hash
  }

 private:
  static constexpr BootClock::time_point kNow{std::chrono::hours(1000)};

  static resolver::Cache::Options drawOptions(uint64_t draw) {
    resolver::Cache::Options options;
    options.success.capacity = options.denial.capacity = 64;
    options.success.max_ttl_seconds = options.denial.max_ttl_seconds = 1 + static_cast<uint32_t>(draw >> 20 & 0xfff);
    options.success.min_ttl_seconds = options.denial.min_ttl_seconds =
        static_cast<uint32_t>(draw >> 32 & 0xff) % options.success.max_ttl_seconds;
    if ((draw & 0x10) != 0) options.serve_stale = std::chrono::hours(1);
    options.keep_ttl = (draw & 0x20) != 0;
    options.nxdomain_cut = (draw & 0x40) != 0;
    return options;
  }

  uint32_t maxTtl() const {
    const bool failure = response_.kind == resolver::ResponseKind::kFailure;
    const auto failure_seconds = std::chrono::duration_cast<std::chrono::seconds>(options_.failure_ttl).count();
    return failure ? static_cast<uint32_t>(failure_seconds) : options_.success.max_ttl_seconds;
  }

  void checkFound(const ReadMessage& found, resolver::Cache::State state, uint32_t age_seconds) const {
    FUZZ_CHECK(found.flags == direct_.flags && found.questions == direct_.questions);
    FUZZ_CHECK(saysTheSame(found.answers, direct_.answers) && saysTheSame(found.authorities, direct_.authorities) &&
               saysTheSame(found.additionals, direct_.additionals));
    if (state != resolver::Cache::State::kFresh) return;
    FUZZ_CHECK(age_seconds < std::max(maxTtl(), 1u));
  }

  void checkFast(BootClock::time_point now, resolver::Cache::State state, uint32_t age_seconds) {
    const Asked asked(query_, message_, dns::kMaxMessageSize);
    const auto written = cache_.writeFresh(asked.query, dns::kMaxMessageSize, now, {});
    if (written.size == 0) return;
    FUZZ_CHECK(state == resolver::Cache::State::kFresh);
    const ReadMessage answer = checkWritten(asked.query, written.size, dns::kMaxMessageSize);
    checkFound(answer, state, age_seconds);
    if (options_.keep_ttl || response_.kind == resolver::ResponseKind::kFailure) return;
    for (const ReadRecord& record : answer.answers) FUZZ_CHECK(record.ttl <= maxTtl() - age_seconds);
  }

  const resolver::StoredResponse& response_;
  const dns::Query& query_;
  const std::string& message_;
  const resolver::Cache::Options options_;
  resolver::Cache cache_;
  ReadMessage direct_;
};

bool isPrivate(const ReadRecord& record) {
  const auto byte = [&record](size_t i) { return static_cast<uint8_t>(record.rdata[i]); };
  if (record.type == dns::code(dns::RrType::kA) && record.rdata.size() == 4) {
    return byte(0) == 10 || byte(0) == 127 || (byte(0) == 192 && byte(1) == 168) || (byte(0) == 169 && byte(1) == 254);
  }
  if (record.type == dns::code(dns::RrType::kAaaa) && record.rdata.size() == 16) {
    return (byte(0) & 0xfe) == 0xfc || (byte(0) == 0xfe && (byte(1) & 0xc0) == 0x80);
  }
  return false;
}

void checkPrivate(const std::shared_ptr<const resolver::StoredResponse>& response, const dns::Query& query,
                  const std::string& message) {
  static const auto rules = std::make_shared<const directive::Acl>(
      directive::makePrivateRules({.zones = {dns::Name()}, .allowed = {}, .networks = {}}));
  resolver::RebindingFilter filter(rules, nullptr, {});
  const auto filtered = filter.apply(query, response);
  const Asked asked(query, message, dns::kMaxMessageSize);
  const ReadMessage answer =
      checkWritten(asked.query, dns::writePackedResponse(*filtered->packed, asked.query, dns::kMaxMessageSize, {}),
                   dns::kMaxMessageSize);
  FUZZ_CHECK(std::ranges::none_of(answer.answers, isPrivate) && std::ranges::none_of(answer.additionals, isPrivate));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > dns::kMaxMessageSize || size < 2) return 0;
  const uint64_t draw = hashBytes(data, size, 7);
  std::string message = queryFor({data, size}, draw);
  const size_t query_size = message.size();
  message.resize(query_size + dns::kReadSlack);
  dns::Query query;
  const auto outcome = dns::parseQuery(reinterpret_cast<uint8_t*>(message.data()), query_size, 7, query);
  if (outcome != dns::ParseOutcome::kQuery) return 0;
  const auto stored = std::make_shared<resolver::StoredResponse>();
  resolver::StoredResponse& response = *stored;
  if (readUpstreamResponse({data, size}, dns::load16(data), query, response) != resolver::UpstreamVerdict::kAccepted) {
    return 0;
  }
  static const std::array kPreferred{*IpNetwork::parse("192.0.2.0/25"), *IpNetwork::parse("2001:db8::/33")};
  const dns::WriteOptions options{.age_seconds = static_cast<uint32_t>(draw >> 8 & 0xff),
                                  .ede = (draw & 4) != 0 ? std::optional(dns::EdeCode::kStaleAnswer) : std::nullopt,
                                  .minimal = (draw & 8) != 0,
                                  .addresses = {.rotation = static_cast<uint32_t>(draw >> 4 & 7),
                                                .preferred = {kPreferred.data(), draw >> 7 & 1 ? kPreferred.size() : 0}}};
  const std::string nsid(1 + (draw >> 16 & 0x1ff), 'n');
  const directive::Identity identity({.nsid = nsid});
  for (const size_t limit : {size_t{512}, 512 + (draw >> 32 & 0x1ff), size_t{1232}, size_t{4096}, size_t{65535}}) {
    writeAtOnce(response, query, message, limit, &nsid, options);
    writeLate(response, query, limit, identity, options);
  }
  message.resize(query_size);
  CacheCheck cache(response, query, message, draw);
  for (const uint32_t age : {0u, 1u, static_cast<uint32_t>(draw >> 40 & 0xfff), 5000u}) cache.at(age);
  cache.otherQuestions();
  checkPrivate(stored, query, message);
  return 0;
}
