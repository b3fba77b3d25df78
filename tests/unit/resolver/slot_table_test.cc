#include "resolver/slot_table.h"

#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::resolver {
namespace {

struct Entry {
  uint64_t hash = 0;
  int number = 0;
};
using Table = SlotTable<Entry>;

Entry* find(const Table& table, const Entry& wanted) {
  return table.find(wanted.hash, [&wanted](const Entry& entry) { return entry.number == wanted.number; });
}

// Against std::unordered_map, through several growths, with hashes that collide.
TEST(SlotTable, FindsWhatItHasWhileItGrows) {
  std::mt19937_64 random(7);
  int discarded = 0;
  Table table([&discarded](Table::Slots) { ++discarded; });
  std::vector<std::unique_ptr<Entry>> entries;
  std::unordered_map<int, Entry*> model;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t hash = random() % 4 == 0 ? random() % 512 : random();
    Entry* entry = entries.emplace_back(std::make_unique<Entry>(Entry{.hash = hash, .number = i})).get();
    table.insert(hash, entry);
    model[i] = entry;
    const int other = static_cast<int>(random() % entries.size());
    ASSERT_EQ(find(table, *entries[other]) != nullptr, model.contains(other)) << i << " looks for " << other;
    if (random() % 5 == 0 && model.contains(other)) {
      table.erase(entries[other]->hash, entries[other].get());
      model.erase(other);
      ASSERT_EQ(find(table, *entries[other]), nullptr);
    }
    ASSERT_EQ(table.size(), model.size());
  }
  EXPECT_GE(discarded, 4) << "it has grown";
  for (const auto& entry : entries) {
    EXPECT_EQ(find(table, *entry), model.contains(entry->number) ? entry.get() : nullptr);
  }
}

// A table that is full to a half is given up long before the next one is, though each insertion takes over a few alone.
TEST(SlotTable, MovesInSteps) {
  int inserted = 0;
  std::vector<int> discarded_at;
  Table table([&](Table::Slots) { discarded_at.push_back(inserted); });
  std::vector<Entry> entries(6000);
  std::mt19937_64 random(7);
  for (Entry& entry : entries) {
    entry = {.hash = random(), .number = inserted};
    table.insert(entry.hash, &entry);
    ++inserted;
  }
  ASSERT_EQ(discarded_at.size(), 4u);
  int full = static_cast<int>(Table::kFirstSlots) / 2;
  for (const int at : discarded_at) {
    EXPECT_GE(at, full + 3 * full / static_cast<int>(Table::kStep)) << "3 looks an entry of the table that was full";
    EXPECT_LT(at, full * 3 / 2);
    full *= 2;
  }
}

}  // namespace
}  // namespace idetcd::resolver
