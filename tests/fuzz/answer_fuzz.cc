// From a client's bytes to the answer, through the router and the chains of any Corefile, read and made by the
// directives themselves. The input is a Corefile, a zero byte, a byte of choices, and a datagram:
//
//   bits 0-1  who asks      bit 2  over TCP
//   bit 3     once more with the server cookie that the first answer brought
//   bits 4-5  what is known of etcd: records::Freshness
//   bits 6-7  how many times more, for `rrl`
//
// For `idetcd`, which would ask etcd, there is `idetcd PATTERN [FALLTHROUGH-ZONES…]`, with a RecordStore that holds the
// names. `forward` is missing: its answers come from elsewhere (the targets `upstream` and `stream`). A block that names
// a file is read and no more.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/corefile.h"
#include "config/directive_cursor.h"
#include "dns/message_reader.h"
#include "fuzz/check.h"
#include "directive/cookies/secrets.h"
#include "directive/hosts/hosts.h"
#include "directive/idetcd/cluster_reverse.h"
#include "directive/order.h"
#include "directive/rrl/response_limiter.h"
#include "directive/values/values.h"
#include "resolve/router.h"
#include "slots/name_pattern.h"
#include "unit/dns/message.h"

namespace {

using namespace idetcd;
using dns::test::MessageReader;
using dns::test::ReadMessage;
using dns::test::ReadRecord;

constexpr size_t kMaxCorefile = 2048;  // a long one takes long and shows nothing new
constexpr size_t kMaxBlocks = 4;

struct Choices {
  explicit Choices(uint8_t byte)
      : source(byte & 3),
        over_tcp((byte & 4) != 0),
        with_cookie((byte & 8) != 0),
        freshness(static_cast<records::Freshness>(byte >> 4 & 3)),
        repetitions(byte >> 6) {}
  int source;
  bool over_tcp;
  bool with_cookie;
  records::Freshness freshness;
  int repetitions;
};

// Nothing outside of the text.
class NoEnvironment final : public config::Environment {
 public:
  std::string variable(std::string_view) const override { return ""; }
  std::string absolutePath(const std::string& path) const override { return path; }
  std::vector<std::string> glob(const std::string&) const override { return {}; }
  Result<std::string> readFile(const std::string&, size_t) const override { return fail("no files"); }
};

class ReverseHandler final : public resolve::Handler {
 public:
  explicit ReverseHandler(const records::RecordStore& store) : reverse_(store, [](const auto&) { return own(); }) {}
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override {
    return reverse_.answer(query, request.response_limit, flags, request.now);
  }

 private:
  static directive::OwnAddress own() { return {}; }
  const directive::ClusterReverse reverse_;
};

// The names of a cluster as etcd would have brought them.
class ClusterDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    const auto words = cursor.args(1);
    if (!words) return tl::unexpected(words.error());
    auto pattern = slots::NamePattern::parse(words->front(), kNames);
    if (!pattern) return tl::unexpected(pattern.error());
    pattern_ = std::move(*pattern);
    auto zones = config::parseZones(cursor, {words->begin() + 1, words->end()});
    if (!zones) return tl::unexpected(zones.error());
    fallthrough_ = std::move(*zones);
    return cursor.finish();
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    store_ = std::make_shared<records::RecordStore>(
        context.process.epochs, records::RecordStore::Options{.zone = pattern_.zone(),
                                                              .ttl_seconds = 5,
                                                              .addresses = {IpAddress::v4({192, 0, 2, 9})},
                                                              .hash_seed = context.process.hash_seed});
    for (int64_t id = 1; id <= kNames; ++id) {
      const auto name = dns::Name::parse(pattern_.render(id));
      FUZZ_CHECK(name.has_value());
      const auto last = static_cast<uint8_t>(id);
      records::HostAddresses addresses{.ipv4 = IpAddress::v4({192, 0, 2, last}), .ipv6 = {}};
      if (id > 1) addresses.ipv6 = IpAddress::parse("2001:db8::" + std::to_string(id));
      store_->put(*name, addresses, id);
    }
    store_->setFreshness(freshness);
    chain.addCluster(std::make_shared<const resolve::ClusterZone>(
        *store_, resolve::ClusterZone::Options{.fallthrough = fallthrough_, .sources = {}}));
    chain.add(std::make_unique<ReverseHandler>(*store_));
    return {};
  }

  records::Freshness freshness = records::Freshness::kFresh;

 private:
  static constexpr int64_t kNames = 3;
  slots::NamePattern pattern_;
  std::vector<dns::Name> fallthrough_;
  std::shared_ptr<records::RecordStore> store_;
};

