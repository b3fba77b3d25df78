#include "zones/transfer_reader.h"

#include "dns/message_reader.h"
#include "dns/record_writer.h"
#include "zones/rdata_reader.h"
#include "zones/zone_copy.h"

namespace idetcd::zones {

namespace {

using dns::ReadStep;
using dns::RrType;

constexpr size_t kSoaNumbers = 20;
constexpr size_t kFewChanges = 1000;  // that may be more than the copy has records
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

// What becomes of the records of a copy.
class Changes {
 public:
  explicit Changes(size_t most) : most_(most) {}

  // Each record goes and comes in turn. The newest TTL of an RRset is that of all its records (RFC 2181 §5.2).
  Result<void> add(const FileRecord& record, bool is_removal) {
    const auto [found, is_new] = of_records_.try_emplace(keyOf(record));
    Change& change = found->second;
    if (is_new) change.was_there = change.is_there = is_removal;
    if (of_records_.size() > most_) return fail("it has more changes than the copy has records");
    if (change.is_there != is_removal) return misfit();
    change.is_there = !is_removal;
    change.ttl_seconds = record.ttl_seconds;
    if (!is_removal) newest_ttls_[rrsetOf(found->first)] = record.ttl_seconds;
    return {};
  }

  // The copy with them. What is new comes first, since the builder gives all of an RRset the TTL of its first record.
  Result<void> apply(ZoneCopy& copy, ZoneBuilder& builder, FilePlace place) {
    for (const auto& [key, change] : of_records_) {
      if (!change.is_there) continue;
      if (const auto added = builder.add(recordOf(key, ttlOf(key, change)), place); !added) return added;
    }
    size_t left = static_cast<size_t>(std::ranges::count_if(of_records_, [](const auto& one) { return one.second.was_there; }));
    for (ZoneCopy::Record record; copy.next(record);) {
      const FileRecord kept{record.owner, record.type, record.ttl_seconds, record.rdata};
      const auto found = of_records_.find(keyOf(kept));
      if (found == of_records_.end()) {
        if (const auto added = builder.add(kept, place); !added) return added;
        continue;
      }
      if (!found->second.was_there) return misfit();
      --left;
    }
    return left == 0 ? Result<void>() : misfit();
  }

 private:
  struct Change {
    bool was_there = false;  // in the copy
    bool is_there = false;
    uint32_t ttl_seconds = 0;
  };
  static constexpr size_t kTypeSize = 2;

  static tl::unexpected<Error> misfit() { return fail("its changes do not fit the copy"); }

  // The size of the owner, owner, type, data.
  static std::string keyOf(const FileRecord& record) {
    std::string key(1, static_cast<char>(record.owner.size()));
    key.append(record.owner.begin(), record.owner.end());
    key.push_back(static_cast<char>(record.type >> 8));
    key.push_back(static_cast<char>(record.type & 0xff));
    key.append(record.rdata.begin(), record.rdata.end());
    return key;
  }
  static size_t rrsetSize(std::string_view key) { return 1 + static_cast<uint8_t>(key[0]) + kTypeSize; }
  static std::string rrsetOf(const std::string& key) { return key.substr(0, rrsetSize(key)); }
  // Signatures have those of what they sign.
  uint32_t ttlOf(const std::string& key, const Change& change) const {
    const bool is_signature = dns::isType(recordOf(key, 0).type, RrType::kRrsig);
    return is_signature ? change.ttl_seconds : newest_ttls_.at(rrsetOf(key));
  }
  static FileRecord recordOf(const std::string& key, uint32_t ttl_seconds) {
    const std::span bytes(reinterpret_cast<const uint8_t*>(key.data()), key.size());
    const size_t type = 1 + bytes[0];
    return {bytes.subspan(1, bytes[0]), dns::load16(&bytes[type]), ttl_seconds, bytes.subspan(type + kTypeSize)};
  }

