// Readers that look up without a pause, under a writer that adds, changes, removes and grows without a pause. What a
// look-up returns must be whole: its addresses say which name and which version they belong to. Under ThreadSanitizer
// and AddressSanitizer (to which the arena is a heap) a use after free or an unordered access fails by itself.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "records/record_store.h"
#include "table_support.h"

namespace idetcd::records {
namespace {

using test::name;
using test::numbered;

constexpr auto kDuration = std::chrono::milliseconds(2500);
constexpr size_t kReaders = 3;
constexpr size_t kNames = 20000;
constexpr size_t kStable = 400;  // of them, every fiftieth: changed, never removed
constexpr size_t kBatch = 16;

bool isStable(size_t index) { return index % (kNames / kStable) == 0; }

// A: 6 bytes of what (name, version) is do not fit 4, so the version's low half; AAAA: all of it, mixed over 16
// bytes.
HostAddresses addressesOf(uint32_t index, uint32_t version) {
  std::array<uint8_t, 4> v4;
  dns::store16(v4.data(), static_cast<uint16_t>(index));
  dns::store16(v4.data() + 2, static_cast<uint16_t>(version));
  std::array<uint8_t, 16> v6;
  dns::store32(v6.data(), index);
  dns::store32(v6.data() + 4, version);
  dns::store64(v6.data() + 8, (uint64_t{index} << 32 | version) * 0x9e3779b97f4a7c15u);
  return {.ipv4 = IpAddress::v4(v4), .ipv6 = IpAddress::v6(v6)};
}

struct Look {
  bool whole = false;
  uint32_t version = 0;
};
Look lookAt(const Entry& entry, uint32_t index) {
  const Entry::Rrset a = entry.find(1);
  const Entry::Rrset aaaa = entry.find(28);
  if (a.wire.size() != 16 || aaaa.wire.size() != 28) return {};
  const uint32_t version = dns::load32(aaaa.wire.data() + 16);
  const HostAddresses expected = addressesOf(index, version);
  return {.whole = std::memcmp(a.wire.data() + 12, expected.ipv4->data(), 4) == 0 &&
                   std::memcmp(aaaa.wire.data() + 12, expected.ipv6->data(), 16) == 0 && entry.modRevision() == version,
          .version = version};
}

struct Findings {
  std::atomic<uint64_t> looks{0};
  std::atomic<uint64_t> found{0};
  std::atomic<uint64_t> torn{0};     // an entry that is not of one piece
  std::atomic<uint64_t> missing{0};  // a stable name that was not found
  std::atomic<uint64_t> older{0};    // a stable name that went back to an older version
};

class Reading {
 public:
  Reading(const RecordStore& store, EpochDomain& epochs, const std::vector<dns::Name>& names, Findings& findings)
      : store_(store), reader_(epochs), names_(names), findings_(findings), last_version_(names.size()) {}

  // A batch as the server works it off: hash all, prefetch all, find all, then use all.
  void batch(std::mt19937& random) {
    size_t indices[kBatch];
    uint64_t hashes[kBatch];
    const Entry* entries[kBatch];
    for (size_t i = 0; i < kBatch; ++i) {
      const size_t any = random() % names_.size();
      indices[i] = i % 4 == 0 ? any / (kNames / kStable) * (kNames / kStable) : any;
      hashes[i] = hashBytes(names_[indices[i]].data(), names_[indices[i]].size(), store_.table().seed());
    }
    const ReadSection section(reader_);
    for (const uint64_t hash : hashes) store_.table().prefetchBucket(hash);
    for (const uint64_t hash : hashes) store_.table().prefetchEntry(hash);
    for (size_t i = 0; i < kBatch; ++i) entries[i] = store_.table().find(hashes[i], names_[indices[i]].wire());
    for (size_t i = 0; i < kBatch; ++i) judge(indices[i], entries[i]);
    findings_.looks.fetch_add(kBatch, std::memory_order_relaxed);
  }

 private:
  void judge(size_t index, const Entry* entry) {
    if (entry == nullptr) {
      if (isStable(index)) findings_.missing.fetch_add(1);
      return;
    }
    findings_.found.fetch_add(1, std::memory_order_relaxed);
    const Look look = lookAt(*entry, static_cast<uint32_t>(index));
    if (!look.whole || !entry->isNamed(names_[index].wire())) findings_.torn.fetch_add(1);
    if (look.version < last_version_[index]) findings_.older.fetch_add(1);
    last_version_[index] = look.version;
  }

  const RecordStore& store_;
  EpochDomain::Reader reader_;
  const std::vector<dns::Name>& names_;
  Findings& findings_;
  std::vector<uint32_t> last_version_;
};

class Writing {
 public:
  Writing(RecordStore& store, const std::vector<dns::Name>& names) : store_(store), names_(names) {}

  void put(size_t index) {
    ++revision_;
    store_.put(names_[index], addressesOf(static_cast<uint32_t>(index), static_cast<uint32_t>(revision_)), revision_);
  }
  void putAllStable() {
    for (size_t i = 0; i < names_.size(); i += kNames / kStable) put(i);
  }
  void remove(size_t index) {
    if (!isStable(index)) store_.remove(names_[index], ++revision_);
  }
  // A resync that sees the stable names, as they are or changed, and forgets all others at its end.
  void resync() {
    store_.beginSnapshot(SourceHistory::Revisions::kGoOn);
    putAllStable();
    store_.endSnapshot(revision_);
  }

