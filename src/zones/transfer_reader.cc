#include "zones/transfer_reader.h"

#include "dns/message_reader.h"
#include "dns/record_writer.h"
#include "zones/rdata_reader.h"

namespace idetcd::zones {

namespace {

using dns::ReadStep;
using dns::RrType;

constexpr size_t kSoaNumbers = 20;
constexpr size_t kWork = size_t{1} << 22;  // of the names of one message: more than 64 KB of them take

// Behind the question; 0: it cannot be read.
size_t behindQuestion(std::span<const uint8_t> message) {
  if (message.size() < dns::kHeaderSize) return 0;
  size_t pos = dns::kHeaderSize;
  for (unsigned left = dns::HeaderView(message.data()).questions(); left > 0; --left) {
    pos = dns::skipName(message.data(), message.size(), pos);
    if (pos == 0 || message.size() - pos < 4) return 0;
    pos += 4;
  }
  return pos;
}

bool isNamed(std::span<const uint8_t> message, size_t pos, const dns::Name& name) {
  dns::ExpandedName owner;
  return dns::expandName(message, pos, owner) != 0 && dns::sameName(owner.span(), name.wire());
}

// Of a SOA; nothing: it is too short for one.
std::optional<uint32_t> serialAt(std::span<const uint8_t> message, const dns::RecordView& record) {
  if (record.rdata_size < kSoaNumbers + 2) return std::nullopt;
  return dns::load32(&message[record.rdata + record.rdata_size - kSoaNumbers]);
}

// Types that no zone has (RFC 6895 §3.1).
bool isMetaType(uint16_t type) {
  return type == 0 || dns::isType(type, RrType::kOpt) || (type >= dns::code(RrType::kTkey) && type <= dns::code(RrType::kAny));
}

// The data of a record without compression.
class RdataExpander {
 public:
  explicit RdataExpander(std::span<const uint8_t> message) : message_(message), work_(kWork) {}

  // False: they are not what the type wants.
  bool expand(const dns::RecordView& record) {
    bytes_.clear();
    size_t pos = record.rdata;
    const size_t end = record.rdata + record.rdata_size;
    if (const dns::RdataLayout* layout = dns::layoutOf(record.type)) {
      if (end - pos < layout->before) return false;
      put(pos, pos + layout->before);
      pos += layout->before;
      for (int i = 0; i < layout->names; ++i) {
        dns::ExpandedName name;
        pos = dns::expandName(message_, pos, name, work_);
        if (pos == 0 || pos > end) return false;
        bytes_.insert(bytes_.end(), name.span().begin(), name.span().end());
      }
    }
    put(pos, end);
    return checkRdata(record.type, bytes_);
  }
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  void put(size_t begin, size_t end) {
    const auto bytes = message_.subspan(begin, end - begin);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  const std::span<const uint8_t> message_;
  dns::NameWork work_;
  std::vector<uint8_t> bytes_;
};

}  // namespace

Result<bool> TransferReader::add(std::span<const uint8_t> message) {
  const size_t begin = behindQuestion(message);
  if (begin == 0) return fail("a message cannot be read");
  const dns::HeaderView header(message.data());
  if (header.rcode() != dns::Rcode::kNoError)
    return fail("it answers " + dns::kRcodeNames.toString(dns::code(header.rcode())));
  if (header.isTruncated()) return fail("a message is truncated");
  if (header.answers() == 0) return fail("a message has no records");
  dns::MessageReader reader(message, begin);
  dns::RecordView record;
  ReadStep step;
  while ((step = reader.next(record)) == ReadStep::kRead && record.section == dns::Section::kAnswer) {
    if (has_ended_) return fail("records follow the last SOA");
    const bool is_soa = dns::isType(record.type, RrType::kSoa) && isNamed(message, record.owner, origin_);
    if (!serial_ && !is_soa) return fail("it does not begin with the zone's SOA");
    if (!is_soa) continue;
    const auto serial = serialAt(message, record);
    if (!serial) return fail("its SOA cannot be read");
    if (serial_.value_or(*serial) != *serial) return fail("its last SOA has another serial than the first");
    has_ended_ = serial_.has_value();
    serial_ = serial;
  }
  if (step == ReadStep::kMalformed) return fail("a message cannot be read");
  bytes_ += message.size() + kMessageOverhead;
  if (bytes_ > kMaxBytes) return fail(fmt::format("it has more than {} bytes", kMaxBytes));
  messages_.emplace_back(message.begin(), message.end());
  return has_ended_;
}

Result<std::unique_ptr<const Zone>> buildZone(const dns::Name& origin, HashSeed seed,
                                              const TransferReader::Messages& messages, const std::string& from) {
  constexpr uint32_t kMaxTtl = 0x7fffffff;  // RFC 2181 §8
  ZoneBuilder builder(origin, seed);
  const FilePlace place{builder.addFile(from), 0};
  bool has_soa = false;
  for (const std::vector<uint8_t>& message : messages) {
    dns::MessageReader reader(message, behindQuestion(message));
    RdataExpander rdata(message);
    dns::NameWork work(kWork);
    dns::RecordView record;
    while (reader.next(record) == ReadStep::kRead && record.section == dns::Section::kAnswer) {
      dns::ExpandedName expanded;
      const bool is_known = record.klass == dns::code(dns::RrClass::kIn) && !isMetaType(record.type);
      if (!is_known || dns::expandName(message, record.owner, expanded, work) == 0 || !rdata.expand(record))
        return fail(fmt::format("{}: a record of type {} is none", from, dns::kTypeNames.toString(record.type)));
      const dns::Name owner = dns::Name::fromWire(expanded.span());
      const bool is_soa = dns::isType(record.type, RrType::kSoa) && dns::sameName(owner.wire(), origin.wire());
      if (is_soa && std::exchange(has_soa, true)) continue;
      const uint32_t ttl_seconds = record.ttl > kMaxTtl ? 0 : record.ttl;
      const auto added = builder.add({owner.wire(), record.type, ttl_seconds, rdata.bytes()}, place);
      if (!added) return fail(fmt::format("{}: {}", from, added.error().message));
    }
  }
  return builder.build();
}

std::optional<uint32_t> readSerial(std::span<const uint8_t> message, const dns::Name& origin) {
  const size_t begin = behindQuestion(message);
  if (begin == 0) return std::nullopt;
  dns::MessageReader reader(message, begin);
  dns::RecordView record;
  while (reader.next(record) == ReadStep::kRead && record.section == dns::Section::kAnswer) {
    if (!dns::isType(record.type, RrType::kSoa) || !isNamed(message, record.owner, origin)) continue;
    return serialAt(message, record);
  }
  return std::nullopt;
}

}  // namespace idetcd::zones
