#include "records/reverse_index.h"

#include "dns/name.h"
#include "records/entry_arena.h"

namespace idetcd::records {

bool hasReverseName(const IpAddress& address) {
  static const IpAddress kLoopback4 = IpAddress::v4({127, 0, 0, 1});
  static const IpAddress kLoopback6 = IpAddress::v6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  return !address.isUnspecified() && address != kLoopback4 && address != kLoopback6;
}

ReverseIndex::ReverseIndex(EpochDomain& epochs, HashSeed seed, IsMember is_member)
    : epochs_(epochs),
      seed_(seed),
      is_member_(std::move(is_member)),
      directory_(makeDirectory(kFirstCapacity)),
      networks_(epochs, seed) {}

ReverseIndex::~ReverseIndex() {
  epochs_.drain(this);
  const Directory& dir = directory();
  for (size_t i = 0; i < dir.capacity; ++i) {
    const uint64_t word = dir.slots[i].load(std::memory_order_relaxed);
    if (word > kTombstone && isGroup(word)) delete groupOf(word);
  }
  freeDirectory(nullptr, directory_.load(std::memory_order_relaxed));
}

ReverseIndex::Directory* ReverseIndex::makeDirectory(size_t capacity) {
  assert(capacity >> 32 == 0);
  auto* slots = static_cast<std::atomic<uint64_t>*>(mapPages(capacity * sizeof(uint64_t)));  // zeroed: all are empty
  std::uninitialized_default_construct_n(slots, capacity);
  return new Directory{slots, capacity};
}

void ReverseIndex::freeDirectory(void* /*owner*/, void* directory) {
  const std::unique_ptr<Directory> dir(static_cast<Directory*>(directory));
  unmapPages(dir->slots, dir->capacity * sizeof(uint64_t));
}

void ReverseIndex::freeGroup(void* /*owner*/, void* group) { delete static_cast<Group*>(group); }

void ReverseIndex::retire(EpochDomain::Free free, void* object) {
  constexpr size_t kReclaimEvery = 64;
  epochs_.retire(free, this, object);
  if (++retired_since_reclaim_ < kReclaimEvery) return;
  retired_since_reclaim_ = 0;
  epochs_.reclaim();
}

uint64_t ReverseIndex::wordOf(uint64_t hash, const void* pointer, uint64_t bits) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  assert(address >> kPointerBits == 0 && (address & kGroupBit) == 0);
  return tagOf(hash) << kPointerBits | address | bits;
}

bool ReverseIndex::isOf(uint64_t word, const IpAddress& address) {
  if (isGroup(word)) return groupOf(word)->address == address;
  bool found = false;
  visitAddresses(*entryOf(word), [&](const IpAddress& a, uint32_t) { found = found || a == address; });
  return found;
}

// Readers' and the writer's.
ReverseIndex::Place ReverseIndex::locate(const Directory& dir, const IpAddress& address, uint64_t hash) {
  const uint64_t tag = tagOf(hash);
  for (size_t i = homeOf(dir, hash);;) {
    const uint64_t word = dir.slots[i].load(std::memory_order_seq_cst);  // see EpochDomain::Reader::enter()
    if (word == kEmpty) return {};                                       // there always is one
    if (word >> kPointerBits == tag && isOf(word, address)) return {&dir.slots[i], word};
    if (++i == dir.capacity) i = 0;
  }
}

std::atomic<uint64_t>* ReverseIndex::freePlace(const Directory& dir, uint64_t hash) {
  size_t i = homeOf(dir, hash);
  while (dir.slots[i].load(std::memory_order_relaxed) > kTombstone) {
    if (++i == dir.capacity) i = 0;
  }
  return &dir.slots[i];
}

ReverseIndex::Names ReverseIndex::find(const IpAddress& address) const {
  Names names;
  const uint64_t word = locate(directory(), address, hashOf(address)).word;
  if (word == kEmpty) return names;
  if (!isGroup(word)) {
    names.entries_[names.count_++] = entryOf(word);
  } else {
    for (const Candidate& member : groupOf(word)->members) names.entries_[names.count_++] = member.entry;
  }
  return names;
}