  const size_t most_;
  std::map<std::string, Change> of_records_;
  std::map<std::string, uint32_t> newest_ttls_;  // of RRsets: the beginning of the keys of their records
};

}  // namespace

Result<void> TransferCourse::addSoa(uint32_t serial) {
  switch (step_) {
    case Step::kBegin:
      if (have_ && !isLaterSerial(serial, *have_)) return fail("its serial is not later than the copy's");
      newest_ = serial;
      step_ = Step::kFirstSoa;
      return {};
    case Step::kFirstSoa:
    case Step::kWhole:
      if (serial == newest_) {
        step_ = Step::kEnd;
        return {};
      }
      if (step_ == Step::kWhole || !have_) return fail("its last SOA has another serial than the first");
      if (serial != *have_) return fail("its changes begin with another serial than the copy's");
      is_incremental_ = true;
      step_ = Step::kRemoving;
      return {};
    case Step::kRemoving:
      current_ = serial;
      step_ = Step::kAdding;
      return {};
    case Step::kAdding:
      if (serial != current_) return fail("its changes do not follow each other");
      step_ = serial == newest_ ? Step::kEnd : Step::kRemoving;
      return {};
    case Step::kEnd:
      break;
  }
  return fail("records follow the last SOA");
}

Result<void> TransferCourse::addOther() {
  if (step_ == Step::kBegin) return fail("it does not begin with the zone's SOA");
  if (step_ == Step::kEnd) return fail("records follow the last SOA");
  if (step_ == Step::kFirstSoa) step_ = Step::kWhole;
  return {};
}

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
    const bool is_soa = dns::isType(record.type, RrType::kSoa) && isNamed(message, record.owner, origin_);
    const auto serial = is_soa ? serialAt(message, record) : std::nullopt;
    if (is_soa && !serial) return fail("its SOA cannot be read");
    if (const auto good = serial ? course_.addSoa(*serial) : course_.addOther(); !good) return tl::unexpected(good.error());
  }
  if (step == ReadStep::kMalformed) return fail("a message cannot be read");
  bytes_ += message.size() + kMessageOverhead;
  if (bytes_ > kMaxBytes) return fail(fmt::format("it has more than {} bytes", kMaxBytes));
  messages_.emplace_back(message.begin(), message.end());
  return course_.hasEnded();
}

Result<std::unique_ptr<Zone>> buildZone(const dns::Name& origin, HashSeed seed,
                                        const TransferReader::Messages& messages, const std::string& from,
                                        const std::shared_ptr<const Zone>& copy) {
  TransferCourse course(copy ? std::optional(copy->serial()) : std::nullopt);
  Changes changes(copy ? std::max(copy->recordCount(), kFewChanges) : 0);
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
      if (const auto good = is_soa ? course.addSoa(ZoneCopy::serialOf(rdata.bytes())) : course.addOther(); !good)
        return tl::unexpected(good.error());
      if (is_soa && std::exchange(has_soa, true)) continue;
      const FileRecord one{owner.wire(), record.type, effectiveTtl(record.ttl), rdata.bytes()};
      const auto added = course.isIncremental() ? changes.add(one, course.isRemoving()) : builder.add(one, place);
      if (!added) return fail(fmt::format("{}: {}", from, added.error().message));
    }
  }
  if (course.isIncremental()) {
    const auto applied = changes.apply(*makeCopy(copy), builder, place);
    if (!applied) return fail(fmt::format("{}: {}", from, applied.error().message));
  }
  return builder.build();
}

std::optional<uint32_t> readSerial(std::span<const uint8_t> message, const dns::Name& origin) {
  const size_t begin = behindQuestion(message);
  if (begin == 0) return std::nullopt;
  dns::MessageReader reader(message, begin);
  dns::RecordView record;
  while (reader.next(record) == ReadStep::kRead && record.section == dns::Section::kAnswer) {
    const bool is_soa = dns::isType(record.type, RrType::kSoa) && record.klass == dns::code(dns::RrClass::kIn);
    if (!is_soa || !isNamed(message, record.owner, origin)) continue;
    return serialAt(message, record);
  }
  return std::nullopt;
}

}  // namespace idetcd::zones
