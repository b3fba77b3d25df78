// From the records of a master file to a Zone. One thread; blocks on nothing.
//
// Left out are records out of the zone (counted), and records that are there twice. Refused, as at least two of BIND, NSD, Knot
// and PowerDNS refuse it: no SOA or two, a SOA that is not at the apex, CNAME beside other data, two CNAMEs or two DNAMEs of one
// name. Names below a DNAME or a delegation are taken, and hidden.
#pragma once

#include <unordered_set>

#include "base/result.h"
#include "zones/zone.h"

namespace idetcd::zones {

struct FilePlace {
  uint16_t file = 0;  // of ZoneBuilder::addFile()
  uint32_t line = 0;
};

struct FileRecord {
  std::span<const uint8_t> owner;  // folded
  uint16_t type = 0;
  uint32_t ttl_seconds = 0;
  std::span<const uint8_t> rdata;
};

class ZoneBuilder {
 public:
  struct Limits {
    size_t records = 20'000'000;
    size_t non_terminals = 40'000'000;  // names that only have others below them
  };

  ZoneBuilder(const dns::Name& origin, HashSeed seed) : ZoneBuilder(origin, seed, Limits()) {}
  ZoneBuilder(const dns::Name& origin, HashSeed seed, Limits limits) : origin_(origin), seed_(seed), limits_(limits) {}

  const dns::Name& origin() const { return origin_; }
  // Of which the records come that follow; for the places in errors.
  uint16_t addFile(const std::string& path);
  std::string describe(FilePlace place) const;

  // About how many bytes of text are to come.
  void reserve(size_t text_bytes);
  // Fails for one record more than the zone may have. The error is without the place.
  Result<void> add(const FileRecord& record, FilePlace place);

  // Errors begin with FILE:LINE. Called once.
  Result<std::unique_ptr<Zone>> build();

 private:
  struct Item {
    uint32_t owner = 0;  // offsets of heap_
    uint32_t rdata = 0;
    uint32_t ttl_seconds = 0;
    uint32_t line = 0;
    uint16_t rdata_size = 0;
    uint16_t type = 0;
    uint16_t file = 0;
    uint8_t owner_size = 0;
  };
  // Records of one owner in a row.
  struct Run {
    uint64_t hash;
    uint32_t first;
    uint32_t count;
    uint32_t next = kNone;  // the next run of the same owner
    bool is_first = true;   // of its owner
  };
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  std::span<const uint8_t> ownerOf(const Item& item) const { return {&heap_[item.owner], item.owner_size}; }
  std::span<const uint8_t> rdataOf(const Item& item) const { return {heap_.data() + item.rdata, item.rdata_size}; }
  bool isApex(const Item& item) const { return item.owner_size == origin_.size(); }
  uint64_t hashOf(std::span<const uint8_t> name) const { return hashBytes(name.data(), name.size(), seed_); }
  tl::unexpected<Error> failAt(const Item& item, std::string_view what) const;
  std::span<const uint8_t> ownerOf(const Run& run) const { return ownerOf(items_[run.first]); }
  void linkRuns();
  Result<void> addName(const Run& first_run, Zone& zone);
  Result<void> putRrset(std::span<const Item* const> rrset, size_t& bytes);
  Result<void> putNsec3(const Item& first, Zone& zone) const;
  Result<void> checkName(std::span<const Item* const> records) const;
  Result<void> addNonTerminals(const Item& item, Zone& zone);
  Zone::Marks marksBelow(std::span<const uint8_t> name) const;
  Result<void> finish(Zone& zone);

  const dns::Name origin_;
  const HashSeed seed_;
  const Limits limits_;
  std::vector<std::string> files_;
  std::vector<uint8_t> heap_;
  std::vector<Item> items_;
  std::vector<Run> runs_;
  size_t out_of_zone_ = 0;
  size_t non_terminals_ = 0;
  std::unordered_set<uint64_t> hiding_;  // hashes of the names with NS or DNAME below which names are hidden
  // Of the name that is being added; kept for their room.
  std::vector<const Item*> records_;
  std::vector<const Item*> distinct_;
  records::EntryBuilder entry_;
};

}  // namespace idetcd::zones