// --- writer ---

void ReverseIndex::replace(const Entry* old, const Entry* fresh) {
  const auto has = [](const Entry* entry, const IpAddress& address) {
    bool found = false;
    if (entry != nullptr) visitAddresses(*entry, [&](const IpAddress& a, uint32_t) { found = found || a == address; });
    return found;
  };
  if (fresh != nullptr) {
    visitAddresses(*fresh, [&](const IpAddress& address, uint32_t) {
      has(old, address) ? swap(address, old, fresh) : add(address, fresh);
    });
  }
  if (old == nullptr) return;
  visitAddresses(*old, [&](const IpAddress& address, uint32_t) {
    if (!has(fresh, address)) remove(address, old);
  });
}

void ReverseIndex::add(const IpAddress& address, const Entry* fresh) {
  const uint64_t hash = hashOf(address);
  const auto [slot, word] = locate(directory(), address, hash);
  if (slot == nullptr) {
    networks_.add(address);
    return insert(hash, wordOf(hash, fresh, 0));
  }
  std::vector<Candidate> members =
      isGroup(word) ? groupOf(word)->members : std::vector<Candidate>{candidate(entryOf(word))};
  const Candidate added = candidate(fresh);
  if (members.size() == kMaxNames) {
    Waiting& waiting = waiting_[address];
    if (Before()(members.back(), added)) {
      waiting.insert(added);
      return;
    }
    waiting.insert(members.back());
    members.pop_back();
  }
  members.insert(std::upper_bound(members.begin(), members.end(), added, Before()), added);
  publish(slot, hash, address, std::move(members));
}

void ReverseIndex::swap(const IpAddress& address, const Entry* old, const Entry* fresh) {
  const uint64_t hash = hashOf(address);
  const auto [slot, word] = locate(directory(), address, hash);
  if (!isGroup(word)) return slot->store(wordOf(hash, fresh, 0), std::memory_order_seq_cst);
  std::vector<Candidate> members = groupOf(word)->members;
  const auto member =
      std::find_if(members.begin(), members.end(), [old](const Candidate& c) { return c.entry == old; });
  if (member == members.end()) {
    Waiting& waiting = waiting_.at(address);
    waiting.erase(candidate(old));
    waiting.insert(candidate(fresh));
    return;
  }
  member->entry = fresh;
  publish(slot, hash, address, std::move(members));
}

void ReverseIndex::remove(const IpAddress& address, const Entry* old) {
  const uint64_t hash = hashOf(address);
  const auto [slot, word] = locate(directory(), address, hash);
  if (!isGroup(word)) {
    networks_.remove(address);
    return erase(slot);
  }
  const auto waiting = waiting_.find(address);
  std::vector<Candidate> members = groupOf(word)->members;
  if (std::erase_if(members, [old](const Candidate& c) { return c.entry == old; }) > 0) {
    if (waiting != waiting_.end()) {
      members.push_back(*waiting->second.begin());
      waiting->second.erase(waiting->second.begin());
    }
    publish(slot, hash, address, std::move(members));
  } else {
    waiting->second.erase(candidate(old));
  }
  if (waiting != waiting_.end() && waiting->second.empty()) waiting_.erase(waiting);
}

void ReverseIndex::insert(uint64_t hash, uint64_t word) {
  makeRoom();
  std::atomic<uint64_t>* slot = freePlace(directory(), hash);
  if (slot->load(std::memory_order_relaxed) == kTombstone) --tombstones_;
  slot->store(word, std::memory_order_seq_cst);
  ++live_;
}

