// One interface over three tables from a name to its A record: ours, liburcu's cds_lfht (QSBR flavour, its fastest),
// and a std::unordered_map under a mutex. Each hashes names with the same seeded hash, keeps the name to compare it,
// and a look-up reads the record's data. The two others are given the number of names, since that is where they are
// at their best: cds_lfht grows in a thread of its own, and is slow until that has caught up. Ours grows by itself.
//
//   Table(expected)             0: unknown
//   WriterThread                made first on a thread that writes; pause() and resume() around a sleep
//   put(name, address)          insert or replace; the writer's thread
//   erase(name)
//   enter() … leave()           around look-ups: what a loop does around a batch
//   lookUp(name) -> uint8_t     the last byte of the address; 0: no such name
//   lookUpBatch(names, count)   the sum of as many; ours in three passes
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include <urcu/urcu-qsbr.h>
// (the flavour before the table that takes it)
#include <urcu/rculfhash.h>

#include "base/hash.h"
#include "dns/name.h"
#include "records/entry.h"
#include "records/record_table.h"

namespace idetcd::bench {

inline constexpr HashSeed kSeed = 0x5eed;
inline constexpr size_t kBatchSize = 64;

using Address = std::array<uint8_t, 4>;

// A wire name, 32 bytes apart: as dense as in a batch of packets, or denser.
struct Key {
  uint8_t size;
  std::array<uint8_t, 31> bytes;
  std::span<const uint8_t> span() const { return {bytes.data(), size}; }
  uint64_t hash() const { return hashBytes(bytes.data(), size, kSeed); }
};

// A table that need not know of threads.
struct AnyThread {
  static void pause() {}
  static void resume() {}
};

class IdetcdTable {
 public:
  using WriterThread = AnyThread;

  explicit IdetcdTable(size_t /*expected*/) : table_(epochs_, kSeed) {}

  void put(const Key& key, Address address) {
    records::EntryBuilder builder(key.span(), 1);
    builder.add(dns::RrType::kA, 5, address);
    table_.put(builder.build(table_.arena(), 0));
  }
  void erase(const Key& key) { table_.erase(key.span()); }

  class Reader {
   public:
    explicit Reader(IdetcdTable& table) : table_(table.table_), reader_(table.epochs_) {}
    void enter() { reader_.enter(); }
    void leave() { reader_.leave(); }
    uint8_t lookUp(const Key& key) const { return lastOctet(table_.find(key.hash(), key.span())); }
    uint64_t lookUpBatch(const Key* keys, size_t count) const {
      uint64_t hashes[kBatchSize];
      uint64_t sum = 0;
      for (size_t i = 0; i < count; ++i) {
        hashes[i] = keys[i].hash();
        table_.prefetchBucket(hashes[i]);
      }
      for (size_t i = 0; i < count; ++i) table_.prefetchEntry(hashes[i]);
      for (size_t i = 0; i < count; ++i) sum += lastOctet(table_.find(hashes[i], keys[i].span()));
      return sum;
    }

   private:
    static uint8_t lastOctet(const records::Entry* entry) {
      return entry != nullptr ? entry->find(dns::code(dns::RrType::kA)).wire.back() : 0;
    }
    const records::RecordTable& table_;
    records::EpochDomain::Reader reader_;
  };

 private:
  records::EpochDomain epochs_;
  records::RecordTable table_;
};

// liburcu wants to know every thread that reads or frees, once.
class UrcuThread {
 public:
  UrcuThread() { urcu_qsbr_register_thread(); }
  ~UrcuThread() { urcu_qsbr_unregister_thread(); }
  UrcuThread(const UrcuThread&) = delete;
  UrcuThread& operator=(const UrcuThread&) = delete;

  static void ensure() { thread_local const UrcuThread thread; }
};

class UrcuTable {
 public:
  struct WriterThread {
    WriterThread() { UrcuThread::ensure(); }
    static void pause() { urcu_qsbr_thread_offline(); }
    static void resume() { urcu_qsbr_thread_online(); }
  };

  explicit UrcuTable(size_t expected) {
    UrcuThread::ensure();
    const size_t buckets = std::bit_ceil(std::max<size_t>(expected, 1024));
    // Without a count of its entries it takes any long chain for a full table, and grows without end.
    const int growth = expected == 0 ? CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING : 0;
    table_ = cds_lfht_new_flavor(buckets, 1024, 0, growth, &urcu_qsbr_flavor, nullptr);
  }
  ~UrcuTable() {
    cds_lfht_iter iterator;
    for (cds_lfht_first(table_, &iterator); cds_lfht_node* node = cds_lfht_iter_get_node(&iterator);) {
      cds_lfht_next(table_, &iterator);
      cds_lfht_del(table_, node);
      delete Node::of(node);
    }
    urcu_qsbr_thread_offline();
    cds_lfht_destroy(table_, nullptr);
    urcu_qsbr_thread_online();
  }
  UrcuTable(const UrcuTable&) = delete;
  UrcuTable& operator=(const UrcuTable&) = delete;

