#include "zones/zone_builder.h"

#include <unordered_set>

#include "zones/zone_response.h"

namespace idetcd::zones {

using dns::RrType;

namespace {

constexpr uint16_t kNsec3Param = 51;
constexpr size_t kRrsetHeadSize = 6;
constexpr size_t kMaxHeap = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxTypes = 255;  // that records::Entry can count
constexpr size_t kRunsAhead = 8;   // of what the cache fetches meanwhile

// May stand beside a CNAME (RFC 4035 §2.5, RFC 2181 §10.1).
bool isBesideCname(uint16_t type) { return type == 24 || type == 25 || type == 30 || type == 46 || type == 47; }

}  // namespace

uint16_t ZoneBuilder::addFile(const std::string& path) {
  files_.push_back(path);
  return static_cast<uint16_t>(files_.size() - 1);
}

std::string ZoneBuilder::describe(FilePlace place) const {
  return fmt::format("{}:{}", files_[place.file], place.line);
}

tl::unexpected<Error> ZoneBuilder::failAt(const Item& item, std::string_view what) const {
  return fail(fmt::format("{}: {} {}", describe({item.file, item.line}), dns::nameToString(&heap_[item.owner]), what));
}

Result<void> ZoneBuilder::add(const FileRecord& record, FilePlace place) {
  if (!dns::isNameWithin(record.owner, origin_)) {
    ++out_of_zone_;
    return {};
  }
  if (items_.size() >= limits_.records) return fail(fmt::format("the zone has more than {} records", limits_.records));
  if (heap_.size() + record.owner.size() + record.rdata.size() > kMaxHeap) return fail("the zone is larger than 4 GiB");
  if (runs_.empty() || !std::ranges::equal(record.owner, ownerOf(runs_.back()))) {
    runs_.push_back({.hash = hashOf(record.owner), .first = static_cast<uint32_t>(items_.size()), .count = 0});
    items_.push_back(
        {.owner = static_cast<uint32_t>(heap_.size()), .owner_size = static_cast<uint8_t>(record.owner.size())});
    heap_.insert(heap_.end(), record.owner.begin(), record.owner.end());
  } else {
    items_.push_back(items_.back());
  }
  ++runs_.back().count;
  Item& item = items_.back();
  item.rdata = static_cast<uint32_t>(heap_.size());
  item.ttl_seconds = record.ttl_seconds;
  item.line = place.line;
  item.rdata_size = static_cast<uint16_t>(record.rdata.size());
  item.type = record.type;
  item.file = place.file;
  heap_.insert(heap_.end(), record.rdata.begin(), record.rdata.end());
  const bool hides = (dns::isType(record.type, RrType::kNs) && record.owner.size() != origin_.size()) ||
                     dns::isType(record.type, RrType::kDname);
  if (hides) hiding_.insert(runs_.back().hash);
  return {};
}

void ZoneBuilder::reserve(size_t text_bytes) {
  constexpr size_t kTextOfRecord = 32;
  heap_.reserve(heap_.size() + text_bytes);
  items_.reserve(items_.size() + text_bytes / kTextOfRecord);
  runs_.reserve(runs_.size() + text_bytes / kTextOfRecord);
}

// The last run of each name is found by its hash, in a table twice as large as there are runs at least.
void ZoneBuilder::linkRuns() {
  const size_t mask = std::bit_ceil(2 * runs_.size()) - 1;
  std::vector<uint32_t> places(mask + 1, kNone);
  for (uint32_t i = 0; i < runs_.size(); ++i) {
    if (i + kRunsAhead < runs_.size()) __builtin_prefetch(&places[runs_[i + kRunsAhead].hash & mask]);
    Run& run = runs_[i];
    size_t place = run.hash & mask;
    const auto isOther = [&](const Run& known) {
      return known.hash != run.hash || !std::ranges::equal(ownerOf(known), ownerOf(run));
    };
    while (places[place] != kNone && isOther(runs_[places[place]])) place = (place + 1) & mask;
    if (places[place] != kNone) {
      runs_[places[place]].next = i;
      run.is_first = false;
    }
    places[place] = i;
  }
}

Result<std::unique_ptr<Zone>> ZoneBuilder::build() {
  auto zone = std::make_unique<Zone>(origin_, seed_);
  linkRuns();
  zone->table_.reserve(runs_.size());
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (i + kRunsAhead < runs_.size()) zone->table_.prefetchBucket(runs_[i + kRunsAhead].hash);
    if (!runs_[i].is_first) continue;
    if (auto added = addName(runs_[i], *zone); !added) return tl::unexpected(added.error());
  }
  for (const Run& run : runs_) {
    if (auto added = addNonTerminals(items_[run.first], *zone); !added) return tl::unexpected(added.error());
  }
  if (auto finished = finish(*zone); !finished) return tl::unexpected(finished.error());
  return zone;
}

