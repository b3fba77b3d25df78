// What the mirror has seen of the one key that this node claims. It ties the keeper of the name to the mirror: a name
// is owned only when it came back through the same stream that every other node learns it from, and it is lost the
// moment that stream says so. Completion thread only; no I/O.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "etcd/client.h"

namespace idetcd::cluster {

class OwnKey {
 public:
  // What the claim was answered.
  struct Held {
    int64_t token = 0;     // create_revision
    int64_t revision = 0;  // of the store when the claim was applied; a sighting from before says nothing
    int64_t lease = 0;
    std::string uuid;
  };
  enum class State {
    kUnseen,   // nothing as new as the claim has come yet
    kOurs,     // there, created by the claim, under its lease, with our UUID
    kGone,     // deleted
    kForeign,  // somebody else's
    kDouble,   // carries our UUID under a living lease that is not ours: somebody else takes himself for us
  };

  // --- keeper ---
  // From now on sightings of `key` count, and none from before. REQUIRES: before the claim is sent.
  void follow(std::string key);
  State state(const Held& held) const;
  // Called after each sighting.
  void onChange(std::function<void()> listener) { listener_ = std::move(listener); }

  // --- mirror ---
  void put(const etcd::KeyValue& kv);
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
    static Sighting missing(int64_t revision) { return {false, revision, 0, 0, {}}; }
  };
  void see(Sighting sighting);

  std::string key_;
  std::optional<Sighting> newest_;
  bool in_snapshot_ = false;  // the key was put since beginSnapshot()
  bool restarted_ = false;    // since follow(): revisions do not compare with the claim's token
  std::function<void()> listener_;
};

}  // namespace idetcd::cluster
