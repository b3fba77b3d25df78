#include "naming/own_key_observer.h"

#include "naming/record_codec.h"

namespace idetcd::naming {

void OwnKeyObserver::follow(std::string key) {
  key_ = std::move(key);
  newest_.reset();
  restarted_ = false;
  seen_before_ = 0;
  released_ = false;
  claim_is_newer_ = false;
  newest_before_claim_ = newest_revision_;
  unanswered_ = true;
}

void OwnKeyObserver::answered() {
  unanswered_ = false;
  if (on_answer_) on_answer_();
}

void OwnKeyObserver::settled(int64_t ticket_revision) {
  if (first_ticket_) return;
  first_ticket_ = ticket_revision;
  if (on_settled_) on_settled_();
}

void OwnKeyObserver::claimed(int64_t revision) { claim_is_newer_ = revision < newest_before_claim_; }

OwnKeyObserver::State OwnKeyObserver::state(const Held& held) const {
  if (!newest_) return State::kUnseen;
  if (newest_->revision < held.revision && seen_before_ < held.revision)
    return restarted_ ? State::kDoubted : State::kUnseen;
  if (!newest_->present) return State::kGone;
  if (newest_->uuid != held.uuid) return State::kForeign;
  if (newest_->lease == held.lease) {
    return newest_->create_revision == held.create_revision ? State::kOurs : State::kForeign;
  }
  if (newest_->lease == 0) return State::kForeign;
  return newest_->reverted ? State::kReverted : State::kDuplicateNodeId;
}

void OwnKeyObserver::put(const store::KeyValue& kv) {
  newest_revision_ = std::max(newest_revision_, kv.mod_revision);
  sawToken(kv.mod_revision);
  if (waiting_ != nullptr) waiting_->put(kv.key, kv.mod_revision);
  if (kv.key != key_) return;
  in_snapshot_ = true;
  const Result<NodeRecord> record = decodeRecord(kv.value);
  released_ = released_ || (record && record->id == kReleased);
  see({.present = true,
       .revision = kv.mod_revision,
       .create_revision = kv.create_revision,
       .lease = kv.lease,
       .uuid = record ? record->id : std::string(),
       .reverted = restarting_});
}

void OwnKeyObserver::remove(std::string_view key, int64_t revision) {
  newest_revision_ = std::max(newest_revision_, revision);
  sawToken(revision);
  if (waiting_ != nullptr) waiting_->remove(key, revision);
  if (key == key_) see(Sighting::missing(revision));
}

bool OwnKeyObserver::confirm(std::string_view key, int64_t revision) {
  if (key != key_) return true;
  in_snapshot_ = true;
  return newest_ && newest_->revision >= revision;
}

void OwnKeyObserver::beginSnapshot(bool revisions_restarted) {
  in_snapshot_ = false;
  restarting_ = revisions_restarted;
  if (!revisions_restarted) return;
  restarted_ = !claim_is_newer_;  // revisions do compare with a claim that is of this store
  if (restarted_ && newest_) seen_before_ = std::max(seen_before_, newest_->revision);
  claim_is_newer_ = false;
  newest_revision_ = 0;
  newest_before_claim_ = 0;
  newest_.reset();
}

void OwnKeyObserver::endSnapshot(int64_t revision) {
  restarting_ = false;
  newest_revision_ = std::max(newest_revision_, revision);
  sawToken(revision);
  if (waiting_ != nullptr) waiting_->lookAgain();
  if (!in_snapshot_ && !key_.empty()) see(Sighting::missing(revision));
}

void OwnKeyObserver::see(Sighting sighting) {
  // A snapshot runs beside the watch and may be older than what the watch has shown.
  if (newest_ && newest_->revision > sighting.revision) return;
  newest_ = std::move(sighting);
  if (listener_) listener_();
}

}  // namespace idetcd::naming
