#include "zones/zone_journal.h"

#include <deque>

namespace idetcd::zones {

namespace {

using Record = ZoneCopy::Record;

bool areSame(const Record& a, const Record& b) {
  return a.type == b.type && a.ttl_seconds == b.ttl_seconds && std::ranges::equal(a.owner, b.owner) &&
         std::ranges::equal(a.rdata, b.rdata);
}

// The next records of a copy.
class Ahead {
 public:
  static constexpr size_t kMost = 32;

  explicit Ahead(ZoneCopy& copy) : copy_(copy) {}

  // Null: there are no more. REQUIRES: index < kMost.
  const Record* at(size_t index) {
    while (size_ <= index) {
      if (!copy_.next(records_[(first_ + size_) % kMost])) return nullptr;
      ++size_;
    }
    return &records_[(first_ + index) % kMost];
  }
  // The first that is the same; kMost: none.
  size_t find(const Record& record) {
    for (size_t i = 0; i < kMost; ++i) {
      const Record* const one = at(i);
      if (one == nullptr) return kMost;
      if (areSame(*one, record)) return i;
    }
    return kMost;
  }
  void drop() {
    first_ = (first_ + 1) % kMost;
    --size_;
  }

 private:
  ZoneCopy& copy_;
  std::array<Record, kMost> records_{};
  size_t first_ = 0;
  size_t size_ = 0;
};

// Calls visit(record) for each record of one copy that has no counterpart near it in the other. What is the same in both zones is
// mostly in the same order, whether a table was changed or filled anew.
template <typename Visit>
void visitUnpaired(ZoneCopy& before, ZoneCopy& after, Visit visit) {
  Ahead olds(before);
  Ahead news(after);
  const auto visitFirst = [&visit](Ahead& ahead, size_t count) {
    for (; count > 0; --count) {
      if (const Record* const record = ahead.at(0)) {
        visit(*record);
        ahead.drop();
      }
    }
  };
  for (;;) {
    const Record* const old_one = olds.at(0);
    const Record* const new_one = news.at(0);
    if (old_one == nullptr && new_one == nullptr) return;
    const size_t added = old_one != nullptr ? news.find(*old_one) : 1;
    if (added == 0) {
      olds.drop();
      news.drop();
      continue;
    }
    const size_t removed = new_one != nullptr ? olds.find(*new_one) : 1;
    if (added == Ahead::kMost && removed == Ahead::kMost) {
      visitFirst(olds, 1);
      visitFirst(news, 1);
    } else if (added <= removed) {
      visitFirst(news, added);
    } else {
      visitFirst(olds, removed);
    }
  }
}

// The records that differ between two versions of a zone, each once.
class Differences {
 public:
  // Both copies are new, and are read to the end.
  Differences(ZoneCopy& before, ZoneCopy& after, HashSeed seed) : seed_(seed), places_(kFirstPlaces, kNone) {
    visitUnpaired(before, after, [this](const Record& record) { add(record); });
    before.rewind();
    after.rewind();
    for (Record record; before.next(record);) {
      if (Item* const item = find(record)) item->was_there = true;
    }
    for (Record record; after.next(record);) {
      if (Item* const item = find(record)) item->is_there = true;
      bytes_after_ += PackedRecords::sizeOf(record);
    }
  }

  bool areNone() const {
    return std::ranges::all_of(items_, [](const Item& item) { return item.was_there == item.is_there; });
  }
  void putRemoved(PackedRecords& to) const {
    for (const Item& item : items_) {
      if (!item.is_there) to.put(item.record);
    }
  }
  void putAdded(PackedRecords& to) const {
    for (const Item& item : items_) {
      if (!item.was_there) to.put(item.record);
    }
  }
  size_t bytesAfter() const { return bytes_after_; }  // of all of the zone, without its SOA

 private:
  struct Item {
    Record record;
    uint64_t hash = 0;
    bool was_there = false;
    bool is_there = false;
  };
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  static constexpr size_t kFirstPlaces = 64;

  void add(const Record& record) {
    const uint64_t hash = hashOf(record);
    if (places_[placeOf(record, hash)] != kNone) return;
    if (2 * items_.size() >= places_.size()) makeRoom();
    places_[placeOf(record, hash)] = static_cast<uint32_t>(items_.size());
    items_.push_back({.record = record, .hash = hash});
  }
  // Null: it was not added.
  Item* find(const Record& record) {
    if (items_.empty()) return nullptr;
    const uint32_t item = places_[placeOf(record, hashOf(record))];
    return item != kNone ? &items_[item] : nullptr;
  }

