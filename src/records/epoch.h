// Reclamation by quiescent states: an unlinked object is freed once every reader has been without references. A reader
// (one a loop) brackets each batch with a ReadSection, one store each way; outside it is quiescent, so a sleeping loop
// holds nothing back. A Reader belongs to one thread; retire() and reclaim() to the one writer; attach and detach to
// any.
#pragma once

#include "base/std.h"

namespace idetcd::records {

class EpochDomain {
 public:
  class Reader;

  EpochDomain() = default;
  ~EpochDomain();  // REQUIRES: every Reader is gone. Runs what is still retired.
  EpochDomain(const EpochDomain&) = delete;
  EpochDomain& operator=(const EpochDomain&) = delete;

  // --- writer ---
  using Free = void (*)(void* owner, void* object);
  // Calls free(owner, object) once no reader can still hold what was unlinked before this call.
  void retire(Free free, void* owner, void* object);
  // Runs what is due. Returns how many are not due yet.
  size_t reclaim();
  // Waits until all that `owner` has retired is due, and runs it: before the owner goes. Any thread.
  void drain(const void* owner);

 private:
  static constexpr uint64_t kQuiescent = 0;

  struct alignas(64) Slot {
    std::atomic<uint64_t> epoch{kQuiescent};
    bool in_use = false;  // guarded by mutex_
  };
  struct Retired {
    uint64_t epoch;  // free once no reader is in an older one
    Free free;
    void* owner;
    void* object;
  };

  uint64_t oldestReader();

  std::atomic<uint64_t> epoch_{1};
  std::mutex retired_mutex_;  // for drain(): uncontended otherwise
  std::deque<Retired> retired_;
  std::mutex mutex_;  // guards the list of slots, not what they hold
  std::vector<std::unique_ptr<Slot>> slots_;
};

class EpochDomain::Reader {
 public:
  explicit Reader(EpochDomain& domain);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // seq_cst store, then seq_cst loads of what is shared (record_table.h): either the writer's scan of the slots sees
  // this reader, or this reader sees what the writer had unlinked before the scan. On x86-64 only the store costs
  // anything.
  void enter() noexcept {
    slot_->epoch.store(domain_.epoch_.load(std::memory_order_seq_cst), std::memory_order_seq_cst);
  }
  // release: every read of the section is over before the writer may see the reader gone.
  void leave() noexcept { slot_->epoch.store(kQuiescent, std::memory_order_release); }

 private:
  EpochDomain& domain_;
  Slot* slot_;
};

// While it lives, what a look-up returned stays valid. Not to be nested for one Reader.
class ReadSection {
 public:
  explicit ReadSection(EpochDomain::Reader& reader) noexcept : reader_(reader) { reader_.enter(); }
  ~ReadSection() { reader_.leave(); }
  ReadSection(const ReadSection&) = delete;
  ReadSection& operator=(const ReadSection&) = delete;

 private:
  EpochDomain::Reader& reader_;
};

}  // namespace idetcd::records
