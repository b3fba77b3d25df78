// Writing: records of any message are written anew behind a question of their own, packed, and written for a client.
// What comes out says the same as what went in, whatever fits.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "dns/message_reader.h"
#include "dns/packed_response.h"
#include "dns/query.h"
#include "dns/record_writer.h"
#include "fuzz/check.h"
#include "unit/dns/message.h"

namespace {

using namespace idetcd;

constexpr size_t kManySteps = 100'000'000;
constexpr std::string_view kName = "\3www\7example\3org";  // with its terminating zero

// The query for it, by a client with EDNS, and room for the largest answer.
class Client {
 public:
  Client() : room_(dns::kMaxMessageSize + dns::kReadSlack) {
    const std::string message = dns::test::header(1, 0x0100, {.additionals = 1}) +
                                dns::test::question({kName.data(), kName.size() + 1}, 255) +
                                dns::test::opt(4096, 0x8000);
    std::copy(message.begin(), message.end(), room_.begin());
    FUZZ_CHECK(dns::parseQuery(room_.data(), message.size(), 7, query_) == dns::ParseOutcome::kQuery);
  }
  const dns::Query& query() const { return query_; }

 private:
  std::vector<uint8_t> room_;
  dns::Query query_;
};

std::string folded(std::span<const uint8_t> name) {
  std::string text = dns::test::text(name);
  for (char& c : text) c = static_cast<char>(dns::toLower(static_cast<uint8_t>(c)));
  return text;
}

// The RDATA with its names expanded and folded: equal for two records that say the same. "" if it is not whole.
std::string plainRdata(std::span<const uint8_t> message, const dns::RecordView& record) {
  const auto rdata = message.subspan(record.rdata, record.rdata_size);
  const dns::RdataLayout* layout = dns::layoutOf(record.type);
  if (layout == nullptr || rdata.size() < layout->before) return "=" + dns::test::text(rdata);
  std::string plain = "=" + dns::test::text(rdata.first(layout->before));
  size_t pos = record.rdata + layout->before;
  for (int i = 0; i < layout->names; ++i) {
    dns::ExpandedName name;
    pos = dns::expandName(message, pos, name);
    if (pos == 0 || pos > record.rdata + record.rdata_size) return "";
    plain += folded(name.span());
  }
  return plain + dns::test::text(message.subspan(pos, record.rdata + record.rdata_size - pos));
}

struct Written {
  std::string owner;
  uint16_t type;
  uint16_t klass;
  std::string rdata;
  bool operator==(const Written&) const = default;
};

// Of NAPTR the name is written anew, too, which plainRdata() does not look for.
bool isComparable(uint16_t type) {
  return type != dns::code(dns::RrType::kNaptr) && type != dns::code(dns::RrType::kOpt);
}

std::vector<Written> readBack(std::span<const uint8_t> message, size_t start, uint32_t ttl) {
  std::vector<Written> written;
  dns::MessageReader reader(message, start);
  dns::RecordView record;
  dns::ReadStep step;
  while ((step = reader.next(record)) == dns::ReadStep::kRead) {
    if (record.is_last) {
      FUZZ_CHECK(record.type == dns::code(dns::RrType::kOpt) && record.section == dns::Section::kAdditional);
      continue;
    }
    FUZZ_CHECK(record.ttl == ttl);
    dns::ExpandedName owner;
    FUZZ_CHECK(dns::expandName(message, record.owner, owner) != 0);
    std::string rdata = plainRdata(message, record);
    FUZZ_CHECK(!rdata.empty());
    if (isComparable(record.type)) written.push_back({folded(owner.span()), record.type, record.klass, rdata});
  }
  FUZZ_CHECK(step == dns::ReadStep::kEnd && reader.position() == message.size());
  return written;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < dns::kHeaderSize || size > 8192) return 0;
  const std::span<const uint8_t> message(data, size);
  const Client client;
  const dns::Query& query = client.query();
  dns::NameWork work(kManySteps);
  dns::RecordWriter writer(query, size, work);
  dns::ResponseSections sections;
  std::vector<Written> expected;

  const size_t name_end = dns::skipName(data, size, dns::kHeaderSize);
  const bool has_question = name_end != 0 && size - name_end >= 4;
  dns::MessageReader reader(message, has_question ? name_end + 4 : dns::kHeaderSize);
  dns::RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    dns::ExpandedName owner;
    if (record.type == dns::code(dns::RrType::kOpt) || dns::expandName(message, record.owner, owner) == 0) continue;
    const std::string rdata = plainRdata(message, record);
    if (!writer.append(message, record, owner.span(), 300)) return 0;  // as a response with it would be refused
    FUZZ_CHECK(!rdata.empty());
    if (isComparable(record.type)) expected.push_back({folded(owner.span()), record.type, record.klass, rdata});
    ++sections.answers;
  }
  sections.answer_size = sections.proof_end = sections.authority_end = static_cast<uint16_t>(writer.body().size());
  sections.authentic_data = (data[3] & 1) != 0;
  const dns::PackedResponsePtr packed = dns::PackedResponse::make(sections, writer.body(), writer.ttlOffsets());
  FUZZ_CHECK(std::ranges::equal(packed->body(), writer.body()));
  FUZZ_CHECK(std::ranges::equal(packed->ttlOffsets(), writer.ttlOffsets()));

  // A copy in a place of exactly its size; its TTLs are its own.
  const auto place = std::make_unique<uint16_t[]>(packed->blockSize() / 2);
  dns::PackedResponse* copy = packed->copyTo(place.get());
  copy->changeTtls([](uint32_t ttl) { return ttl - 100; });
  const auto at_once = [&](const dns::PackedResponse& response, size_t limit, dns::WriteOptions options) {
    const size_t written = dns::writePackedResponse(response, query, limit, options);
    FUZZ_CHECK(written >= dns::kHeaderSize && written <= limit);
    const std::span<const uint8_t> answer(query.message, written);
    FUZZ_CHECK(dns::matchQuestion(answer, query) == query.question_end);
    const bool ad = (dns::HeaderView(answer.data()).flags() & dns::kFlagAd) != 0;
    FUZZ_CHECK(ad == sections.authentic_data);
    return answer;
  };
  const auto whole = at_once(*copy, dns::kMaxMessageSize, {.age_seconds = 50});
  FUZZ_CHECK(readBack(whole, query.question_end, 150) == expected);
  // Turned round, nothing but the order changes.
  const auto order = [](const Written& a, const Written& b) {
    return std::tie(a.owner, a.type, a.klass, a.rdata) < std::tie(b.owner, b.type, b.klass, b.rdata);
  };
  std::vector<Written> turned =
      readBack(at_once(*packed, dns::kMaxMessageSize, {.addresses = {.rotation = data[2] + uint32_t{1}}}), query.question_end, 300);
  std::sort(turned.begin(), turned.end(), order);
  std::vector<Written> sorted = expected;
  std::sort(sorted.begin(), sorted.end(), order);
  FUZZ_CHECK(turned == sorted);
  // What does not fit is left out at the end, and TC says so.
  const auto small = at_once(*packed, 512, {.ttl_seconds = 7});
  const std::vector<Written> kept = readBack(small, query.question_end, 7);
  FUZZ_CHECK(dns::HeaderView(small.data()).isTruncated() == (kept.size() < expected.size() || whole.size() > 512));
  FUZZ_CHECK(kept.size() <= expected.size() && std::equal(kept.begin(), kept.end(), expected.begin()));
  return 0;
}