const resolve::DirectiveType kClusterDirective{
    .name = "idetcd", .syntax = "", .make = resolve::makeDirective<ClusterDirective>, .once = true};

// In the order of directive/order.cc.
constexpr const resolve::DirectiveType* kDirectives[]{
    &directive::kNsidDirective,    &directive::kCookiesDirective, &directive::kBindDirective,   &directive::kBufsizeDirective,
    &directive::kWorkersDirective, &directive::kTcpDirective,     &directive::kErrorsDirective, &directive::kLogDirective,
    &directive::kAclDirective,     &directive::kRrlDirective,     &directive::kAnyDirective,    &directive::kLoadbalanceDirective,
    &directive::kDns64Directive,   &kClusterDirective,         &directive::kHostsDirective,  &directive::kCacheDirective,
    &directive::kMinimalDirective, &directive::kPrivateDirective, &directive::kLoopDirective,   &directive::kWhoamiDirective,
};

Result<resolve::Block> readBlock(const config::ServerBlock& text) {
  resolve::Block block;
  block.keys = text.keys;
  for (const resolve::DirectiveType* type : kDirectives) {
    std::unique_ptr<resolve::Directive> directive;
    for (const config::Directive& lines : text.directives) {
      if (lines.name != type->name) continue;
      if (directive && type->once) return fail("once");
      if (!directive) directive = type->make();
      config::DirectiveCursor cursor(lines);
      if (auto read = directive->read(cursor, block); !read) return tl::unexpected(read.error());
    }
    if (directive) block.directives.emplace_back(type, std::move(directive));
  }
  return block;
}

// Whether its answers are made of the text alone, and in bounded memory.
bool isSelfContained(const resolve::Block& block) {
  if (const auto* hosts = block.settings<directive::HostsOptions>()) {
    if (hosts->file != "/dev/null" || hosts->reload.count() != 0) return false;
  }
  if (const auto* rrl = block.settings<directive::RrlSettings>(); rrl != nullptr && rrl->table_size > 1000)
    return false;
  const auto* cookies = block.settings<directive::CookieSettings>();
  return cookies == nullptr || cookies->secret_file.empty();
}

// One loop with the chains of a Corefile.
class Node {
 public:
  Node(std::string_view corefile, records::Freshness freshness) {
    std::vector<std::string> known;
    for (const resolve::DirectiveType* type : kDirectives) known.emplace_back(type->name);
    const config::ParseOptions options{
        .known_directives = std::move(known), .default_port = 53, .listen_directive = "bind"};
    const auto parsed = config::parseCorefile("Corefile", corefile, options, NoEnvironment());
    if (!parsed || parsed->blocks.empty() || parsed->blocks.size() > kMaxBlocks) return;
    for (const config::ServerBlock& text : parsed->blocks) {
      auto block = readBlock(text);
      if (!block || !isSelfContained(*block)) return;
      blocks_.push_back(std::move(*block));
    }
    std::vector<resolve::Router::Zone> zones;
    for (const resolve::Block& block : blocks_) {
      const auto chain = makeChain(block, freshness);
      if (!chain) return;
      for (const config::ServerKey& key : block.keys) {
        const auto same = [&key](const auto& zone) { return zone.name == key.zone; };
        if (std::none_of(zones.begin(), zones.end(), same)) zones.push_back({.name = key.zone, .chain = chain});
      }
    }
    router_.emplace(std::move(zones), process().hash_seed);
  }

  // Null: the Corefile is refused, or not self-contained.
  const resolve::Router* router() const { return router_ ? &*router_ : nullptr; }

  static records::EpochDomain::Reader& reader() {
    static records::EpochDomain::Reader reader(process().epochs);
    return reader;
  }

 private:
  static resolve::Process& process() {
    static net::EventLoop loop;
    static records::EpochDomain epochs;
    static resolve::Process process({}, loop, epochs);
    return process;
  }

