// The OPT record of a query and of a response (RFC 6891), whose fields and options are the input: payload size, TTL,
// then the RDATA. A plain reader of the options says what is to come of it.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dns/query.h"
#include "dns/response.h"
#include "fuzz/check.h"
#include "resolver/upstream_cookie.h"
#include "unit/dns/message.h"

namespace {

using namespace idetcd;
using dns::test::MessageReader;
using dns::test::ReadMessage;

struct Option {
  unsigned code;
  std::string data;
};

// Nothing: one runs over the end.
std::optional<std::vector<Option>> readPlainly(std::string_view rdata) {
  const auto number = [&rdata](size_t at) {
    return static_cast<unsigned>(static_cast<uint8_t>(rdata[at]) << 8 | static_cast<uint8_t>(rdata[at + 1]));
  };
  std::vector<Option> options;
  while (!rdata.empty()) {
    if (rdata.size() < 4 || rdata.size() - 4 < number(2)) return std::nullopt;
    options.push_back({number(0), std::string(rdata.substr(4, number(2)))});
    rdata.remove_prefix(4 + number(2));
  }
  return options;
}

const Option* find(const std::vector<Option>& options, dns::EdnsOption code) {
  const auto found =
      std::find_if(options.begin(), options.end(), [code](const Option& o) { return o.code == dns::code(code); });
  return found != options.end() ? &*found : nullptr;
}

// RFC 7873 §4: a client cookie, and a server's of 8 to 32 bytes.
bool isCookie(const Option& option) {
  return option.data.size() == 8 || (option.data.size() >= 16 && option.data.size() <= 40);
}

struct Expected {
  dns::Rcode error = dns::Rcode::kNoError;
  bool nsid = false;
  bool keepalive = false;
  const Option* cookie = nullptr;
};
Expected expectedOf(uint32_t ttl, const std::optional<std::vector<Option>>& options) {
  if ((ttl & 0xff0000) != 0) return {.error = dns::Rcode::kBadVers};
  if (!options) return {.error = dns::Rcode::kFormErr};
  const Option* cookie = find(*options, dns::EdnsOption::kCookie);
  if (cookie != nullptr && !isCookie(*cookie)) return {.error = dns::Rcode::kFormErr};
  const bool keepalive = std::ranges::any_of(*options, [](const Option& option) {
    return option.code == dns::code(dns::EdnsOption::kTcpKeepalive) && option.data.empty();
  });
  return {.nsid = find(*options, dns::EdnsOption::kNsid) != nullptr, .keepalive = keepalive, .cookie = cookie};
}

void checkResponse(const ReadMessage& response, const dns::Query& query, const Expected& expected, bool has_room) {
  FUZZ_CHECK(response.opt() != nullptr);
  FUZZ_CHECK(((response.opt()->ttl & 0x8000) != 0) == query.dnssec_ok && (response.opt()->ttl & 0xff7fff) == 0);
  const auto options = readPlainly(response.opt()->rdata);
  FUZZ_CHECK(options.has_value());
  for (const Option& option : *options)
    FUZZ_CHECK(&option == find(*options, static_cast<dns::EdnsOption>(option.code)));
  const Option* nsid = find(*options, dns::EdnsOption::kNsid);
  const Option* cookie = find(*options, dns::EdnsOption::kCookie);
  FUZZ_CHECK(expected.nsid || nsid == nullptr);
  FUZZ_CHECK((cookie != nullptr) == (expected.cookie != nullptr));
  if (cookie != nullptr)
    FUZZ_CHECK(cookie->data.size() == 24 && expected.cookie->data.starts_with(cookie->data.substr(0, 8)));
  if (has_room) FUZZ_CHECK(expected.nsid == (nsid != nullptr));
}

// `seed`: what else the response carries.
void answer(const std::string& message, dns::Query query, const Expected& expected, size_t limit, uint8_t seed) {
  const auto buffer = std::make_unique_for_overwrite<uint8_t[]>(std::max(limit, message.size()));
  std::memcpy(buffer.get(), message.data(), message.size());
  query.message = buffer.get();
  const std::string nsid(seed, 'n');
  if (query.asksFor(dns::kAsksNsid)) query.nsid = &nsid;
  if (query.asksFor(dns::kAsksCookie)) query.cookie.in_response = true;
  dns::ResponseBuilder builder(query, limit);
  if ((seed & 1) != 0) builder.setEde(dns::EdeCode::kStaleAnswer);
  const size_t size = builder.finish(dns::Rcode::kNoError, 0);
  FUZZ_CHECK(size <= limit);
  const auto response = MessageReader::read({buffer.get(), size});
  FUZZ_CHECK(response.has_value());
  checkResponse(*response, query, expected, limit >= 1232);
}

void checkQuery(uint16_t payload, uint32_t ttl, const std::string& rdata) {
  const std::string message = dns::test::header(1, 0x0100, {.additionals = 1}) +
                              dns::test::question(dns::test::wireName("www.example.org."), 1) +
                              dns::test::opt(payload, ttl, rdata);
  const auto options = readPlainly(rdata);
  const Expected expected = expectedOf(ttl, options);
  const auto buffer = std::make_unique_for_overwrite<uint8_t[]>(message.size() + dns::kReadSlack);
  std::memcpy(buffer.get(), message.data(), message.size());
  dns::Query query;
  const auto outcome = dns::parseQuery(buffer.get(), message.size(), 7, query);
  FUZZ_CHECK(query.has_edns && query.udp_payload == std::max<unsigned>(payload, 512));
  FUZZ_CHECK(query.dnssec_ok == ((ttl & 0x8000) != 0));
  FUZZ_CHECK(query.error == expected.error);
  FUZZ_CHECK(outcome ==
             (expected.error == dns::Rcode::kNoError ? dns::ParseOutcome::kQuery : dns::ParseOutcome::kError));
  FUZZ_CHECK(query.asksFor(dns::kAsksNsid) == expected.nsid);
  FUZZ_CHECK(query.asksFor(dns::kAsksCookie) == (expected.cookie != nullptr));
  FUZZ_CHECK(query.asksFor(dns::kAsksKeepalive) == expected.keepalive);
  if (outcome != dns::ParseOutcome::kQuery) return;
  const auto seed = static_cast<uint8_t>(payload);
  for (const size_t limit : {size_t{512}, size_t{1232}, size_t{4096}}) answer(message, query, expected, limit, seed);
}

void checkUpstream(uint32_t ttl, const std::string& rdata) {
  const unsigned rcode = ttl >> 8 & 0xf;
  const std::string message = dns::test::header(1, 0x8100 | rcode, {.additionals = 1}) +
                              dns::test::question(dns::test::wireName("www.example.org."), 1) +
                              dns::test::opt(1232, ttl, rdata);
  // A block of its own, so that AddressSanitizer guards its end.
  const std::vector<uint8_t> bytes(message.begin(), message.end());
  const resolver::AnswerOptions read = resolver::optionsOf(bytes);
  FUZZ_CHECK(dns::code(read.rcode) == (ttl >> 24 << 4 | rcode));
  const auto options = readPlainly(rdata);
  if (!options) return;  // of what cannot be read to its end, anything may be taken
  const Option* cookie = find(*options, dns::EdnsOption::kCookie);
  FUZZ_CHECK(read.cookie.has_value() == (cookie != nullptr));
  if (cookie != nullptr) FUZZ_CHECK(dns::test::text(*read.cookie) == cookie->data);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 6 || size > 8192) return 0;
  const std::string rdata(reinterpret_cast<const char*>(data) + 6, size - 6);
  checkQuery(dns::load16(data), dns::load32(data + 2), rdata);
  checkUpstream(dns::load32(data + 2), rdata);
  return 0;
}
