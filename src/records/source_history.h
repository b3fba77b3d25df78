// The order in which a source speaks of names, and which of them its snapshot has shown; the marks of both are in the
// entries. etcd says everything at a revision. A source without revisions has no snapshots: what it says last counts.
// Writer only.
#pragma once

#include "records/entry.h"

namespace idetcd::records {

class SourceHistory {
 public:
  enum class Order {
    kOlder,
    kSame,
    kNewer,
    kUnordered,
  };
  // How the revisions of a snapshot compare with those of what is stored.
  enum class Revisions : uint8_t {
    kGoOn,
    kRestarted,  // not at all: the store is another one, or was restored
  };
  // The marks of an entry; other sources leave them as they are.
  struct Stamp {
    int64_t revision = 0;
    uint32_t snapshot = 0;
  };

  explicit SourceHistory(bool has_revisions) : has_revisions_(has_revisions) {}

  // What is said at `revision`, compared with what is stored. REQUIRES: `stored` has something of this source.
  Order compare(Entry& stored, int64_t revision) const {
    if (!has_revisions_) return Order::kUnordered;
    if (!see(stored) && revisions_ == Revisions::kRestarted) return Order::kNewer;  // the revision stored says nothing
    if (revision == stored.mod_revision_) return Order::kSame;
    return revision < stored.mod_revision_ ? Order::kOlder : Order::kNewer;
  }
  bool isOlder(const Entry& stored, int64_t revision) const { return has_revisions_ && revision < stored.mod_revision_; }
  Stamp stamp(const Entry* old, int64_t revision) const {
    if (has_revisions_) return {revision, snapshot_};
    return old != nullptr ? Stamp{old->mod_revision_, old->snapshot_mark_} : Stamp{};
  }

  // That revisions were restarted is remembered until a snapshot ends.
  void beginSnapshot(Revisions revisions) {
    ++snapshot_;
    if (revisions == Revisions::kRestarted) revisions_ = revisions;
  }
  // The snapshot shows the entry. Whether it had done so.
  bool see(Entry& stored) const {
    const bool seen = stored.snapshot_mark_ == snapshot_;
    stored.snapshot_mark_ = snapshot_;
    return seen;
  }
  // What is stored is not in the snapshot, which is of this revision.
  bool hasGone(const Entry& stored, int64_t revision) const {
    if (stored.mod_revision_ == 0 || stored.snapshot_mark_ == snapshot_) return false;
    return stored.mod_revision_ <= revision || revisions_ == Revisions::kRestarted;
  }
  // Whether revisions were restarted.
  Revisions endSnapshot() { return std::exchange(revisions_, Revisions::kGoOn); }

 private:
  const bool has_revisions_;
  uint32_t snapshot_ = 1;
  Revisions revisions_ = Revisions::kGoOn;
};

}  // namespace idetcd::records