  static std::shared_ptr<const resolve::Chain> makeChain(const resolve::Block& block, records::Freshness freshness) {
    auto chain = std::make_shared<resolve::Chain>();
    chain->parts.cookies = process().cookies;
    const resolve::LoopContext context{
        .process = process(), .block = block, .worker = 0, .loop = process().loop, .listening = {}};
    if (auto* cluster = block.find<ClusterDirective>()) cluster->freshness = freshness;
    for (const auto& [type, directive] : block.directives) {
      if (!directive->prepare(process(), block)) return nullptr;
      if (!directive->addTo(*chain, context)) return nullptr;
    }
    return chain;
  }

  std::vector<resolve::Block> blocks_;
  std::optional<resolve::Router> router_;
};

SocketAddress sourceOf(int choice) {
  static const IpAddress kSources[] = {IpAddress::v4({192, 0, 2, 7}), IpAddress::v4({10, 0, 0, 1}),
                                       *IpAddress::parse("2001:db8::7"), *IpAddress::parse("::1")};
  return {.ip = kSources[choice], .port = 4711};
}

// The data of the option in the response's OPT; nothing if there is none.
std::optional<std::string> optionOf(const ReadMessage& response, dns::EdnsOption code) {
  const ReadRecord* opt = response.opt();
  if (opt == nullptr) return std::nullopt;
  dns::OptionReader reader(dns::test::bytes(opt->rdata));
  dns::OptionView option;
  dns::ReadStep step;
  std::optional<std::string> found;
  while ((step = reader.next(option)) == dns::ReadStep::kRead) {
    if (option.code != dns::code(code)) continue;
    FUZZ_CHECK(!found);
    found = dns::test::text(option.data);
  }
  FUZZ_CHECK(step == dns::ReadStep::kEnd);
  return found;
}

void checkRecords(const std::vector<ReadRecord>& records) {
  for (const ReadRecord& record : records) {
    if (record.type != dns::code(dns::RrType::kOpt)) FUZZ_CHECK(record.ttl <= 0x7fffffff);  // RFC 2181 §8
  }
}

void checkOptions(const dns::Query& query, const ReadMessage& response) {
  if (const auto nsid = optionOf(response, dns::EdnsOption::kNsid)) FUZZ_CHECK(query.asksFor(dns::kAsksNsid));
  if (const auto cookie = optionOf(response, dns::EdnsOption::kCookie)) {
    FUZZ_CHECK(query.asksFor(dns::kAsksCookie) && cookie->size() == 24);
    FUZZ_CHECK(std::memcmp(cookie->data(), query.cookie.client.data(), dns::Cookie::kClientSize) == 0);
  }
}

// An answer to this question, whole, and no larger than `limit`. `query` as it was parsed.
ReadMessage checkResponse(const std::string& message, const dns::Query& query, std::span<const uint8_t> bytes,
                          size_t limit) {
  FUZZ_CHECK(bytes.size() >= dns::kHeaderSize && bytes.size() <= limit);
  const auto response = MessageReader::read(bytes);
  FUZZ_CHECK(response.has_value());
  FUZZ_CHECK(std::memcmp(message.data(), bytes.data(), 2) == 0);
  FUZZ_CHECK(response->has(dns::kFlagQr));
  constexpr unsigned kEchoed = dns::kOpcodeMask | dns::kFlagRd | dns::kFlagCd;
  FUZZ_CHECK((response->flags & kEchoed) == (query.flags & kEchoed));
  FUZZ_CHECK((response->flags & 0x0060) == 0);  // neither Z nor AD: nothing here is validated
  if (query.question_end > dns::kHeaderSize) {
    FUZZ_CHECK(response->questions.size() == 1);
    FUZZ_CHECK(message.compare(dns::kHeaderSize, query.question_end - dns::kHeaderSize, response->questions[0]) == 0);
  } else {
    FUZZ_CHECK(response->questions.empty());
  }
  FUZZ_CHECK((response->opt() != nullptr) == query.has_edns);
  if (response->has(dns::kFlagTc)) FUZZ_CHECK(response->answers.empty());
  checkRecords(response->answers);
  checkRecords(response->authorities);
  checkRecords(response->additionals);
  checkOptions(query, *response);
  return *response;
}

