// Entries and their memory: entry.h, entry_arena.h.
#include "records/entry.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "records/entry_arena.h"
#include "table_support.h"

namespace idetcd::records {
namespace {

using test::name;
using test::numbered;
using test::rrsetCount;
using test::text;

Entry* build(EntryArena& arena, const dns::Name& owner, size_t rdata_size, uint8_t fill = 0) {
  const std::vector<uint8_t> rdata(rdata_size, fill);
  return EntryBuilder(owner.wire(), 1).add(dns::RrType::kTxt, 5, rdata).build(arena, 0);
}

TEST(EqualBytes, AgreesWithMemcmp) {
  std::string a(64, 'a');
  for (size_t size = 1; size <= 64; ++size) {  // a name is never empty
    // Copies of exactly this size on the heap: AddressSanitizer guards what is behind them.
    const std::vector<uint8_t> left(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(size));
    std::vector<uint8_t> right = left;
    EXPECT_TRUE(equalBytes(left.data(), right.data(), size)) << size;
    for (size_t i = 0; i < size; ++i) {
      right[i] ^= 0x20;
      EXPECT_FALSE(equalBytes(left.data(), right.data(), size)) << i << " of " << size;
      right[i] ^= 0x20;
    }
  }
}

TEST(Entry, RecordsOfOneTypeInARowAreOneRrset) {
  EntryArena arena;
  const dns::Name owner = numbered(1);
  const uint8_t first[] = {10, 0, 0, 1};
  const uint8_t second[] = {10, 0, 0, 2};
  const uint8_t aaaa[16] = {0xfd, 1};
  Entry* entry = EntryBuilder(owner.wire(), 0)
                     .add(dns::RrType::kA, 5, first)
                     .add(dns::RrType::kA, 6, second)
                     .add(dns::RrType::kAaaa, 5, aaaa)
                     .add(dns::RrType::kAaaa, 5, aaaa)
                     .build(arena, 0);
  EXPECT_EQ(rrsetCount(*entry), 2u);
  EXPECT_EQ(entry->find(1).count, 2);
  EXPECT_EQ(text(entry->find(1).wire),
            std::string("\xc0\x0c\0\1\0\1\0\0\0\5\0\4\x0a\0\0\1\xc0\x0c\0\1\0\1\0\0\0\6\0\4\x0a\0\0\2", 32));
  EXPECT_EQ(entry->find(28).count, 2);
  EXPECT_EQ(entry->find(28).wire.size(), 56u);
}

// Whatever the order in which they come.
TEST(EntryBuilder, MergesRecordsOfOneType) {
  EntryArena arena;
  const dns::Name owner = numbered(1);
  const uint8_t one[] = {10, 0, 0, 1}, two[] = {10, 0, 0, 2};
  const uint8_t note[] = {2, 'h', 'i'};
  const Rdata both[] = {one, two}, first[] = {one}, notes[] = {note};
  EntryBuilder builder;
  builder.begin(owner.wire(), 7, Source::kEtcd);
  builder.merge({dns::RrType::kA, 9, first});
  builder.merge({dns::RrType::kTxt, 8, notes});
  builder.merge({dns::RrType::kA, 5, both});
  builder.merge({dns::RrType::kTxt, 11, notes});
  Entry* entry = builder.build(arena, 0);
  EXPECT_EQ(entry->source(), Source::kEtcd);
  EXPECT_EQ(rrsetCount(*entry), 2u);
  EXPECT_EQ(text(entry->find(1).wire),
            std::string("\xc0\x0c\0\1\0\1\0\0\0\5\0\4\x0a\0\0\1\xc0\x0c\0\1\0\1\0\0\0\5\0\4\x0a\0\0\2", 32));
  EXPECT_EQ(text(entry->find(16).wire), std::string("\xc0\x0c\0\x10\0\1\0\0\0\x8\0\3\2hi", 15));
  EXPECT_EQ(text(entry->rrsetBytes()), text(builder.rrsets()));

  builder.begin(owner.wire(), 8, Source::kEtcd);
  builder.mergeAll(entry->rrsetBytes());
  EXPECT_EQ(text(entry->rrsetBytes()), text(builder.rrsets()));
}

TEST(EntryBuilder, LeavesOutWhatNoMessageHolds) {
  EntryArena arena;
  const dns::Name owner = numbered(1);
  EntryBuilder builder;
  builder.begin(owner.wire(), 7, Source::kEtcd);
  for (uint32_t i = 0; i < 5000; ++i) {
    uint8_t bytes[4];
    dns::store32(bytes, i);
    const Rdata rdata[] = {bytes};
    builder.merge({dns::RrType::kA, 5, rdata});
  }
  const std::vector<uint8_t> large(100);
  const Rdata notes[] = {large};
  builder.merge({dns::RrType::kTxt, 5, notes});
  Entry* entry = builder.build(arena, 0);
  EXPECT_EQ(entry->find(1).count, (EntryBuilder::kMaxRecordBytes - 6) / 16);
  EXPECT_EQ(entry->find(16).count, 0);
  EXPECT_EQ(rrsetCount(*entry), 1u);
  arena.free(entry);

  builder.begin(owner.wire(), 7, Source::kEtcd);
  const uint8_t byte[] = {0};
  const Rdata small[] = {byte};
  for (uint16_t type = 1000; type < 1300; ++type) builder.merge({static_cast<dns::RrType>(type), 5, small});
  entry = builder.build(arena, 0);
  EXPECT_EQ(rrsetCount(*entry), 255u);
  arena.free(entry);
}

TEST(Entry, HoldsWhatWasAdded) {
  EntryArena arena;
  const dns::Name owner = numbered(1);
  const uint8_t a[] = {10, 0, 0, 1};
  const uint8_t aaaa[16] = {0xfd, 1};
  Entry* entry = EntryBuilder(owner.wire(), 42)
                     .add(dns::RrType::kA, 5, a)
                     .add(dns::RrType::kAaaa, 0x01020304, aaaa)
                     .build(arena, 3);
  EXPECT_EQ(text(entry->name()), text(owner.wire()));
  EXPECT_TRUE(entry->isNamed(owner.wire()));
  EXPECT_FALSE(entry->isNamed(numbered(2).wire()));
  EXPECT_FALSE(entry->isNamed(numbered(11).wire()));
  EXPECT_FALSE(entry->isNamed(owner.parent().wire()));
  EXPECT_EQ(entry->modRevision(), 42);
  EXPECT_EQ(rrsetCount(*entry), 2u);
  EXPECT_EQ(text(entry->find(1).wire), std::string("\xc0\x0c\0\1\0\1\0\0\0\5\0\4\x0a\0\0\1", 16));
  EXPECT_EQ(entry->find(1).count, 1);
  EXPECT_EQ(text(entry->find(28).wire),
            std::string("\xc0\x0c\0\x1c\0\1\1\2\3\4\0\x10\xfd\1", 14) + std::string(14, '\0'));
  EXPECT_EQ(entry->find(16).count, 0);
  EXPECT_TRUE(entry->find(16).wire.empty());
  size_t visits = 0;
  EXPECT_FALSE(entry->visitRrsets([&](const Entry::Rrset&) { return ++visits == 3; }));
  EXPECT_EQ(visits, 2u);
  EXPECT_TRUE(entry->visitRrsets([&](const Entry::Rrset& rrset) { return rrset.type == 1; }));
  arena.free(entry);
}

TEST(Entry, MayBeEmpty) {
  EntryArena arena;
  const Entry* entry = EntryBuilder(dns::Name().wire(), 1).build(arena, 0);
  EXPECT_EQ(rrsetCount(*entry), 0u);
  EXPECT_EQ(entry->find(1).count, 0);
  EXPECT_TRUE(entry->isNamed(dns::Name().wire()));
}

TEST(Entry, UpToTheLargest) {
  EntryArena arena;
  const dns::Name owner = name("big.");
  const size_t largest = 65535 - sizeof(Entry) - owner.size() - 6 - 12;
  Entry* entry = build(arena, owner, largest, 0x5a);
  EXPECT_EQ(text(entry->find(16).wire.subspan(12)), std::string(largest, 0x5a));
  arena.free(entry);
}

TEST(EntryArena, UsesAgainWhatWasFreed) {
  EntryArena arena;
  for (const size_t rdata_size : {0u, 1u, 4u, 16u, 100u, 255u, 900u}) {
    Entry* first = build(arena, numbered(1), rdata_size);
    Entry* second = build(arena, numbered(1), rdata_size);
    EXPECT_NE(first, second);
    arena.free(first);
    arena.free(second);
    EXPECT_EQ(build(arena, numbered(1), rdata_size), second);
    EXPECT_EQ(build(arena, numbered(1), rdata_size), first);
  }
}

TEST(EntryArena, KeepsSizeClassesApart) {
  EntryArena arena;
  Entry* small = build(arena, numbered(1), 4);
  arena.free(small);
  EXPECT_NE(build(arena, numbered(1), 60), small);
}

// Entries of all sizes, over the border between chunks and heap, never share a byte.
TEST(EntryArena, EntriesDoNotOverlap) {
  EntryArena arena;
  std::mt19937 random(3);
  struct Live {
    Entry* entry;
    size_t size;
    uint8_t fill;
  };
  std::vector<Live> live;
  const dns::Name owner = name("x.");
  const auto intact = [](const Live& l) {
    return text(l.entry->find(16).wire.subspan(12)) == std::string(l.size, static_cast<char>(l.fill));
  };
  for (int round = 0; round < 20000; ++round) {
    if (live.size() > 500 || (!live.empty() && random() % 3 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      ASSERT_TRUE(intact(live.back()));
      arena.free(live.back().entry);
      live.pop_back();
    } else {
      const size_t size = random() % (round % 10 == 0 ? 3000 : 200);
      const auto fill = static_cast<uint8_t>(random());
      live.push_back({build(arena, owner, size, fill), size, fill});
      ASSERT_EQ(reinterpret_cast<uintptr_t>(live.back().entry) % 16, 0u);
    }
  }
  for (const Live& l : live) {
    ASSERT_TRUE(intact(l));
    arena.free(l.entry);
  }
}

}  // namespace
}  // namespace idetcd::records