Result<void> ZoneBuilder::addName(const Run& first_run, Zone& zone) {
  records_.clear();
  for (const Run* run = &first_run;; run = &runs_[run->next]) {
    for (uint32_t i = 0; i < run->count; ++i) records_.push_back(&items_[run->first + i]);
    if (run->next == kNone) break;
  }
  const std::span<const Item*> records(records_);
  if (records.size() > 1) std::ranges::stable_sort(records, {}, &Item::type);
  // A record that is there twice is one.
  std::unordered_set<std::string_view> known;
  const auto isKnown = [&](const Item* item) {
    const auto rdata = rdataOf(*item);
    return !known.insert({reinterpret_cast<const char*>(rdata.data()), rdata.size()}).second;
  };
  const Item& first = *records.front();
  Zone::Marks marks = marksBelow(ownerOf(first));
  const auto holds = [&](RrType type) {
    return std::ranges::any_of(records, [type](const Item* item) { return dns::isType(item->type, type); });
  };
  if (holds(RrType::kNs) && !isApex(first)) marks |= Zone::kCut;
  if (holds(RrType::kDname)) marks |= Zone::kDname;
  entry_.begin(ownerOf(first), marks, records::Source::kNone);
  distinct_.clear();
  for (size_t i = 0; i < records.size(); ++i) {
    if (i > 0 && records[i]->type != records[i - 1]->type) known.clear();
    if (records.size() == 1 || !isKnown(records[i])) distinct_.push_back(records[i]);
  }
  const std::span<const Item* const> distinct(distinct_);
  if (auto checked = checkName(distinct); !checked) return checked;
  size_t bytes = 0;
  size_t types = 0;
  for (size_t i = 0; i < distinct.size();) {
    if (++types > kMaxTypes) return failAt(*distinct[i], fmt::format("has more than {} types", kMaxTypes));
    size_t end = i + 1;
    while (end < distinct.size() && distinct[end]->type == distinct[i]->type) ++end;
    if (auto put = putRrset(distinct.subspan(i, end - i), bytes); !put) return put;
    i = end;
  }
  zone.record_count_ += distinct.size();
  if (holds(RrType::kNsec3)) return putNsec3(first, zone);
  records::Entry* const entry = entry_.build(zone.table_.arena(), 0);
  zone.table_.put(entry);
  if (holds(RrType::kNsec) && (marks & Zone::kHidden) == 0) zone.denial_.addNsec(*entry);
  return {};
}

// All records of an RRset have the TTL of the first one (RFC 2181 §5.2); signatures have those of what they sign.
Result<void> ZoneBuilder::putRrset(std::span<const Item* const> rrset, size_t& bytes) {
  const bool own_ttls = dns::isType(rrset.front()->type, RrType::kRrsig);
  bytes += kRrsetHeadSize;
  for (const Item* item : rrset) {
    bytes += dns::kRecordHeadSize + item->rdata_size;
    if (bytes > records::EntryBuilder::kMaxRecordBytes)
      return failAt(*item, fmt::format("has more than {} bytes of records", records::EntryBuilder::kMaxRecordBytes));
    entry_.add(static_cast<RrType>(item->type), own_ttls ? item->ttl_seconds : rrset.front()->ttl_seconds,
                rdataOf(*item));
  }
  return {};
}

