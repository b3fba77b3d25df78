#include "zones/zone_copy.h"

namespace idetcd::zones {

namespace {

constexpr size_t kAhead = 16;  // entries that the cache fetches meanwhile: they lie anywhere in memory
constexpr size_t kCacheLine = 64;

// Visits the table in steps, since a zone may have millions of names.
class TableCopy final : public ZoneCopy {
 public:
  explicit TableCopy(std::shared_ptr<const Zone> zone) : zone_(std::move(zone)), table_(&zone_->table()) {}

  void rewind() override {
    table_ = &zone_->table();
    position_ = {};
    entries_.clear();
    entry_ = 0;
    rrsets_ = wire_ = {};
  }

  Record soa() const override {
    const auto soa = zone_->apex().find(dns::code(dns::RrType::kSoa));
    return {zone_->origin().wire(), soa.type, dns::load32(soa.wire.data() + dns::kTtlOffset),
            soa.wire.subspan(dns::kRecordHeadSize)};
  }

  bool next(Record& record) override {
    do {
      while (wire_.empty()) {
        if (!nextRrset() && !nextEntry()) return false;
      }
      const size_t size = dns::load16(wire_.data() + dns::kRecordHeadSize - 2);
      record = {entries_[entry_ - 1]->name(), type_, dns::load32(wire_.data() + dns::kTtlOffset),
                wire_.subspan(dns::kRecordHeadSize, size)};
      wire_ = wire_.subspan(dns::kRecordHeadSize + size);
    } while (dns::isType(record.type, dns::RrType::kSoa));
    return true;
  }

 private:
  bool nextRrset() {
    if (rrsets_.empty()) return false;
    uint16_t head[3];
    std::memcpy(head, rrsets_.data(), sizeof(head));
    type_ = head[0];
    wire_ = rrsets_.subspan(sizeof(head), head[2]);
    rrsets_ = rrsets_.subspan(sizeof(head) + head[2]);
    return true;
  }

  bool nextEntry() {
    while (entry_ == entries_.size()) {
      if (!scan()) return false;
    }
    if (entry_ + kAhead < entries_.size()) {
      const auto* const ahead = reinterpret_cast<const char*>(entries_[entry_ + kAhead]);
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + kCacheLine);
    }
    rrsets_ = entries_[entry_++]->rrsetBytes();
    return true;
  }

  // Of the names, then of the NSEC3 records.
  bool scan() {
    if (table_ == nullptr) return false;
    entries_.clear();
    entry_ = 0;
    const auto step = table_->scan(position_, [this](const records::Entry& entry) { entries_.push_back(&entry); });
    if (step == records::RecordTable::ScanStep::kMore) return true;
    table_ = table_ == &zone_->table() ? zone_->nsec3Table() : nullptr;
    position_ = {};
    return true;
  }

  const std::shared_ptr<const Zone> zone_;
  const records::RecordTable* table_;  // null: all were visited
  records::RecordTable::ScanPosition position_;
  std::vector<const records::Entry*> entries_;
  size_t entry_ = 0;  // the next one
  std::span<const uint8_t> rrsets_;
  uint16_t type_ = 0;
  std::span<const uint8_t> wire_;
};

}  // namespace

std::unique_ptr<ZoneCopy> makeCopy(std::shared_ptr<const Zone> zone) { return std::make_unique<TableCopy>(std::move(zone)); }

}  // namespace idetcd::zones
