// Any message beside libldns: what one of the two accepts and the other refuses is explained by one of the reasons
// below, and what both accept says the same. The report at the end counts them.
//
// Both are led through the message in step, name by name and record by record, so that a difference has a place.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dns/message_reader.h"
#include "dns/record_writer.h"
#include "fuzz/check.h"
#include "fuzz/plain_name.h"
#include "unit/dns/message.h"

// Behind all others, in which its macros `true` and `false` would be wrong.
#include <ldns/ldns.h>

namespace {

using namespace idetcd;
using fuzz::NameFault;
using fuzz::PlainName;

enum Reason : uint8_t {
  kBothAccept,
  kBothRefuse,
  // We refuse, ldns accepts.
  kPointerIntoHeader,
  kPointerNotBackwards,
  kTooManyPointers,
  kRdataSize,
  kNameOverRdata,
  // We accept, ldns refuses.
  kOpaqueRdata,
  // Both accept, and go on at different places.
  kOtherEnd,
  kReasons
};

constexpr std::array<std::string_view, kReasons> kTexts{
    "both accept",
    "both refuse",
    "we refuse a pointer into the header, where no name can be (RFC 1035 4.1.4)",
    "we refuse a pointer that does not lead to a prior occurrence (RFC 1035 4.1.4): it may never end",
    "we refuse more pointers in a name than it can have labels (RFC 1035 2.3.4)",
    "we refuse RDATA with fields missing or left over (RFC 1035 3.3), since its names are to be written anew",
    "we refuse a name that runs over the end of its RDATA (RFC 1035 3.2.1)",
    "we accept any RDATA of a type without names: it is carried as it is (RFC 3597 3), and is the client's to read",
    "the next record is behind RDLENGTH bytes (RFC 1035 3.2.1); ldns takes it to be behind the fields that it has read",
};

std::array<uint64_t, kReasons> counts;

void report() {
  for (size_t i = 0; i < kReasons; ++i) {
    std::printf("report: %10llu %s\n", static_cast<unsigned long long>(counts[i]), kTexts[i].data());
  }
}

constexpr size_t kManySteps = 100'000'000;
constexpr size_t kQuestionTail = 4;  // type and class
constexpr size_t kRecordFixed = 10;  // type, class, TTL, RDLENGTH

struct FreeName {
  void operator()(ldns_rdf* name) const { ldns_rdf_deep_free(name); }
};
struct FreeRecord {
  void operator()(ldns_rr* record) const { ldns_rr_free(record); }
};
struct FreePacket {
  void operator()(ldns_pkt* packet) const { ldns_pkt_free(packet); }
};

// --- what ldns makes of it; a place of 0 means refused ---

struct TheirName {
  std::string wire;
  size_t end = 0;
};
TheirName theirName(std::span<const uint8_t> message, size_t pos) {
  ldns_rdf* read = nullptr;
  const ldns_status status = ldns_wire2dname(&read, message.data(), message.size(), &pos);
  const std::unique_ptr<ldns_rdf, FreeName> name(read);
  if (status != LDNS_STATUS_OK) return {};
  return {{reinterpret_cast<const char*>(ldns_rdf_data(read)), ldns_rdf_size(read)}, pos};
}

struct TheirRecord {
  std::unique_ptr<ldns_rr, FreeRecord> record;
  size_t end = 0;
};
TheirRecord theirRecord(std::span<const uint8_t> message, size_t pos) {
  ldns_rr* read = nullptr;
  const ldns_status status = ldns_wire2rr(&read, message.data(), message.size(), &pos, LDNS_SECTION_ANSWER);
  if (status != LDNS_STATUS_OK) return {};
  return {std::unique_ptr<ldns_rr, FreeRecord>(read), pos};
}

bool isAcceptedByLdns(std::span<const uint8_t> message) {
  ldns_pkt* read = nullptr;
  const ldns_status status = ldns_wire2pkt(&read, message.data(), message.size());
  const std::unique_ptr<ldns_pkt, FreePacket> packet(status == LDNS_STATUS_OK ? read : nullptr);
  return packet != nullptr;
}

// --- ours beside it ---

// For a name that we refuse and ldns accepts.
Reason reasonFor(NameFault fault) {
  switch (fault) {
    case NameFault::kIntoHeader:
      return kPointerIntoHeader;
    case NameFault::kNotBackwards:
      return kPointerNotBackwards;
    case NameFault::kTooManyPointers:
      return kTooManyPointers;
    default:
      FUZZ_CHECK(!"a name that ldns accepts is refused for no known reason");
  }
  return kReasons;
}

// Where the comparison of a name, or of a record, leads to. `end` 0: it is over, for `reason`.
struct Step {
  size_t end = 0;
  Reason reason = kBothRefuse;
};

// `name`: if both accept it.
Step compareNames(std::span<const uint8_t> message, size_t pos, dns::ExpandedName& name) {
  const TheirName theirs = theirName(message, pos);
  const size_t end = dns::expandName(message, pos, name);
  const PlainName plain = fuzz::readPlainly(message, pos);
  if (end == 0) return {.reason = theirs.end == 0 ? kBothRefuse : reasonFor(plain.fault)};
  FUZZ_CHECK(theirs.end == end && theirs.wire == dns::test::text(name.span()));
  return {.end = end};
}

// Of RDATA that we refuse and ldns accepts, by what our reader of its type wants (dns::RdataLayout).
Reason reasonForRdata(std::span<const uint8_t> message, const dns::RecordView& record) {
  const size_t end = record.rdata + record.rdata_size;
  size_t pos = record.rdata;
  int names = 1;
  size_t after = 0;
  if (const dns::RdataLayout* layout = dns::layoutOf(record.type)) {
    pos += layout->before;
    names = layout->names;
    after = layout->after;
  } else {
    FUZZ_CHECK(record.type == dns::code(dns::RrType::kNaptr));
    pos += 4;
    for (int i = 0; i < 3 && pos < end; ++i) pos += message[pos] + size_t{1};
  }
  for (int i = 0; i < names; ++i) {
    if (pos >= end) return kRdataSize;
    const PlainName name = fuzz::readPlainly(message, pos);
    if (name.fault == NameFault::kCutShort || name.fault == NameFault::kLabelType) return kNameOverRdata;
    if (name.fault != NameFault::kNone) return reasonFor(name.fault);
    if (name.end > end) return kNameOverRdata;
    pos = name.end;
  }
  FUZZ_CHECK(end - pos != after);
  return kRdataSize;
}

// Whether we look at its RDATA at all.
bool hasNames(uint16_t type) { return dns::layoutOf(type) != nullptr || type == dns::code(dns::RrType::kNaptr); }

// A query for the root, behind which records can be written.
const dns::Query& someQuery() {
  static std::string message = dns::test::header(1, 0, {}) + dns::test::question(std::string_view("\0", 1), 1) +
                               std::string(dns::kReadSlack, '\0');
  static const dns::Query query = [] {
    dns::Query parsed;
    dns::parseQuery(reinterpret_cast<uint8_t*>(message.data()), message.size() - dns::kReadSlack, 7, parsed);
    return parsed;
  }();
  return query;
}

void compareContents(const dns::RecordView& record, const dns::ExpandedName& owner, const ldns_rr& theirs) {
  const ldns_rdf* their_owner = ldns_rr_owner(&theirs);
  const std::string_view wire(reinterpret_cast<const char*>(ldns_rdf_data(their_owner)), ldns_rdf_size(their_owner));
  FUZZ_CHECK(wire == dns::test::text(owner.span()));
  FUZZ_CHECK(ldns_rr_get_type(&theirs) == record.type && ldns_rr_get_class(&theirs) == record.klass);
  FUZZ_CHECK(ldns_rr_ttl(&theirs) == record.ttl);
}

// `type`: of the record, if it can be read.
Step compareRecords(std::span<const uint8_t> message, dns::MessageReader& reader, uint16_t& type) {
  const size_t pos = reader.position();
  dns::RecordView record;
  const bool read = reader.next(record) == dns::ReadStep::kRead;
  dns::ExpandedName owner;
  const Step name = compareNames(message, pos, owner);
  if (name.end == 0) return name;
  const TheirRecord theirs = theirRecord(message, pos);
  if (!read) {
    const bool has_head = message.size() - name.end >= kRecordFixed;
    const bool has_rdata =
        has_head && message.size() - name.end - kRecordFixed >= dns::load16(&message[name.end + kRecordFixed - 2]);
    FUZZ_CHECK(!has_rdata && theirs.end == 0);
    return {};
  }
  type = record.type;
  const size_t end = record.rdata + record.rdata_size;
  dns::NameWork work(kManySteps);
  const bool accepted = dns::RecordWriter(someQuery(), 512, work).append(message, record, owner.span(), record.ttl);
  if (!accepted) return {.reason = theirs.end == 0 ? kBothRefuse : reasonForRdata(message, record)};
  if (theirs.end == 0) {
    FUZZ_CHECK(!hasNames(record.type));
    return {.reason = kOpaqueRdata};
  }
  if (theirs.end != end) {
    FUZZ_CHECK(!hasNames(record.type));
    return {.reason = kOtherEnd};
  }
  compareContents(record, owner, *theirs.record);
  return {.end = end};
}

struct Comparison {
  Reason reason = kBothRefuse;
  bool has_tsig = false;
};

Comparison compare(std::span<const uint8_t> message) {
  const dns::HeaderView header(message.data());
  size_t pos = dns::kHeaderSize;
  for (size_t i = 0; i < header.questions(); ++i) {
    dns::ExpandedName name;
    const Step step = compareNames(message, pos, name);
    if (step.end == 0) return {.reason = step.reason};
    if (message.size() - step.end < kQuestionTail) return {};
    pos = step.end + kQuestionTail;
  }
  dns::MessageReader reader(message, pos);
  const size_t records = size_t{header.answers()} + header.authorities() + header.additionals();
  Comparison result{.reason = kBothAccept};
  for (size_t i = 0; i < records; ++i) {
    uint16_t type = 0;
    const Step step = compareRecords(message, reader, type);
    result.has_tsig |= type == dns::code(dns::RrType::kTsig);
    result.reason = step.end == 0 ? step.reason : kBothAccept;
    if (step.end == 0) break;
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool registered = std::atexit(report) == 0;
  FUZZ_CHECK(registered);
  if (size < dns::kHeaderSize || size > 4096) return 0;
  const std::span<const uint8_t> message(data, size);
  const auto [reason, has_tsig] = compare(message);
  ++counts[reason];
  // What was compared piece by piece is what ldns does with the whole; but it leaves out a record for each TSIG, behind
  // which there should be none.
  if (reason == kBothAccept) FUZZ_CHECK(isAcceptedByLdns(message));
  const bool they_refuse = reason == kBothRefuse || reason == kOpaqueRdata;
  if (they_refuse && !has_tsig) FUZZ_CHECK(!isAcceptedByLdns(message));
  return 0;
}
