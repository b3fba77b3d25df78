// Keeps the names of the record store in a file (saved_names.h): reads them before etcd has answered, and writes them
// when they have changed, on a strand of its own, since that may take long. Scheduler's thread, unless said otherwise.
#pragma once

#include "base/executor.h"
#include "base/log.h"
#include "naming/context.h"
#include "naming/counters.h"
#include "naming/record_source.h"
#include "records/record_store.h"
#include "runtime/scheduler.h"
#include "runtime/task.h"

namespace idetcd::naming {

// Shared with what it has posted, which may come after the owner's end.
class NamesSaver : public std::enable_shared_from_this<NamesSaver> {
 public:
  struct Options {
    std::string file;
    std::string pattern;
    std::chrono::nanoseconds interval{std::chrono::seconds(30)};  // between two writings of the names; they are large
    size_t max_names = 10'000'000;                                // more are not read
  };

  // Arguments passed by reference outlive this, or are used until drain() has returned.
  NamesSaver(runtime::Scheduler& scheduler, records::RecordStore& store, RecordSource& source, FileCounters& counters,
             std::shared_ptr<Executor::Strand> strand, Options options, Logger log);

  // Reads the file into the store. `seen` is called for the revision of each name. Blocks on the file system. REQUIRES:
  // no task runs yet, so that the calling thread is the store's writer.
  void restore(const std::function<void(int64_t revision)>& seen);

  // Until `lifetime` ends.
  runtime::Task<void> saveRegularly(Lifetime& lifetime);
  // Fresh names that are not in the file, and no writing is under way.
  bool hasUnsaved() const;

  // --- after `lifetime` has ended; one thread ---
  // Writes the names, once more. REQUIRES: no writing is under way.
  void save();
  // A write in progress is left, and the file stays as it was.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }
  // Waits for the end of it: neither file nor store are touched from then on.
  void drain() { strand_->drain(); }

 private:
  runtime::Scheduler& scheduler_;
  records::RecordStore& store_;
  RecordSource& source_;
  FileCounters& counters_;
  const std::shared_ptr<Executor::Strand> strand_;
  const Options options_;
  const Logger log_;

  uint64_t saved_changes_ = 0;  // RecordSource::changes() when the names were last saved
  bool saving_ = false;
  std::atomic<bool> abandoned_{false};  // relaxed: it only hurries an end that is waited for
};

}  // namespace idetcd::naming