Result<void> ZoneBuilder::putNsec3(const Item& first, Zone& zone) const {
  const auto owner = ownerOf(first);
  const auto hash = parseNsec3Label(owner.subspan(1, owner.front()));
  if (!hash || dns::parentOf(owner).size() != origin_.size()) return failAt(first, "is no name of an NSEC3 record");
  if (!zone.nsec3_) zone.nsec3_ = std::make_unique<records::RecordTable>(zone.epochs_, seed_);
  records::Entry* const entry = entry_.build(zone.nsec3_->arena(), 0);
  zone.nsec3_->put(entry);
  zone.denial_.addNsec3(*entry, *hash);
  return {};
}

Result<void> ZoneBuilder::checkName(std::span<const Item* const> records) const {
  const auto count = [&](RrType type) {
    return std::ranges::count_if(records, [type](const Item* item) { return dns::isType(item->type, type); });
  };
  const Item& last = *records.back();
  if (const auto soas = count(RrType::kSoa); soas > 0) {
    if (!isApex(last)) return failAt(last, "has a SOA, but is not the zone's name");
    if (soas > 1) return failAt(last, "has two SOA records");
  }
  if (count(RrType::kDname) > 1) return failAt(last, "has two DNAME records");
  const auto cnames = count(RrType::kCname);
  if (cnames == 0) return {};
  if (cnames > 1) return failAt(last, "has two CNAME records");
  const auto other = std::ranges::find_if(
      records, [](const Item* item) { return !dns::isType(item->type, RrType::kCname) && !isBesideCname(item->type); });
  return other == records.end() ? Result<void>() : failAt(**other, "has a CNAME and other records");
}

// kHidden, or nothing.
Zone::Marks ZoneBuilder::marksBelow(std::span<const uint8_t> name) const {
  if (hiding_.empty()) return 0;
  while (name.size() > origin_.size()) {
    name = dns::parentOf(name);
    if (hiding_.contains(hashOf(name))) return Zone::kHidden;
  }
  return 0;
}

Result<void> ZoneBuilder::addNonTerminals(const Item& item, Zone& zone) {
  std::span<const uint8_t> name = ownerOf(item);
  if (name.size() == origin_.size()) return {};
  for (name = dns::parentOf(name); name.size() > origin_.size() && zone.find(name) == nullptr;
       name = dns::parentOf(name)) {
    if (++non_terminals_ > limits_.non_terminals)
      return failAt(item, fmt::format("brings the zone to more than {} names without records", limits_.non_terminals));
    records::EntryBuilder builder(name, marksBelow(name));
    zone.table_.put(builder.build(zone.table_.arena(), 0));
  }
  return {};
}

Result<void> ZoneBuilder::finish(Zone& zone) {
  const std::string name = origin_.toString();
  const std::string where = files_.empty() ? name : files_.front();
  zone.out_of_zone_count_ = out_of_zone_;
  zone.apex_ = zone.find(origin_.wire());
  const auto soa = zone.apex_ != nullptr ? zone.apex_->find(dns::code(RrType::kSoa)) : records::Entry::Rrset();
  if (soa.count == 0) return fail(fmt::format("{}: {} has no SOA record", where, name));
  const uint8_t* const numbers = soa.wire.data() + soa.wire.size() - 20;
  zone.serial_ = dns::load32(numbers);
  zone.negative_ttl_ = std::min(dns::load32(soa.wire.data() + dns::kTtlOffset), dns::load32(numbers + 16));
  std::optional<Denial::Parameters> parameters;
  // With flags a chain is not complete (RFC 5155 §4.1.2).
  visitRecords(zone.apex_->find(kNsec3Param), [&](uint32_t, std::span<const uint8_t> rdata) {
    if (!parameters && rdata[1] == 0) parameters = Denial::parametersOf(rdata);
  });
  if (parameters && parameters->iterations > Denial::kMaxIterations)
    return fail(fmt::format("{}: {} has NSEC3 with more than {} iterations", where, name, Denial::kMaxIterations));
  zone.denial_.sort(parameters);
  return {};
}

}  // namespace idetcd::zones
