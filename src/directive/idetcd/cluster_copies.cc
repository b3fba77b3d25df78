#include "directive/idetcd/cluster_copies.h"

#include "dns/message_reader.h"
#include "records/member_data.h"

namespace idetcd::directive {

using dns::RrType;
using records::Entry;
using records::MemberGroup;
using records::MemberView;
using records::Rdata;

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
  const zones::PackedRecords& records() const { return records_; }  // without the SOA

 private:
  void put(std::span<const uint8_t> owner, RrType type, uint32_t ttl_seconds, Rdata rdata) {
    records_.put({owner, dns::code(type), ttl_seconds, rdata});
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
    const size_t apex = records_.size();
    using Step = records::RecordTable::ScanStep;
    records::RecordTable::ScanPosition position;
    Step step;
    while ((step = table.scan(position, [this](const Entry& entry) { add(entry); })) != Step::kDone) {
      if (step == Step::kMore) continue;
      position = {};
      records_.cut(apex);
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
  zones::PackedRecords records_;
};

namespace {

class SnapshotCopy final : public zones::ZoneCopy {
 public:
  explicit SnapshotCopy(std::shared_ptr<const ClusterCopies::Snapshot> snapshot) : snapshot_(std::move(snapshot)) {}
  Record soa() const override { return snapshot_->soa(); }
  bool next(Record& record) override { return snapshot_->records().read(offset_, record); }
  void rewind() override { offset_ = 0; }

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
  renew();
  return {true, std::make_unique<SnapshotCopy>(newest_)};
}

void ClusterCopies::renew() const {
  if (newest_ && newest_->serial() == store_.serial()) return;
  const auto before = std::exchange(newest_, Snapshot::ofAll(store_));
  if (!before) return;
  SnapshotCopy old_copy(before);
  SnapshotCopy new_copy(newest_);
  journal_ = zones::ZoneJournal::next(journal_, old_copy, new_copy, store_.table().seed());
}

std::unique_ptr<zones::ZoneCopy> ClusterCopies::changesSince(std::span<const uint8_t> name, uint32_t serial,
                                                             const IpAddress& client) const {
  if (!isHere(name) || !isKnown()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(given_, std::pair(client, serial)) == given_.end()) return nullptr;
  renew();
  return journal_.since(serial);
}

void ClusterCopies::noteGiven(std::span<const uint8_t>, uint32_t serial, const IpAddress& client) const {
  const std::lock_guard lock(mutex_);
  std::erase(given_, std::pair(client, serial));
  given_.emplace_back(client, serial);
  if (given_.size() > kMostGiven) given_.pop_front();
}

uint64_t ClusterCopies::version() const { return uint64_t{isKnown()} << 32 | store_.serial(); }

std::vector<zones::PublishedZones::Serial> ClusterCopies::serials() const {
  if (store_.zone().isRoot() || !isKnown()) return {};
  return {{store_.zone(), store_.serial()}};
}

}  // namespace idetcd::directive
