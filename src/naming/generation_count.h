// Counts the changes of a cluster's membership (generation.h): the revision of the last one, of what the names show, what is
// seen to go, and what was noted in etcd; and the offset of a store that was set back. No I/O. Scheduler's thread only.
#pragma once

#include <map>
#include <unordered_map>

#include "slots/name_pattern.h"
#include "store/store.h"

namespace idetcd::naming {

class GenerationCount {
 public:
  // A name's key as of one moment.
  struct Member {
    int64_t create_revision = 0;
    uint64_t value = 0;  // a hash
    bool operator==(const Member&) const = default;
  };
  using Members = std::unordered_map<int64_t, Member>;  // by ID
  static Member memberOf(const store::KeyValue& kv);

  // What is kept in etcd for those that come later.
  struct Note {
    int64_t revision = 0;
    int64_t offset = 0;
    // None: it is no note. A hand may write anything.
    static std::optional<Note> parse(std::string_view text);
    std::string text() const { return fmt::format("{} {}", revision, offset); }
  };

  explicit GenerationCount(slots::NamePattern pattern) : pattern_(std::move(pattern)) {}

  // --- what comes into the table of names, in its order ---
  // `by_node`: of this program.
  void put(const store::KeyValue& kv, bool by_node);
  void remove(std::string_view name, int64_t revision);
  // `revisions_restarted`: those of before, and the offset, say nothing about this store.
  void beginSnapshot(bool revisions_restarted);
  // A name that was not in the snapshot at this revision.
  void vanished(std::string_view name, int64_t revision);
  void endSnapshot();

  // --- the note ---
  // It is in the store now, by another node: its offset counts, and not the one that this node would take.
  void learn(const Note& note);
  // Names that a snapshot lacks have gone before it. What the note says of that counts, if it says a later change than was
  // known; if `is_last`, so that nobody has noted it, they count as gone at the snapshot.
  void settle(bool is_last);
  // The next change is above `generation`.
  void goOnFrom(int64_t generation) { offset_ = generation + 1 - newest_; }

  // --- the count ---
  int64_t generation() const { return newest_ + offset_; }
  int64_t generationOf(int64_t revision) const { return std::max(newest_, revision) + offset_; }
  // The revision of the last change is not known exactly.
  bool isUnsettled() const { return vanished_at_ != 0; }
  bool hasExactly(const Members& members) const;
  // What is to be noted.
  Note note() const { return {newest_, offset_}; }
  // Whether who reads the names, and this note, comes to the same.
  bool isShownBy(const Note& note) const;
  // How many nodes of this program have an ID below this one; 0: how many there are. Up to `most`.
  size_t nodesBelow(int64_t id, size_t most) const;

 private:
  struct Entry : Member {
    int64_t shown : 62 = 0;    // the revision of its last change that the key shows
    bool by_node : 1 = false;  // of this program
    bool is_there : 1 = false;
  };
  static_assert(sizeof(Entry) == 24);
  // Of the IDs from a multiple of its size on. As a rule members' IDs lie close together: each costs 30 bytes then.
  using Page = std::array<Entry, 8>;
  static int64_t firstOfPage(int64_t id) { return id - placeInPage(id); }
  static int64_t placeInPage(int64_t id) { return id % int64_t{std::tuple_size_v<Page>}; }

  const Entry* find(int64_t id) const;  // null: it is no member
  bool erase(int64_t id);               // false: it was none
  // Calls visit(id, entry) for each in the order of IDs, until it returns false.
  template <typename Visit>
  void visitMembers(Visit visit) const;
  void raise(int64_t revision) { newest_ = std::max(newest_, revision); }

  const slots::NamePattern pattern_;
  std::map<int64_t, Page> pages_;  // by their first IDs
  size_t size_ = 0;                // of the members
  int64_t newest_ = 0;  // revision of the last change that is known
  int64_t offset_ = 0;
  int64_t vanished_at_ = 0;    // of the snapshot in which names were missing; 0: none
  int64_t newest_before_ = 0;  // then
};

}  // namespace idetcd::naming
