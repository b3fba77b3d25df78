// A response from an upstream: read, and written for clients of every kind, at once or after they have waited.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "dns/name_reader.h"
#include "dns/query.h"
#include "fuzz/check.h"
#include "resolve/identity.h"
#include "resolve/pending_query.h"
#include "resolve/stored_response.h"
#include "unit/dns/message.h"

namespace {

using namespace idetcd;
using dns::test::MessageReader;
using dns::test::ReadMessage;

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
struct NoClient : resolve::ClientKeeper {
  std::unique_ptr<resolve::ReplySink> keepClient() override { return nullptr; }
};

void checkWritten(const dns::Query& query, size_t size, size_t limit) {
  FUZZ_CHECK(size >= dns::kHeaderSize && size <= limit);
  const auto response = MessageReader::read({query.message, size});
  FUZZ_CHECK(response.has_value());
  FUZZ_CHECK((response->opt() != nullptr) == query.has_edns);
}

void writeAtOnce(const resolve::StoredResponse& response, const dns::Query& parsed, const std::string& message,
                 size_t limit, const std::string* nsid, const resolve::WriteOptions& options) {
  // Exactly as much room as may be used.
  const auto buffer = std::make_unique_for_overwrite<uint8_t[]>(std::max(limit, message.size()));
  std::memcpy(buffer.get(), message.data(), message.size());
  dns::Query query = parsed;
  query.message = buffer.get();
  query.nsid = query.wants_nsid ? nsid : nullptr;
  checkWritten(query, writeStoredResponse(response.sections, query, limit, options), limit);
}

void writeLate(const resolve::StoredResponse& response, const dns::Query& query, size_t limit,
               const resolve::Identity& identity, const resolve::WriteOptions& options) {
  NoClient client;
  const SocketAddress address{.ip = IpAddress::v4({127, 0, 0, 1}), .port = 53};
  sockaddr_storage source;
  address.toSockaddr(&source);
  resolve::PendingQuery pending(query, {.source = reinterpret_cast<const sockaddr*>(&source),
                                        .local = &address,
                                        .transport = resolve::Transport::kUdp,
                                        .response_limit = limit,
                                        .now = {},
                                        .client = &client});
  std::vector<uint8_t> room;
  pending.makeRoom(room, &identity);
  FUZZ_CHECK(room.size() == limit);
  checkWritten(pending.query(), writeStoredResponse(response.sections, pending.query(), limit, options), limit);
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
  resolve::StoredResponse response;
  if (readUpstreamResponse({data, size}, dns::load16(data), query, response) != resolve::UpstreamVerdict::kAccepted) {
    return 0;
  }
  const resolve::WriteOptions options{.age_seconds = static_cast<uint32_t>(draw >> 8 & 0xff),
                                      .ede = (draw & 4) != 0 ? std::optional(dns::EdeCode::kStaleAnswer) : std::nullopt,
                                      .minimal = (draw & 8) != 0,
                                      .rotation = static_cast<uint32_t>(draw >> 4 & 7)};
  const std::string nsid(1 + (draw >> 16 & 0x1ff), 'n');
  const resolve::Identity identity({.nsid = nsid});
  for (const size_t limit : {size_t{512}, 512 + (draw >> 32 & 0x1ff), size_t{1232}, size_t{4096}, size_t{65535}}) {
    writeAtOnce(response, query, message, limit, &nsid, options);
    writeLate(response, query, limit, identity, options);
  }
  return 0;
}
