#include "resolver/translation.h"

#include "dns/message_reader.h"
#include "dns/name_reader.h"
#include "dns/record_writer.h"

namespace idetcd::resolver {

using dns::code;
using dns::RecordView;
using dns::RrType;
using dns::Section;

namespace {

// The messages are our own: as much as any of them needs.
constexpr size_t kAnyWork = 1'000'000;
constexpr size_t kMappedSize = 12;
constexpr std::array<uint8_t, kMappedSize> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool isAnswer(const RecordView& record, RrType type) {
  return record.section == Section::kAnswer && record.type == code(type);
}

bool isExcluded(const MessageView& response, const RecordView& aaaa) {
  const auto address = response.bytes.subspan(aaaa.rdata, aaaa.rdata_size);
  return std::ranges::equal(address.first(std::min(kMappedSize, address.size())), kMapped);
}

// RFC 2308 §5: the lesser of the SOA's TTL and its last field.
uint32_t negativeTtl(const MessageView& response, const RecordView& soa) {
  if (soa.rdata_size < sizeof(uint32_t)) return 0;
  return std::min(soa.ttl, dns::load32(&response.bytes[soa.rdata + soa.rdata_size - sizeof(uint32_t)]));
}

bool isSignatureOf(const MessageView& response, const RecordView& record, RrType type) {
  return record.type == code(RrType::kRrsig) && record.rdata_size >= sizeof(uint16_t) &&
         dns::load16(&response.bytes[record.rdata]) == code(type);
}

// Encodes the records of one response anew, behind the question of another query.
class Rewriter {
 public:
  Rewriter(const dns::Query& query, const MessageView& response)
      : response_(response),
        work_(kAnyWork),
        writer_(query, response.bytes.size(), work_),
        reader_(response.bytes, response.question_end) {
    const dns::HeaderView header(response.bytes.data());
    sections_.rcode = header.rcode();
    sections_.authentic_data = (header.flags() & dns::kFlagAd) != 0;
    translated_.header_flags = header.flags() & (dns::kFlagAa | dns::kFlagRa | dns::kFlagTc);
  }

  Translated& counts() { return translated_; }

  // A record of the answer section, before those of the response.
  bool addAnswer(std::span<const uint8_t> owner, RrType type, uint32_t ttl, std::span<const uint8_t> rdata) {
    ++sections_.answers;
    return append(rdata, {.type = code(type), .klass = code(dns::RrClass::kIn)}, owner, ttl);
  }

  // `write(record, owner)` for each record but OPT: whether it could be written, by keep() or replace() or not at all.
  template <typename Write>
  Translated run(Write&& write) {
    RecordView record;
    dns::ReadStep step;
    while ((step = reader_.next(record)) == dns::ReadStep::kRead) {
      if (record.type == code(RrType::kOpt)) {
        readOpt(record);
        continue;
      }
      closeSections(record.section);
      dns::ExpandedName owner;
      if (dns::expandName(response_.bytes, record.owner, owner, work_) == 0 || !write(record, owner.span())) return {};
    }
    if (step != dns::ReadStep::kEnd) return {};
    closeSections(Section::kAdditional);
    translated_.packed = dns::PackedResponse::make(sections_, writer_.body(), writer_.ttlOffsets());
    return std::move(translated_);
  }

  bool keep(const RecordView& record, std::span<const uint8_t> owner) {
    count(record.section);
    return writer_.append(response_.bytes, record, owner, record.ttl);
  }
  bool replace(const RecordView& record, std::span<const uint8_t> owner, RrType type, uint32_t ttl,
               std::span<const uint8_t> rdata) {
    count(record.section);
    return append(rdata, {.type = code(type), .klass = record.klass}, owner, ttl);
  }

 private:
  // `rdata` stands for itself: no name in it is compressed.
  bool append(std::span<const uint8_t> rdata, RecordView record, std::span<const uint8_t> owner, uint32_t ttl) {
    record.rdata_size = static_cast<uint16_t>(rdata.size());
    return writer_.append(rdata, record, owner, ttl);
  }

  void count(Section section) {
    ++(section == Section::kAnswer      ? sections_.answers
       : section == Section::kAuthority ? sections_.authorities
                                        : sections_.additionals);
  }