  uint64_t hashOf(const Record& record) const {
    const uint64_t owner = hashBytes(record.owner.data(), record.owner.size(), seed_ ^ record.type);
    return hashBytes(record.rdata.data(), record.rdata.size(), owner ^ record.ttl_seconds);
  }

  // Where it is, or would be.
  size_t placeOf(const Record& record, uint64_t hash) const {
    const size_t mask = places_.size() - 1;
    size_t place = hash & mask;
    const auto isOther = [&](const Item& item) { return item.hash != hash || !areSame(item.record, record); };
    while (places_[place] != kNone && isOther(items_[places_[place]])) place = (place + 1) & mask;
    return place;
  }

  void makeRoom() {
    places_.assign(2 * places_.size(), kNone);
    for (uint32_t i = 0; i < items_.size(); ++i) places_[placeOf(items_[i].record, items_[i].hash)] = i;
  }

  const HashSeed seed_;
  size_t bytes_after_ = 0;
  std::deque<Item> items_;
  std::vector<uint32_t> places_;  // a power of two of them, half of which are free; each the index of an item, or kNone
};

}  // namespace

class ZoneJournal::Changes final : public ZoneCopy {
 public:
  explicit Changes(std::span<const std::shared_ptr<const Step>> steps) : steps_(steps.begin(), steps.end()) {}

  Record soa() const override {
    Record soa;
    size_t offset = steps_.back()->soa;
    steps_.back()->records.read(offset, soa);
    return soa;
  }
  bool next(Record& record) override {
    for (; step_ < steps_.size(); ++step_, offset_ = 0) {
      if (steps_[step_]->records.read(offset_, record)) return true;
    }
    return false;
  }
  void rewind() override { step_ = offset_ = 0; }

 private:
  const std::vector<std::shared_ptr<const Step>> steps_;
  size_t step_ = 0;  // that is read
  size_t offset_ = 0;
};

ZoneJournal ZoneJournal::next(const ZoneJournal& journal, ZoneCopy& before, ZoneCopy& after, HashSeed seed) {
  const bool is_later = isLaterSerial(after.serial(), before.serial());
  ZoneJournal empty;
  empty.doubtful_ = journal.doubtful_;
  if (!is_later && (!empty.doubtful_ || isLaterSerial(before.serial(), *empty.doubtful_))) empty.doubtful_ = before.serial();
  if (!is_later && after.serial() != before.serial()) return empty;
  const Differences differences(before, after, seed);
  if (!is_later) return areSame(before.soa(), after.soa()) && differences.areNone() ? journal : empty;
  if (empty.doubtful_ && !isLaterSerial(before.serial(), *empty.doubtful_)) return empty;
  const auto step = std::make_shared<Step>();
  step->from = before.serial();
  step->records.put(before.soa());
  differences.putRemoved(step->records);
  step->soa = step->records.size();
  step->records.put(after.soa());
  differences.putAdded(step->records);
  ZoneJournal next = journal;
  next.forgetUpTo(after.serial());
  next.steps_.push_back(step);
  next.bytes_ += step->records.size();
  next.forget(std::max(PackedRecords::sizeOf(after.soa()) + differences.bytesAfter(), kLeastBytes));
  return next;
}

void ZoneJournal::forget(size_t most_bytes) {
  while (steps_.size() > kMostSteps || bytes_ > most_bytes) forgetOldest();
}

// Serials may go round: a client that meets the newest one on its way takes it for the end.
void ZoneJournal::forgetUpTo(uint32_t serial) {
  while (std::ranges::any_of(steps_, [serial](const auto& step) { return step->from == serial; })) forgetOldest();
}

void ZoneJournal::forgetOldest() {
  bytes_ -= steps_.front()->records.size();
  steps_.erase(steps_.begin());
}

std::unique_ptr<ZoneCopy> ZoneJournal::since(uint32_t serial) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i]->from == serial) return std::make_unique<Changes>(std::span(steps_).subspan(i));
  }
  return nullptr;
}

void keepChanges(Zone& zone, const std::shared_ptr<const Zone>& before) {
  const auto old_copy = makeCopy(before);
  const auto new_copy = makeCopy({std::shared_ptr<const void>(), &zone});
  const auto kept = before->journal();
  zone.setJournal(std::make_shared<const ZoneJournal>(
      ZoneJournal::next(kept ? *kept : ZoneJournal(), *old_copy, *new_copy, zone.table().seed())));
}

}  // namespace idetcd::zones
