// Tracks what the mirror shows of the one key that this node claims. It ties the keeper of the name to the mirror: a name
// is owned only when it came back through the same stream that every other node learns it from, and it is lost the
// moment that stream says so. Scheduler's thread only; no I/O.
#pragma once

#include "slots/slot_choice.h"
#include "store/store.h"

namespace idetcd::naming {

class OwnKeyObserver {
 public:
  // What the claim was answered.
  struct Held {
    int64_t create_revision = 0;
    int64_t revision = 0;  // of the store when the claim was applied; a sighting from before says nothing
    int64_t lease = 0;
    std::string uuid;
  };
  enum class State {
    kUnseen,   // nothing as new as the claim has come yet
    // The same, and the store was set back: perhaps to before the claim, perhaps before it. The key itself tells.
    kDoubted,
    kOurs,     // there, created by the claim, under its lease, with our UUID
    kGone,     // deleted
    kForeign,  // another node's, or without a lease: such a key belongs to no node, whatever UUID it carries
    // With our UUID under a lease that is not ours, and not written after our claim: the store was set back to what an
    // earlier process of this node had put.
    kReverted,
    kDuplicateNodeId,  // with our UUID, written after our claim under a lease that is not ours: another process takes
                       // itself for us
  };

  // --- keeper ---
  // From now on sightings of `key` count, and none from before. REQUIRES: before the claim is sent.
  void follow(std::string key);
  // The claim was applied at this revision.
  void claimed(int64_t revision);
  // The claim that follow() announced has an answer, whichever, and what follows from it is known.
  void answered();
  // The first claim is done, waits for a name, or was refused; nothing comes of a second call. `ticket_revision`: when its
  // ticket was put; 0: it was not.
  void settled(int64_t ticket_revision);
  State state(const Held& held) const;
  // The mirror has found since follow() that the store was set back, or a stale read has made it believe so.
  bool wasSetBack() const { return restarted_; }
  // An operator has taken the key away, since follow().
  bool released() const { return released_; }
  // Called after each sighting.
  void onChange(std::function<void()> listener) { listener_ = std::move(listener); }
  // The highest revision or token that this node ever has seen, over stores that were set back too: no token of before
  // is higher.
  int64_t highestToken() const { return highest_token_.load(std::memory_order_relaxed); }  // any thread
  void sawToken(int64_t token) { highest_token_.store(std::max(highestToken(), token), std::memory_order_relaxed); }
  // The highest revision that the mirror has shown of the present store; of the one before, until it finds that it was
  // set back.
  int64_t newestRevision() const { return newest_revision_; }
  // Every change of any key goes there too while this node waits for a slot. One at most; null: it does not wait.
  void setWaitingLine(slots::WaitingLine* line) { waiting_ = line; }

  // --- mirror ---
  // A claim of this key has been sent and is not answered.
  bool awaitsAnswer(std::string_view key) const { return unanswered_ && key == key_; }
  void onAnswer(std::function<void()> listener) { on_answer_ = std::move(listener); }
  void onSettled(std::function<void()> listener) { on_settled_ = std::move(listener); }
  // Of settled(); none before.
  std::optional<int64_t> firstTicket() const { return first_ticket_; }
  // Whether put() may bring the claim of this key, and not its loss: the record comes into the table before the former,
  // and after the latter.
  bool mayCome(std::string_view key) const { return key == key_ && !(newest_ && newest_->present); }
  void put(const store::KeyValue& kv);
  void remove(std::string_view key, int64_t revision);
  // A snapshot holds `key` at this revision, and its value was not read. False: it is needed.
  bool confirm(std::string_view key, int64_t revision);
  // Every key of a snapshot is put() between these; what was not put is not there at `revision`. `revisions_restarted`:
  // what was seen before says nothing about this store, however high its revision.
  void beginSnapshot(bool revisions_restarted);
  void endSnapshot(int64_t revision);

 private:
  struct Sighting {
    bool present = false;
    int64_t revision = 0;  // the key's mod_revision, or where it was found missing
    int64_t create_revision = 0;
    int64_t lease = 0;
    std::string uuid;
    bool reverted = false;  // found in a store that was set back
    static Sighting missing(int64_t revision) { return {false, revision, 0, 0, {}, false}; }
  };
  void see(Sighting sighting);

  std::string key_;
  std::optional<Sighting> newest_;
  bool released_ = false;
  bool unanswered_ = false;
  bool in_snapshot_ = false;  // the key was put since beginSnapshot()
  bool restarted_ = false;    // since follow(): revisions may not compare with the claim's
  int64_t seen_before_ = 0;   // when that was: of the key, at most; a claim that was seen is not of this store
  bool restarting_ = false;   // in a snapshot of a store that was set back
  // The claim was made in a store that had been set back before the mirror noticed it.
  bool claim_is_newer_ = false;
  int64_t newest_revision_ = 0;  // that the mirror has shown of the present store
  // At follow(). When the answer to the claim is here, the mirror may have shown what came after the claim.
  int64_t newest_before_claim_ = 0;
  std::atomic<int64_t> highest_token_{0};
  slots::WaitingLine* waiting_ = nullptr;
  std::function<void()> listener_;
  std::function<void()> on_answer_;
  std::optional<int64_t> first_ticket_;
  std::function<void()> on_settled_;
};

}  // namespace idetcd::naming