struct Answer {
  dns::Query query;
  ReadMessage response;
};

// Nothing: no answer.
std::optional<Answer> ask(const resolve::Router& router, const std::string& message, const Choices& choices) {
  const size_t room = choices.over_tcp ? dns::kMaxMessageSize : size_t{4096};  // what the listeners have
  const auto buffer = std::make_unique<uint8_t[]>(std::max(room, message.size()) + dns::kReadSlack);
  std::memcpy(buffer.get(), message.data(), message.size());
  const SocketAddress address = sourceOf(choices.source);
  sockaddr_storage source;
  address.toSockaddr(&source);
  const records::ReadSection section(Node::reader());
  resolve::Job job;
  router.begin(job, buffer.get(), message.size());
  router.prefetch(job);
  const dns::Query query = job.query;
  const size_t udp_limit = job.outcome == dns::ParseOutcome::kDrop ? 0 : resolve::Router::udpResponseLimit(job);
  FUZZ_CHECK(udp_limit <= room && udp_limit <= std::max(query.udp_payload, uint16_t{512}));
  const size_t limit = choices.over_tcp ? dns::kMaxMessageSize : udp_limit;
  resolve::Request request{.source = reinterpret_cast<const sockaddr*>(&source),
                           .local = &address,
                           .transport = choices.over_tcp ? resolve::Transport::kTcp : resolve::Transport::kUdp,
                           .response_limit = limit,
                           .now = BootClock::now()};
  const resolve::QueryOutcome outcome = router.answer(job, request);
  if (outcome.kind == resolve::QueryOutcome::Kind::kDrop) return std::nullopt;
  FUZZ_CHECK(outcome.kind == resolve::QueryOutcome::Kind::kAnswer);
  FUZZ_CHECK(job.outcome != dns::ParseOutcome::kDrop);
  dns::Query asked = query;
  asked.cookie.client = job.query.cookie.client;
  return Answer{asked, checkResponse(message, asked, {buffer.get(), outcome.size}, limit)};
}

// The datagram with `cookie`, of 24 bytes, in place of its own one; "" if it has none of this size.
std::string withCookie(std::string message, const dns::Query& query, const std::string& cookie) {
  const std::string head = dns::test::option(dns::code(dns::EdnsOption::kCookie), cookie).substr(0, 12);
  const size_t at = message.find(head, query.question_end);
  if (at == std::string::npos || message.size() - at < 4 + cookie.size()) return "";
  message.replace(at + 4, cookie.size(), cookie);
  // What was found may have been something else.
  std::string copy = message + std::string(dns::kReadSlack, '\0');
  dns::Query again;
  dns::parseQuery(reinterpret_cast<uint8_t*>(copy.data()), message.size(), 0, again);
  const bool shows = again.asksFor(dns::kAsksCookie) && again.cookie.judgement == dns::Cookie::Judgement::kUnjudged &&
                     cookie.ends_with(dns::test::text(again.cookie.server));
  return shows ? message : "";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  if (end > kMaxCorefile || size - end < 2) return 0;
  const Choices choices(data[end + 1]);
  const std::string message(input.substr(end + 2));
  if (message.size() > (choices.over_tcp ? dns::kMaxMessageSize : 4096)) return 0;
  const Node node(input.substr(0, end), choices.freshness);
  if (node.router() == nullptr) return 0;

  const auto first = ask(*node.router(), message, choices);
  for (int i = 0; i < choices.repetitions; ++i) ask(*node.router(), message, choices);
  if (!first || !choices.with_cookie) return 0;
  const auto cookie = optionOf(first->response, dns::EdnsOption::kCookie);
  const std::string again = cookie ? withCookie(message, first->query, *cookie) : "";
  if (again.empty()) return 0;
  // Who shows the cookie that it was given is never told that it is a bad one.
  const auto second = ask(*node.router(), again, choices);
  if (second && second->response.rcode() == (dns::code(dns::Rcode::kBadCookie) & 0xf))
    FUZZ_CHECK(second->response.opt()->ttl >> 24 != dns::code(dns::Rcode::kBadCookie) >> 4);
  return 0;
}
