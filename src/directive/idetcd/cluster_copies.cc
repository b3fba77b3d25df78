#include "directive/idetcd/cluster_copies.h"

#include "dns/message_reader.h"
#include "records/member_data.h"

namespace idetcd::directive {

using dns::RrType;
using records::Entry;
using records::MemberGroup;
using records::MemberView;
using records::Rdata;

// Records in wire form, one behind the other: size of the owner (1), owner, type (2), TTL (4), size of RDATA (2), RDATA.
class ClusterCopies::Snapshot {
 public:
  // The apex alone.
  explicit Snapshot(const records::RecordStore& store)
      : zone_(store.zone()), ttl_seconds_(store.ttlSeconds()), serial_(store.serial()) {
    addApex(store.apex());
  }

  // REQUIRES: inside a ReadSection. A name that changes meanwhile may be missing, or be there twice. All is read again if the
  // serial has moved, kTries times at most; what is then still wrong, the next serial puts right.
  static std::shared_ptr<const Snapshot> ofAll(const records::RecordStore& store) {
    constexpr int kTries = 3;
    for (int tries = 1;; ++tries) {
      auto snapshot = std::make_shared<Snapshot>(store);
      snapshot->addNames(store.table());
      if (snapshot->serial() == store.serial() || tries == kTries) return snapshot;
    }
  }

  uint32_t serial() const { return serial_; }
  zones::ZoneCopy::Record soa() const { return {zone_.wire(), dns::code(RrType::kSoa), ttl_seconds_, soa_}; }
  // The record at `offset`, which moves behind it. False: there are no more.
  bool read(size_t& offset, zones::ZoneCopy::Record& record) const {
    if (offset == bytes_.size()) return false;
    const std::span<const uint8_t> rest = std::span(bytes_).subspan(offset);
    const size_t owner = rest[0];
    const uint8_t* const fixed = &rest[1 + owner];
    const size_t size = dns::load16(fixed + 6);
    record = {rest.subspan(1, owner), dns::load16(fixed), dns::load32(fixed + 2), rest.subspan(1 + owner + kFixed, size)};
    offset += 1 + owner + kFixed + size;
    return true;
  }

 private:
  static constexpr size_t kFixed = 8;

  void put(std::span<const uint8_t> owner, RrType type, uint32_t ttl_seconds, Rdata rdata) {
    const size_t start = bytes_.size();
    bytes_.resize(start + 1 + owner.size() + kFixed + rdata.size());
    uint8_t* to = &bytes_[start];
    *to++ = static_cast<uint8_t>(owner.size());
    to = dns::putBytes(to, owner);
    to = dns::put32(dns::put16(to, dns::code(type)), ttl_seconds);
    dns::putBytes(dns::put16(to, static_cast<uint16_t>(rdata.size())), rdata);
  }

  // Its names lead to that of a question.
  void addApex(const records::ZoneApex& apex) {
    const auto soa = apex.soa(dns::kHeaderSize, serial_);
    std::vector<uint8_t> message(dns::kHeaderSize + zone_.size() + soa.span().size());
    uint8_t* const record = dns::putBytes(&message[dns::kHeaderSize], zone_.wire());
    dns::putBytes(record, soa.span());
    size_t pos = dns::kHeaderSize + zone_.size() + dns::kRecordHeadSize;
    for (int i = 0; i < 2; ++i) {
      dns::ExpandedName name;
      pos = dns::expandName(message, pos, name);
      assert(pos != 0);
      soa_.insert(soa_.end(), name.span().begin(), name.span().end());
    }
    soa_.insert(soa_.end(), message.begin() + static_cast<ptrdiff_t>(pos), message.end());
    put(zone_.wire(), RrType::kNs, ttl_seconds_, apex.nameServer().wire());
  }

  void addNames(const records::RecordTable& table) {
    const size_t apex = bytes_.size();
    using Step = records::RecordTable::ScanStep;
    records::RecordTable::ScanPosition position;
    Step step;
    while ((step = table.scan(position, [this](const Entry& entry) { add(entry); })) != Step::kDone) {
      if (step == Step::kMore) continue;
      position = {};
      bytes_.resize(apex);
    }
  }

