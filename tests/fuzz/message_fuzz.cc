// Any message: its records, names and options are read like a plain reader of RFC 1035 reads them, or not at all.
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "dns/message_reader.h"
#include "dns/name.h"
#include "fuzz/check.h"
#include "fuzz/plain_name.h"

namespace {

using namespace idetcd;

constexpr size_t kManySteps = 100'000'000;

// Expanded names agree; what can be expanded can be skipped, to the same place.
void checkName(std::span<const uint8_t> message, size_t pos) {
  const fuzz::PlainName plain = fuzz::readPlainly(message, pos);
  dns::ExpandedName name;
  dns::NameWork work(kManySteps);
  const size_t end = dns::expandName(message, pos, name, work);
  const size_t skipped = dns::skipName(message.data(), message.size(), pos);
  FUZZ_CHECK((end != 0) == (plain.fault == fuzz::NameFault::kNone));
  FUZZ_CHECK(skipped <= message.size());
  if (end == 0) return;
  FUZZ_CHECK(end == plain.end && skipped == end);
  FUZZ_CHECK(name.size == plain.wire.size() && std::memcmp(name.wire.data(), plain.wire.data(), name.size) == 0);
  FUZZ_CHECK(dns::uncompressedNameSize(name.span()) == name.size);
  FUZZ_CHECK(dns::sameName(name.span(), name.span()));
}

void checkOptions(std::span<const uint8_t> rdata) {
  dns::OptionReader reader(rdata);
  dns::OptionView option;
  size_t pos = 0;
  dns::ReadStep step;
  while ((step = reader.next(option)) == dns::ReadStep::kRead) {
    FUZZ_CHECK(rdata.size() - pos >= 4 + option.data.size());
    FUZZ_CHECK(option.code == dns::load16(&rdata[pos]) && option.data.size() == dns::load16(&rdata[pos + 2]));
    FUZZ_CHECK(option.data.empty() || option.data.data() == &rdata[pos + 4]);
    pos += 4 + option.data.size();
  }
  FUZZ_CHECK((step == dns::ReadStep::kEnd) == (pos == rdata.size()));
}

void checkRecords(std::span<const uint8_t> message, size_t start) {
  const dns::HeaderView header(message.data());
  const size_t counts[] = {header.answers(), header.authorities(), header.additionals()};
  size_t seen[3] = {};
  dns::MessageReader reader(message, start);
  dns::RecordView record;
  size_t pos = start;
  bool last = counts[0] + counts[1] + counts[2] == 0;
  dns::ReadStep step;
  while ((step = reader.next(record)) == dns::ReadStep::kRead) {
    FUZZ_CHECK(!last);
    last = record.is_last;
    FUZZ_CHECK(record.owner == pos);
    const size_t fixed = dns::skipName(message.data(), message.size(), pos);
    FUZZ_CHECK(fixed > pos && fixed + 10 == record.rdata && record.rdata + record.rdata_size <= message.size());
    FUZZ_CHECK(record.type == dns::load16(&message[fixed]) && record.klass == dns::load16(&message[fixed + 2]));
    FUZZ_CHECK(record.ttl == dns::load32(&message[fixed + 4]) && record.rdata_size == dns::load16(&message[fixed + 8]));
    const auto section = static_cast<size_t>(record.section);
    for (size_t before = 0; before < section; ++before) FUZZ_CHECK(seen[before] == counts[before]);
    ++seen[section];
    pos = record.rdata + record.rdata_size;
    FUZZ_CHECK(reader.position() == pos);
    checkName(message, record.owner);
    checkOptions(message.subspan(record.rdata, record.rdata_size));
  }
  const bool all = seen[0] == counts[0] && seen[1] == counts[1] && seen[2] == counts[2];
  FUZZ_CHECK(last == all && (step == dns::ReadStep::kEnd) == all);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < dns::kHeaderSize || size > dns::kMaxMessageSize) return 0;
  const std::span<const uint8_t> message(data, size);
  for (size_t pos = dns::kHeaderSize; pos < std::min<size_t>(size, 600); ++pos) checkName(message, pos);
  checkOptions(message.subspan(dns::kHeaderSize));
  checkRecords(message, dns::kHeaderSize);
  const size_t name_end = dns::skipName(data, size, dns::kHeaderSize);
  if (name_end != 0 && size - name_end >= 4) checkRecords(message, name_end + 4);
  return 0;
}