  // What comes now belongs to `section`. Of a denial no record of the authority section may be left out alone.
  void closeSections(Section section) {
    const auto size = static_cast<uint16_t>(writer_.body().size());
    if (section > Section::kAnswer && section_ == Section::kAnswer) sections_.answer_size = sections_.proof_end = size;
    if (section > Section::kAuthority && section_ < Section::kAdditional) {
      sections_.authority_end = size;
      if (sections_.answers == 0) {
        sections_.proofs = sections_.authorities;
        sections_.proof_end = size;
      }
    }
    section_ = section;
  }

  void readOpt(const RecordView& opt) {
    sections_.rcode = static_cast<dns::Rcode>(code(sections_.rcode) | (opt.ttl >> 24 << 4));
    dns::OptionReader options(response_.bytes.subspan(opt.rdata, opt.rdata_size));
    dns::OptionView option;
    while (options.next(option) == dns::ReadStep::kRead) {
      if (option.code != code(dns::EdnsOption::kEde) || option.data.size() < sizeof(uint16_t)) continue;
      sections_.ede = dns::load16(option.data.data());
      sections_.has_ede = true;
    }
  }

  const MessageView& response_;
  dns::NameWork work_;
  dns::RecordWriter writer_;
  dns::MessageReader reader_;
  dns::ResponseSections sections_;
  Section section_ = Section::kAnswer;
  Translated translated_;
};

}  // namespace

AaaaFindings examineAaaa(const MessageView& response) {
  const dns::HeaderView header(response.bytes.data());
  AaaaFindings findings;
  findings.is_final = header.rcode() == dns::Rcode::kNxDomain || header.isTruncated();
  dns::MessageReader reader(response.bytes, response.question_end);
  RecordView record;
  dns::ReadStep step;
  while ((step = reader.next(record)) == dns::ReadStep::kRead) {
    if (isAnswer(record, RrType::kAaaa)) {
      (isExcluded(response, record) ? findings.has_excluded : findings.has_usable) = true;
    }
    if (record.section == Section::kAuthority && record.type == code(RrType::kSoa)) {
      findings.negative_ttl_seconds = negativeTtl(response, record);
    }
  }
  findings.is_final |= step != dns::ReadStep::kEnd;
  return findings;
}

Translated withoutExcluded(const dns::Query& query, const MessageView& response) {
  Rewriter rewriter(query, response);
  return rewriter.run([&](const RecordView& record, std::span<const uint8_t> owner) {
    return (isAnswer(record, RrType::kAaaa) && isExcluded(response, record)) || rewriter.keep(record, owner);
  });
}

Translated translateAddresses(const dns::Query& query, const MessageView& response, const Nat64Prefix& prefix,
                              uint32_t most_seconds) {
  Rewriter rewriter(query, response);
  return rewriter.run([&](const RecordView& record, std::span<const uint8_t> owner) {
    if (record.section != Section::kAnswer) return rewriter.keep(record, owner);
    if (isSignatureOf(response, record, RrType::kA)) return true;
    if (record.type != code(RrType::kA)) return rewriter.keep(record, owner);
    const auto v4 = response.bytes.subspan(record.rdata, record.rdata_size);
    if (v4.size() != sizeof(uint32_t) || !prefix.mayEmbed(IpAddress::fromBytes(v4))) {
      ++rewriter.counts().left_out;
      return true;
    }
    ++rewriter.counts().made;
    return rewriter.replace(record, owner, RrType::kAaaa, std::min(record.ttl, most_seconds), prefix.embed(v4));
  });
}

Translated translatePointers(const dns::Query& query, const MessageView& response, const dns::Name& name) {
  std::optional<uint32_t> ttl;
  dns::MessageReader reader(response.bytes, response.question_end);
  RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    if (isAnswer(record, RrType::kPtr)) ttl = std::min(record.ttl, ttl.value_or(std::numeric_limits<uint32_t>::max()));
  }
  if (!ttl || dns::HeaderView(response.bytes.data()).isTruncated()) return {};
  Rewriter rewriter(query, response);
  ++rewriter.counts().made;
  if (!rewriter.addAnswer(query.name(), RrType::kCname, *ttl, name.wire())) return {};
  return rewriter.run(
      [&](const RecordView& each, std::span<const uint8_t> owner) { return rewriter.keep(each, owner); });
}

}  // namespace idetcd::resolver