  void add(const Entry& entry) {
    if (!dns::isNameWithin(entry.name(), zone_)) return;
    if (const MemberGroup* group = MemberGroup::of(entry)) return addGroup(entry, *group);
    bool has_text = false;
    entry.visitRecords([&](RrType type, uint32_t ttl_seconds, Rdata rdata) {
      has_text = has_text || type == RrType::kTxt;
      if (type != records::kMemberType) put(entry.name(), type, ttl_seconds, rdata);
    });
    if (has_text) return;
    entry.visitRecords([&](RrType type, uint32_t ttl_seconds, Rdata rdata) {
      std::array<uint8_t, MemberView::kMaxTextSize> text;
      if (type != records::kMemberType) return;
      // With the generation each change would be one of every name.
      const size_t size = MemberView(rdata).writeText(0, text);
      if (size > 0) put(entry.name(), RrType::kTxt, ttl_seconds, std::span(text).first(size));
    });
  }

  void addGroup(const Entry& entry, const MemberGroup& group) {
    const bool is_service = entry.name()[1] == '_';
    for (const Entry* member : group.members()) {
      member->visitRecords([&](RrType type, uint32_t ttl_seconds, Rdata rdata) {
        if (type == records::kMemberType && is_service) return addServices(entry.name(), *member, MemberView(rdata));
        if (!is_service && (type == RrType::kA || type == RrType::kAaaa)) put(entry.name(), type, ttl_seconds, rdata);
      });
    }
  }

  // `owner`: _NAME._tcp.ZONE or _NAME._udp.ZONE.
  void addServices(std::span<const uint8_t> owner, const Entry& member, const MemberView& view) {
    const size_t size = owner[0];
    const std::string_view name(reinterpret_cast<const char*>(&owner[2]), size - 1);
    const bool is_tcp = owner[size + 3] == 't';
    const auto protocol =
        static_cast<uint8_t>(is_tcp ? records::Service::Protocol::kTcp : records::Service::Protocol::kUdp);
    view.visitServices([&](const MemberView::ServiceView& service) {
      if (service.name != name || service.protocol != protocol) return;
      std::array<uint8_t, 6 + dns::kMaxNameLength> rdata;
      uint8_t* end = dns::put16(dns::put16(dns::put16(rdata.data(), 0), service.weight), service.port);
      end = dns::putBytes(end, member.name());
      put(owner, RrType::kSrv, ttl_seconds_, {rdata.data(), end});
    });
  }

  const dns::Name zone_;
  const uint32_t ttl_seconds_;
  const uint32_t serial_;  // read before the records
  std::vector<uint8_t> soa_;
  std::vector<uint8_t> bytes_;
};

namespace {

class SnapshotCopy final : public zones::ZoneCopy {
 public:
  explicit SnapshotCopy(std::shared_ptr<const ClusterCopies::Snapshot> snapshot) : snapshot_(std::move(snapshot)) {}
  Record soa() const override { return snapshot_->soa(); }
  bool next(Record& record) override { return snapshot_->read(offset_, record); }

 private:
  const std::shared_ptr<const ClusterCopies::Snapshot> snapshot_;
  size_t offset_ = 0;
};

}  // namespace

bool ClusterCopies::isHere(std::span<const uint8_t> name) const {
  return !store_.zone().isRoot() && std::ranges::equal(name, store_.zone().wire());
}

zones::PublishedZones::Found ClusterCopies::headOf(std::span<const uint8_t> name) const {
  if (!isHere(name)) return {};
  if (!isKnown()) return {true, nullptr};
  return {true, std::make_unique<SnapshotCopy>(std::make_shared<const Snapshot>(store_))};
}

zones::PublishedZones::Found ClusterCopies::copyOf(std::span<const uint8_t> name) const {
  if (!isHere(name)) return {};
  if (!isKnown()) return {true, nullptr};
  const std::lock_guard lock(mutex_);
  if (!newest_ || newest_->serial() != store_.serial()) newest_ = Snapshot::ofAll(store_);
  return {true, std::make_unique<SnapshotCopy>(newest_)};
}

uint64_t ClusterCopies::version() const { return uint64_t{isKnown()} << 32 | store_.serial(); }

std::vector<zones::PublishedZones::Serial> ClusterCopies::serials() const {
  if (store_.zone().isRoot() || !isKnown()) return {};
  return {{store_.zone(), store_.serial()}};
}

}  // namespace idetcd::directive