 private:
  RecordStore& store_;
  const std::vector<dns::Name>& names_;
  int64_t revision_ = 0;
};

TEST(RecordStoreStress, ReadersSeeWholeEntriesAndAllThatIsThere) {
  EpochDomain epochs;
  const std::string zone = "tf.local.";
  RecordStore store(epochs, {.zone = name(zone), .addresses = {}, .hash_seed = 17});
  std::vector<dns::Name> names;
  for (size_t i = 0; i < kNames; ++i) {
    // Some with empty non-terminals above them.
    names.push_back(i % 3 == 0 ? name("n" + std::to_string(i) + ".rack" + std::to_string(i % 32) + "." + zone)
                               : numbered(i));
  }
  Writing writing(store, names);
  writing.putAllStable();

  Findings findings;
  std::atomic<bool> done{false};
  std::atomic<size_t> started{0};
  std::vector<std::thread> threads;
  for (size_t r = 0; r < kReaders; ++r) {
    threads.emplace_back([&, r] {
      Reading reading(store, epochs, names, findings);
      std::mt19937 random(static_cast<unsigned>(r));
      started.fetch_add(1);
      while (!done.load(std::memory_order_relaxed)) reading.batch(random);
    });
  }
  while (started.load() < kReaders) std::this_thread::yield();

  std::mt19937 random(99);
  const auto end = std::chrono::steady_clock::now() + kDuration;
  size_t rounds = 0;
  for (; std::chrono::steady_clock::now() < end; ++rounds) {
    for (size_t i = 0; i < names.size() && std::chrono::steady_clock::now() < end; ++i) {  // grows on the first round
      writing.put(i);
      if (i % 2 == 0) writing.put(random() % (i + 1));
      if (i % 3 == 0) writing.remove(random() % (i + 1));
    }
    writing.resync();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(findings.torn.load(), 0u);
  EXPECT_EQ(findings.missing.load(), 0u);
  EXPECT_EQ(findings.older.load(), 0u);
  EXPECT_GT(findings.found.load(), 0u);
  EXPECT_EQ(store.size(), kStable);
  RecordProperty("looks", std::to_string(findings.looks.load()));
  RecordProperty("rounds", std::to_string(rounds));
}

// Each address has a name that stays, whose entry is replaced, and others that come and go: as many as make the address
// lead to one name, to several, and to more than an answer holds.
TEST(RecordStoreStress, AnAddressAlwaysLeadsToItsName) {
  constexpr uint32_t kAddresses = 300;
  EpochDomain epochs;
  RecordStore store(
      epochs, {.zone = name("tf.local."), .addresses = {}, .hash_seed = 17, .is_member = [](const dns::Name& n) {
                 return n.toString().starts_with("worker");
               }});
  const auto address = [](uint32_t i) {
    std::array<uint8_t, 4> bytes;
    dns::store32(bytes.data(), 10u << 24 | i);
    return IpAddress::v4(bytes);
  };
  int64_t revision = 0;
  const auto put = [&](const dns::Name& owner, uint32_t i) {
    store.put(owner, {.ipv4 = address(i), .ipv6 = {}}, ++revision);
  };
  for (uint32_t i = 0; i < kAddresses; ++i) put(numbered(i), i);
  std::vector<dns::Name> above;
  for (uint32_t i = 0; i < kAddresses; ++i) above.push_back(dns::reverseName(address(i)).parent());

  std::atomic<bool> done{false};
  std::atomic<uint64_t> looks{0}, missing{0}, wrong{0};
  std::vector<std::thread> threads;
  for (size_t r = 0; r < kReaders; ++r) {
    threads.emplace_back([&, r] {
      EpochDomain::Reader reader(epochs);
      std::mt19937 random(static_cast<unsigned>(r));
      while (!done.load(std::memory_order_relaxed)) {
        const ReadSection section(reader);
        const uint32_t i = random() % kAddresses;
        const ReverseIndex::Names names = store.reverse().find(address(i));
        const auto entries = names.entries();
        if (entries.empty() || !entries.front()->isNamed(numbered(i).wire())) missing.fetch_add(1);
        if (!store.reverse().isAboveHeld(above[i].wire())) missing.fetch_add(1);
        for (const Entry* entry : entries) {
          bool has = false;
          visitAddresses(*entry, [&](const IpAddress& a, uint32_t) { has = has || a == address(i); });
          if (!has) wrong.fetch_add(1);
        }
        looks.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  std::mt19937 random(7);
  std::vector<dns::Name> others;
  for (uint32_t i = 0; i < 4000; ++i) others.push_back(name("x" + std::to_string(i) + ".tf.local."));
  const auto end = std::chrono::steady_clock::now() + kDuration;
  while (std::chrono::steady_clock::now() < end) {
    for (uint32_t i = 0; i < kAddresses; ++i) put(numbered(i), i);
    for (int i = 0; i < 500; ++i) put(others[random() % others.size()], 1000 + random() % 30000);
    for (int i = 0; i < 500; ++i)
      put(others[random() % others.size()], random() % (random() % 8 == 0 ? 3 : kAddresses));
    for (int i = 0; i < 500; ++i) store.remove(others[random() % others.size()], ++revision);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(looks.load(), 0u);
  EXPECT_EQ(missing.load(), 0u);
}

}  // namespace
}  // namespace idetcd::records
