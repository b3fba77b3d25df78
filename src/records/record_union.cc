#include "records/record_union.h"

namespace idetcd::records {

// One of the stores, as the sum has heard of it.
class RecordUnion::Part final : public RecordObserver {
 public:
  Part(RecordUnion& whole, Source source) : whole_(whole), source_(source) {}

  void onChange(const Entry* old, const Entry* fresh) override {
    if (fresh != nullptr && fresh->isHeld()) return whole_.take(source_, *fresh);
    if (old != nullptr && old->isHeld()) whole_.drop(source_, *old);
  }
  void onChanged() override {}
  void onSerial(uint32_t) override {}
  void onFreshness(Freshness freshness, BootClock::time_point deadline) override {
    freshness_ = freshness;
    deadline_ = deadline;
    whole_.setFreshness();
  }
  // The first one's, as in the operator's tools. It is set in the second one too before that becomes the first.
  void onGeneration(int64_t generation) override {
    if (source_ == Source::kFirst) whole_.sum_.setGeneration(generation);
  }
  void onAddresses(const std::vector<IpAddress>& addresses) override { whole_.sum_.setAddresses(addresses); }

  Freshness freshness() const { return freshness_; }
  BootClock::time_point deadline() const { return deadline_; }

 private:
  RecordUnion& whole_;
  const Source source_;
  Freshness freshness_ = Freshness::kLoading;
  BootClock::time_point deadline_;
};

RecordUnion::RecordUnion(EpochDomain& epochs, RecordStore::Options options, RecordStore& first, RecordStore& second,
                         Second counts)
    : sum_(epochs, std::move(options)),
      first_(first),
      second_(second),
      second_counts_(counts == Second::kNeeded),
      first_part_(std::make_shared<Part>(*this, Source::kFirst)),
      second_part_(std::make_shared<Part>(*this, Source::kSecond)) {}

void RecordUnion::begin() {
  sum_.setGeneration(first_.generation());
  for (const auto& [store, source, part] :
       {std::tuple(&first_, Source::kFirst, first_part_), std::tuple(&second_, Source::kSecond, second_part_)}) {
    store->table().forEach([this, source = source](const Entry& entry) {
      if (entry.isHeld()) take(source, entry);
    });
    store->addObserver(part);
  }
}

void RecordUnion::end() {
  first_.removeObserver(first_part_.get());
  second_.removeObserver(second_part_.get());
}

void RecordUnion::take(Source source, const Entry& entry) {
  std::vector<Rdata> rdata;
  std::vector<Rrset> rrsets;
  entry.visitRecords([&](dns::RrType, uint32_t, Rdata one) { rdata.push_back(one); });
  size_t i = 0;
  entry.visitRecords([&](dns::RrType type, uint32_t ttl_seconds, Rdata) {
    rrsets.push_back({.type = type, .ttl_seconds = ttl_seconds, .rdata = {&rdata[i++], 1}});
  });
  sum_.put(dns::Name::fromWire(entry.name()), source, rrsets, serial());
}

void RecordUnion::drop(Source source, const Entry& entry) {
  sum_.remove(dns::Name::fromWire(entry.name()), source, serial());
}

// Rises with that of each, unless one was set back: then the sum's stays.
int64_t RecordUnion::serial() const { return int64_t{first_.serial()} + second_.serial(); }

void RecordUnion::setFreshness() {
  second_counts_ = second_counts_ || second_part_->freshness() == Freshness::kFresh;
  const std::array<const Part*, 2> parts{first_part_.get(), (second_counts_ ? second_part_ : first_part_).get()};
  const auto any = [&parts](bool (*is)(Freshness)) {
    return std::ranges::any_of(parts, [is](const Part* part) { return is(part->freshness()); });
  };
  const bool is_old = any([](Freshness one) { return isOld(one); });
  if (any([](Freshness one) { return isIncomplete(one); }))
    return sum_.setFreshness(is_old ? Freshness::kFromFile : Freshness::kLoading);
  if (is_old) return sum_.setFreshness(Freshness::kStale);
  sum_.setFreshUntil(std::min(parts[0]->deadline(), parts[1]->deadline()));
}

}  // namespace idetcd::records