// A probe that goes past a slot ends at the next one anyway if that is empty.
void ReverseIndex::erase(std::atomic<uint64_t>* slot) {
  const Directory& dir = directory();
  const std::atomic<uint64_t>* next = slot + 1 == dir.slots + dir.capacity ? dir.slots : slot + 1;
  const bool at_end = next->load(std::memory_order_relaxed) == kEmpty;
  slot->store(at_end ? kEmpty : kTombstone, std::memory_order_seq_cst);
  if (!at_end) ++tombstones_;
  --live_;
}

// In place of what the slot holds of the address. REQUIRES: there are members.
void ReverseIndex::publish(std::atomic<uint64_t>* slot, uint64_t hash, const IpAddress& address,
                           std::vector<Candidate> members) {
  assert(!members.empty());
  const uint64_t old = slot->load(std::memory_order_relaxed);
  const uint64_t word = members.size() == 1 ? wordOf(hash, members.front().entry, 0)
                                            : wordOf(hash, new Group{address, std::move(members)}, kGroupBit);
  slot->store(word, std::memory_order_seq_cst);
  if (isGroup(old)) retire(freeGroup, const_cast<Group*>(groupOf(old)));
}

void ReverseIndex::makeRoom() {
  const size_t capacity = directory().capacity;
  if (live_ + tombstones_ + 1 <= capacity / 20 * 17) return;
  constexpr size_t kSmall = 4096;
  const size_t larger = capacity < kSmall ? capacity * 2 : capacity / 4 * 5;
  rebuild(live_ > capacity / 5 * 3 ? larger : capacity);
}

void ReverseIndex::rebuild(size_t capacity) {
  constexpr size_t kAhead = 16;
  Directory* old = directory_.load(std::memory_order_relaxed);
  Directory* fresh = makeDirectory(capacity);
  for (size_t i = 0; i < old->capacity; ++i) {
    if (i + kAhead < old->capacity) {
      __builtin_prefetch(entryOf(old->slots[i + kAhead].load(std::memory_order_relaxed) & ~kGroupBit));
    }
    const uint64_t word = old->slots[i].load(std::memory_order_relaxed);
    if (word > kTombstone) reinsert(*old, *fresh, word);
  }
  directory_.store(fresh, std::memory_order_seq_cst);
  capacity_.store(capacity, std::memory_order_relaxed);
  tombstones_ = 0;
  retire(freeDirectory, old);
  epochs_.reclaim();  // large
}

// The word of an entry with several addresses does not say of which one it is, but for the tag. Where two of them have
// one tag, the old directory knows, and the fresh one, which of them was here already.
void ReverseIndex::reinsert(const Directory& old, const Directory& fresh, uint64_t word) const {
  const auto put = [&](uint64_t hash) { freePlace(fresh, hash)->store(word, std::memory_order_relaxed); };
  if (isGroup(word)) return put(hashOf(groupOf(word)->address));
  uint64_t hash = 0;
  size_t count = 0;
  const uint64_t tag = word >> kPointerBits;
  const auto visit_tagged = [&](auto visit) {
    visitAddresses(*entryOf(word), [&](const IpAddress& address, uint32_t) {
      const uint64_t h = hashOf(address);
      if (tagOf(h) == tag) visit(address, h);
    });
  };
  visit_tagged([&](const IpAddress&, uint64_t h) {
    hash = h;
    ++count;
  });
  if (count == 1) return put(hash);
  visit_tagged([&](const IpAddress& address, uint64_t h) {
    if (locate(old, address, h).word == word && locate(fresh, address, h).slot == nullptr) put(h);
  });
}

ReverseIndex::Candidate ReverseIndex::candidate(const Entry* entry) const {
  return {entry, is_member_ && is_member_(dns::Name::fromWire(entry->name()))};
}

bool ReverseIndex::Before::operator()(const Candidate& a, const Candidate& b) const {
  if (a.first != b.first) return a.first;
  const auto left = a.entry->name();
  const auto right = b.entry->name();
  if (left.size() != right.size()) return left.size() < right.size();
  return std::memcmp(left.data(), right.data(), left.size()) < 0;
}

}  // namespace idetcd::records