  void put(const Key& key, Address address) {
    auto* node = new Node{.node = {}, .rcu = {}, .key = key, .address = address};
    cds_lfht_node_init(&node->node);
    urcu_qsbr_read_lock();
    cds_lfht_node* old = cds_lfht_add_replace(table_, key.hash(), &Node::matches, &key, &node->node);
    urcu_qsbr_read_unlock();
    if (old != nullptr) free(old);
    pass();
  }
  void erase(const Key& key) {
    urcu_qsbr_read_lock();
    cds_lfht_iter iterator;
    cds_lfht_lookup(table_, key.hash(), &Node::matches, &key, &iterator);
    cds_lfht_node* node = cds_lfht_iter_get_node(&iterator);
    const bool removed = node != nullptr && cds_lfht_del(table_, node) == 0;
    urcu_qsbr_read_unlock();
    if (removed) free(node);
    pass();
  }

  class Reader {
   public:
    explicit Reader(UrcuTable& table) : table_(table.table_) { UrcuThread::ensure(); }
    void enter() { urcu_qsbr_read_lock(); }
    void leave() {
      urcu_qsbr_read_unlock();
      urcu_qsbr_quiescent_state();
    }
    uint8_t lookUp(const Key& key) const {
      cds_lfht_iter iterator;
      cds_lfht_lookup(table_, key.hash(), &Node::matches, &key, &iterator);
      cds_lfht_node* node = cds_lfht_iter_get_node(&iterator);
      return node != nullptr ? Node::of(node)->address[3] : 0;
    }
    uint64_t lookUpBatch(const Key* keys, size_t count) const {
      uint64_t sum = 0;
      for (size_t i = 0; i < count; ++i) sum += lookUp(keys[i]);
      return sum;
    }

   private:
    cds_lfht* table_;
  };

 private:
  struct Node {
    cds_lfht_node node;  // first: a pointer to it is one to the Node
    rcu_head rcu;
    Key key;
    Address address;

    static Node* of(cds_lfht_node* node) { return reinterpret_cast<Node*>(node); }
    static int matches(cds_lfht_node* node, const void* key) {
      const Key& wanted = *static_cast<const Key*>(key);
      const Key& held = of(node)->key;
      return held.size == wanted.size && records::equalBytes(held.bytes.data(), wanted.bytes.data(), held.size);
    }
  };

  static void free(cds_lfht_node* node) {
    urcu_qsbr_call_rcu(&Node::of(node)->rcu, [](rcu_head* head) {
      delete reinterpret_cast<Node*>(reinterpret_cast<char*>(head) - offsetof(Node, rcu));
    });
  }
  void pass() {
    if (++operations_ % kBatchSize == 0) urcu_qsbr_quiescent_state();
  }

  cds_lfht* table_;
  size_t operations_ = 0;
};

class MutexMap {
 public:
  using WriterThread = AnyThread;

  explicit MutexMap(size_t expected) { map_.reserve(expected); }

  void put(const Key& key, Address address) {
    const std::lock_guard lock(mutex_);
    map_[std::string(view(key))] = address;
  }
  void erase(const Key& key) {
    const std::lock_guard lock(mutex_);
    if (const auto found = map_.find(view(key)); found != map_.end()) map_.erase(found);
  }

  class Reader {
   public:
    explicit Reader(MutexMap& table) : table_(table) {}
    void enter() {}
    void leave() {}
    uint8_t lookUp(const Key& key) const {
      const std::lock_guard lock(table_.mutex_);
      const auto found = table_.map_.find(view(key));
      return found != table_.map_.end() ? found->second[3] : 0;
    }
    // One lock for the batch.
    uint64_t lookUpBatch(const Key* keys, size_t count) const {
      const std::lock_guard lock(table_.mutex_);
      uint64_t sum = 0;
      for (size_t i = 0; i < count; ++i) {
        const auto found = table_.map_.find(view(keys[i]));
        if (found != table_.map_.end()) sum += found->second[3];
      }
      return sum;
    }

   private:
    MutexMap& table_;
  };

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return hashBytes(name.data(), name.size(), kSeed); }
  };
  static std::string_view view(const Key& key) { return {reinterpret_cast<const char*>(key.bytes.data()), key.size}; }

  std::mutex mutex_;
  std::unordered_map<std::string, Address, Hash, std::equal_to<>> map_;
};

}  // namespace idetcd::bench
