// Which machines of a cluster vote (run its etcd) now, and the next step towards those that should. Pure; any thread.
// README.md has the rules and their reasons.
//
// etcd's list of members is the truth. The voters key publishes it to all machines, with the change that is under way, so
// that another leader goes on with it. The machine whose member leads takes the steps, one at a time (voting.h).
#pragma once

#include <set>
#include <variant>

#include "base/ip_address.h"
#include "base/result.h"
#include "store/store.h"

namespace idetcd::peers {

inline constexpr std::string_view kVotersKey = "/idetcd/peers/voters";
inline constexpr std::string_view kMachinesPrefix = "/idetcd/peers/machines/";

// A machine's description of itself in its key below kMachinesPrefix, under a lease.
struct Machine {
  std::string uuid;
  SocketAddress address;  // its peers port
  int64_t start = 0;      // of its process, ns: the order of age
  bool durable = false;
  bool stands_by = false;  // it has no etcd, and may be given one
  bool operator==(const Machine&) const = default;
};

struct Voter {
  std::string uuid;
  SocketAddress address;
  uint64_t member = 0;  // etcd's ID
  bool learner = false;
  bool operator==(const Voter&) const = default;
};

// `add` comes, and then `remove` goes; either may be empty.
struct Change {
  std::string add;  // UUIDs
  std::string remove;
  bool operator==(const Change&) const = default;
};

// The value of the voters key.
struct Published {
  std::string cluster = {};        // its identity, so that no machine takes another cluster's for its own
  std::vector<Voter> voters = {};  // in the order of their IDs
  std::optional<Change> change = {};
  bool operator==(const Published&) const = default;
};

std::string encode(const Machine& machine);  // without its UUID, which is in the key
std::string encode(const Published& published);
std::optional<Machine> decodeMachine(std::string_view uuid, std::string_view text);
std::optional<Published> decodePublished(std::string_view text);

// What the keys below kMachinesPrefix say; other keys are left out. Of several machines at one address, the one that
// wrote its key last is there, and the others have ended.
std::vector<Machine> machinesOf(const std::vector<store::KeyValue>& keys);

struct View {
  struct Member {
    Voter voter;
    bool answers = false;                // now: it follows this leader, and has nearly caught up
    std::chrono::nanoseconds silent{0};  // since it last did
  };
  std::vector<Member> members;  // etcd's own list, in the order of their IDs
  uint64_t self = 0;            // the leader
  Published published;
  std::vector<Machine> machines = {};        // that have a key
  std::set<SocketAddress> gone = {};         // of these, those that are known not to be there any more
  std::chrono::nanoseconds change_age{0};    // since this leader knows of the change
  std::set<std::string> avoided = {};        // machines that were learners and did not come
  std::chrono::nanoseconds too_many_for{0};  // there are more voters than votersFor() the machines, without a break
};

namespace step {
struct Wait {};
struct Publish {
  Published value;
};
struct Add {
  Machine machine;
};
struct Promote {
  Voter voter;
};
struct Remove {
  Voter voter;
};
}  // namespace step

struct Step {
  std::variant<step::Wait, step::Publish, step::Add, step::Promote, step::Remove> what;
  std::string why;  // for people; empty: all is as it should be
};

inline constexpr std::chrono::seconds kSilence{10};          // then a voter is replaced
inline constexpr std::chrono::seconds kMachineLease{15};     // of a machine's key
inline constexpr std::chrono::seconds kLearnerPatience{60};  // with a learner that lives, then another machine is tried
inline constexpr std::chrono::minutes kShrinkAfter{10};

// So many are to vote: votersFor() the machines, or fewer where not enough stand by, but an odd number.
size_t votersWanted(const View& view);

Step nextStep(const View& view);
// The step begins a change by which another machine is to vote. The key of a machine that is gone outlives it: so whoever
// leads looks first which are gone, and asks for the next step once more.
bool beginsWithAnother(const View& view, const Step& step);

}  // namespace idetcd::peers
