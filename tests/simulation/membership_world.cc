#include "simulation/membership_world.h"

#include <algorithm>
#include <set>

#include "founding/message.h"
#include "peers/membership.h"

namespace idetcd::simulation {
namespace {

using peers::Change;
using peers::Published;
using peers::View;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
namespace step = peers::step;

constexpr size_t kNobody = SIZE_MAX;
constexpr Duration kMaxAfterFaults = minutes(20);  // kShrinkAfter, and what learners take that do not come
constexpr size_t kMostMachines = 12;

struct Machine {
  std::string uuid;
  SocketAddress address;
  bool durable = true;
  // One life after the other.
  bool lives = false;
  uint64_t life = 0;
  int64_t start = 0;
  int side = 0;            // of the network
  uint64_t member = 0;     // whose data it has; 0: none
  bool runs = false;       // its etcd
  bool caught_up = false;  // with the log; kept while it runs
  Time seen_until;         // its key is in the store until then
  bool said_to_stand_by = false;
  // While it leads.
  std::map<uint64_t, Time> answered;
  std::optional<std::pair<Change, Time>> change_seen;
  std::optional<Time> too_many_since;
  std::set<std::string> avoided;
};

// As etcd keeps it.
struct Member {
  uint64_t id = 0;
  size_t machine = 0;
  bool learner = false;
};

class MembershipWorld {
 public:
  explicit MembershipWorld(const RunOptions& options) : random_(options.seed), timeline_(time_, options.trace) {
    choose(options.nodes);
  }

  RunResult run() {
    for (size_t i = 0; i < machines_.size(); ++i) {
      start(i);
      tick(i);
      look(i);
    }
    time_.after(seconds(5), [this] { fault(); });
    goOn(faults_end_);
    endFaults();
    const Time end = time_.now() + kMaxAfterFaults;
    while (!violation_ && !isAtRest() && time_.step(end)) {
    }
    if (!violation_ && hasQuorum() && !isAtRest()) violate("rest", restlessness());
    return result();
  }

 private:
  void choose(size_t nodes) {
    const size_t count = nodes > 0 ? nodes : 1 + random_.below(kMostMachines);
    const size_t durable = random_.oneOf<size_t>({1000, 1000, 700, 0});
    for (size_t i = 0; i < count; ++i) {
      Machine& machine = machines_.emplace_back();
      machine.uuid = fmt::format("machine-{}", i + 1);
      machine.address = {IpAddress::v4({10, 0, static_cast<uint8_t>(i / 250), static_cast<uint8_t>(i % 250 + 1)}),
                         2390};
      machine.durable = random_.chance(durable);
    }
    // As the founding decides it: the oldest with a disk, if there is one.
    const bool some = std::ranges::any_of(machines_, &Machine::durable);
    const auto can = static_cast<size_t>(
        std::ranges::count_if(machines_, [some](const Machine& one) { return one.durable == some; }));
    const size_t voters = std::min(founding::votersFor(count), (can - 1) / 2 * 2 + 1);
    for (size_t i = 0; i < count && members_.size() < voters; ++i) {
      if (machines_[i].durable != some) continue;
      members_.push_back({++last_id_, i, false});
      machines_[i].member = last_id_;
    }
    faults_end_ = Time(random_.between(seconds(60), minutes(10)));
    pace_ = random_.oneOf<Duration>({seconds(2), seconds(15), seconds(60)});
  }

  // --- etcd ---

  bool follows(const Member& member) const {
    const Machine& machine = machines_[member.machine];
    return machine.lives && machine.runs && machine.caught_up && machine.member == member.id;
  }
  // A side of the network with a majority of the voters; -1: there is none.
  int quorumSide() const {
    for (const int side : {0, 1}) {
      size_t voters = 0;
      size_t there = 0;
      for (const Member& member : members_) {
        if (member.learner) continue;
        ++voters;
        there += follows(member) && machines_[member.machine].side == side ? 1 : 0;
      }
      if (there >= voters / 2 + 1) return side;
    }
    return -1;
  }
  bool hasQuorum() const { return quorumSide() >= 0; }
  bool reachesQuorum(size_t i) const { return machines_[i].lives && machines_[i].side == quorumSide(); }
  Member* memberOf(uint64_t id) {
    const auto found = std::ranges::find(members_, id, &Member::id);
    return found == members_.end() ? nullptr : &*found;
  }
  // The leader goes on as long as it can.
  size_t leader() {
    const auto fits = [this](const Member& member) {
      return !member.learner && follows(member) && machines_[member.machine].side == quorumSide();
    };
    const auto now = std::ranges::find(members_, leader_, &Member::machine);
    if (now != members_.end() && fits(*now)) return leader_;
    std::vector<size_t> others;
    for (const Member& member : members_) {
      if (fits(member)) others.push_back(member.machine);
    }
    leader_ = others.empty() ? kNobody : random_.oneOf(others);
    if (leader_ != kNobody) {
      timeline_.say(leader_, "leads");
      Machine& leads = machines_[leader_];
      leads.answered.clear();
      leads.change_seen.reset();
      leads.too_many_since.reset();
    }
    return leader_;
  }
  // How many more voters may die; negative: there is no majority.
  int64_t reserve() const {
    int64_t voters = 0;
    int64_t live = 0;
    for (const Member& member : members_) {
      if (member.learner) continue;
      ++voters;
      live += follows(member) ? 1 : 0;
    }
    return live - (voters / 2 + 1);
  }

  // --- machines ---

  void start(size_t i) {
    Machine& machine = machines_[i];
    if (machine.lives) return;
    machine.lives = true;
    ++machine.life;
    machine.start = time_.now().time_since_epoch().count() + static_cast<int64_t>(i);
    machine.runs = machine.caught_up = false;
    timeline_.say(i, "starts{}", machine.member != 0 ? fmt::format(", with the data of {}", machine.member) : "");
    if (machine.member != 0) startEtcd(i);
  }

  void startEtcd(size_t i) {
    const uint64_t life = machines_[i].life;
    time_.after(random_.between(milliseconds(100), seconds(1)), [this, i, life] {
      if (machines_[i].life != life || machines_[i].member == 0) return;
      machines_[i].runs = true;
      const bool was_empty = memberOf(machines_[i].member) != nullptr && memberOf(machines_[i].member)->learner;
      const Duration takes = was_empty ? random_.between(milliseconds(100), seconds(20)) : milliseconds(50);
      time_.after(takes, [this, i, life] {
        if (machines_[i].life == life && machines_[i].runs) machines_[i].caught_up = true;
      });
    });
  }

  void die(size_t i, bool with_disk) {
    Machine& machine = machines_[i];
    if (!machine.lives) return;
    ++faults_;
    machine.lives = machine.runs = machine.caught_up = false;
    ++machine.life;
    if (with_disk || !machine.durable) {
      machine.member = 0;
      if (!machine.durable) machine.uuid += "'";  // another machine, as the founding has it
    }
    timeline_.say(i, "dies{}", with_disk ? ", and so does its disk" : "");
  }

  // Once a second, and somewhat out of step: what each machine does about itself.
  void tick(size_t i) {
    Machine& machine = machines_[i];
    ++states_;
    if (machine.lives) follow(i);
    time_.after(random_.between(milliseconds(800), milliseconds(1200)), [this, i] { tick(i); });
  }

  void follow(size_t i) {
    Machine& machine = machines_[i];
    if (!reachesQuorum(i)) return;
    const auto me = std::ranges::find(published_.voters, machine.uuid, &peers::Voter::uuid);
    const bool is_listed = me != published_.voters.end();
    if (!published_.voters.empty() && !is_listed && machine.member != 0 && !machine.said_to_stand_by) {
      if (memberOf(machine.member) != nullptr && !memberOf(machine.member)->learner)
        violate("data", fmt::format("machine {} throws its data away, and is a voter", i + 1));
      timeline_.say(i, "is no voter any more");
      machine.member = 0;
      machine.runs = machine.caught_up = false;
      ++machine.life;
    }
    if (is_listed && me->learner && machine.member == 0) {
      timeline_.say(i, "starts an etcd as {}", me->member);
      machine.member = me->member;
      startEtcd(i);
    }
    machine.said_to_stand_by = machine.member == 0 && !(is_listed && me->learner);
    machine.seen_until = time_.now() + peers::kMachineLease;
  }

  // --- whoever leads ---

  void look(size_t i) {
    const Duration asking = random_.between(milliseconds(5), random_.chance(100) ? seconds(8) : milliseconds(200));
    if (machines_[i].lives && leader() == i) {
      View view = viewOf(i);
      const uint64_t life = machines_[i].life;
      const uint64_t revision = revision_;
      const int64_t before = reserve();
      peers::Step next = peers::nextStep(view);
      if (peers::beginsWithAnother(view, next)) {
        view.gone = goneFor(i, view);
        next = peers::nextStep(view);
        if (peers::beginsWithAnother(view, next)) judgeBeginning(i, std::get<step::Publish>(next.what).value);
      }
      // What it has seen may be old when it acts; its etcd hands on what it asks, whoever leads by then.
      time_.after(asking, [this, i, life, revision, before, next] {
        if (machines_[i].life == life && machines_[i].lives && reachesQuorum(i)) take(i, next, revision, before);
        look(i);
      });
    } else {
      time_.after(milliseconds(1000) + asking, [this, i] { look(i); });
    }
  }

  View viewOf(size_t i) {
    Machine& leader = machines_[i];
    const Time now = time_.now();
    View view;
    view.published = published_;
    for (const Machine& machine : machines_) {
      if (machine.seen_until > now && !machine.uuid.empty())
        view.machines.push_back(
            {machine.uuid, machine.address, machine.start, machine.durable, machine.said_to_stand_by});
    }
    for (const Member& member : members_) {
      const bool answers = follows(member) && machines_[member.machine].side == leader.side;
      Time& last = leader.answered.try_emplace(member.id, now).first->second;
      if (answers) last = now;
      view.members.push_back({.voter = voterOf(member), .answers = answers, .silent = now - last});
      if (member.machine == i) view.self = member.id;
    }
    if (!published_.change) leader.change_seen.reset();
    if (published_.change) {
      if (!leader.change_seen || leader.change_seen->first != *published_.change)
        leader.change_seen.emplace(*published_.change, now);
      view.change_age = now - leader.change_seen->second;
    }
    view.avoided = leader.avoided;
    const auto voters = static_cast<size_t>(std::ranges::count(members_, false, &Member::learner));
    const bool too_many = voters > founding::votersFor(view.machines.size());
    if (!too_many) leader.too_many_since.reset();
    if (too_many && !leader.too_many_since) leader.too_many_since = now;
    if (too_many) view.too_many_for = now - *leader.too_many_since;
    return view;
  }

  bool isThereFor(size_t leader, const std::string& uuid) const {
    const auto machine = std::ranges::find(machines_, uuid, &Machine::uuid);
    return machine != machines_.end() && machine->lives && machine->side == machines_[leader].side;
  }

  std::set<SocketAddress> goneFor(size_t leader, const View& view) const {
    std::set<SocketAddress> gone;
    for (const peers::Machine& machine : view.machines) {
      if (!isThereFor(leader, machine.uuid)) gone.insert(machine.address);
    }
    return gone;
  }

  void judgeBeginning(size_t leader, const Published& value) {
    if (!isThereFor(leader, value.change->add))
      violate("gone", fmt::format("machine {} is to vote, and is gone", value.change->add));
    const auto live = static_cast<size_t>(std::ranges::count(machines_, true, &Machine::lives));
    if (value.change->remove.empty() && value.voters.size() >= founding::votersFor(live))
      violate("gone", fmt::format("{} voters are to be one more, and {} machines live", value.voters.size(), live));
  }

  peers::Voter voterOf(const Member& member) const {
    // etcd knows a member by the name with which it was started.
    const auto known = std::ranges::find(published_.voters, member.id, &peers::Voter::member);
    const Machine& machine = machines_[member.machine];
    const std::string uuid = known != published_.voters.end() ? known->uuid
                             : machine.member == member.id    ? machine.uuid
                             : uuids_.contains(member.id)     ? uuids_.at(member.id)
                                                              : machine.uuid;
    return {.uuid = uuid, .address = machine.address, .member = member.id, .learner = member.learner};
  }

  void take(size_t i, const peers::Step& next, uint64_t revision, int64_t before) {
    if (const auto* publication = std::get_if<step::Publish>(&next.what)) {
      if (revision != revision_) return;
      ++revision_;
      published_ = publication->value;
      timeline_.say(i, "publishes {}", peers::encode(published_));
    } else if (const auto* add = std::get_if<step::Add>(&next.what)) {
      const auto machine = std::ranges::find(machines_, add->machine.address, &Machine::address);
      const bool refused = std::ranges::any_of(members_, &Member::learner) ||
                           std::ranges::find(members_, static_cast<size_t>(machine - machines_.begin()),
                                             &Member::machine) != members_.end();
      if (refused) return;  // one learner at a time, and one member at an address
      members_.push_back({++last_id_, static_cast<size_t>(machine - machines_.begin()), true});
      uuids_[last_id_] = add->machine.uuid;
      timeline_.say(i, "adds machine {} as {}", machine - machines_.begin() + 1, last_id_);
    } else if (const auto* promote = std::get_if<step::Promote>(&next.what)) {
      Member* const member = memberOf(promote->voter.member);
      if (member == nullptr || !member->learner || !machines_[member->machine].caught_up) return;  // etcd refuses
      changeMembers(i, "promotes", before, [member] { member->learner = false; });
    } else if (const auto* remove = std::get_if<step::Remove>(&next.what)) {
      const Member* const member = memberOf(remove->voter.member);
      if (member == nullptr) return;
      if (member->learner) machines_[i].avoided.insert(remove->voter.uuid);
      const uint64_t id = member->id;
      changeMembers(i, "removes", before,
                    [this, id] { std::erase_if(members_, [id](const Member& one) { return one.id == id; }); });
    }
  }

  // `before`: in reserve when this leader looked. Who has died since then was there.
  template <typename Work>
  void changeMembers(size_t i, const char* what, int64_t before, Work work) {
    const int64_t now = reserve();
    const size_t size = members_.size();
    work();
    timeline_.say(i, "{} a member: {} in reserve, {} before", what, reserve(), now);
    const bool shrinks = size > members_.size() && !published_.change.value_or(Change{}).remove.empty() &&
                         published_.change->add.empty();
    if (now >= 0 && now == before && reserve() < (shrinks ? 0 : now))
      violate("reserve",
              fmt::format("machine {} {} a member, and {} more may die, instead of {}", i + 1, what, reserve(), now));
  }

  // --- faults ---

  void fault() {
    if (faults_ended_) return;
    const size_t i = random_.below(machines_.size());
    const size_t kind = random_.below(10);
    if (kind < 4) {
      die(i, random_.chance(200));
      time_.after(random_.between(milliseconds(100), seconds(random_.oneOf<int>({2, 15, 200}))),
                  [this, i] { start(i); });
    } else if (kind < 6) {
      ++faults_;
      for (Machine& machine : machines_) machine.side = random_.chance(300) ? 1 : 0;
      timeline_.say(Timeline::kEverybody, "the network is cut");
      time_.after(random_.between(seconds(1), seconds(40)), [this] { heal(); });
    } else if (kind < 8) {
      ++faults_;
      machines_[i].side = 1 - machines_[i].side;
      timeline_.say(i, "is cut off, or not any more");
      time_.after(random_.between(seconds(1), seconds(40)), [this] { heal(); });
    } else if (kind == 8 && hasQuorum() && leader() != kNobody) {
      const size_t leads = leader();
      die(leads, false);
      time_.after(random_.between(milliseconds(100), seconds(60)), [this, leads] { start(leads); });
    } else {
      for (size_t all = 0; all < machines_.size(); ++all) {
        die(all, false);
        time_.after(random_.between(milliseconds(100), seconds(5)), [this, all] { start(all); });
      }
    }
    time_.after(random_.between(milliseconds(100), 2 * pace_), [this] { fault(); });
  }

  void heal() {
    for (Machine& machine : machines_) machine.side = 0;
    timeline_.say(Timeline::kEverybody, "the network is whole");
  }

  // Some machines never come back.
  void endFaults() {
    faults_ended_ = true;
    timeline_.say(Timeline::kEverybody, "all faults end");
    heal();
    for (size_t i = 0; i < machines_.size(); ++i) {
      if (random_.chance(700)) start(i);
    }
  }

  // --- the judge ---

  void goOn(Time end) {
    while (!violation_ && time_.step(end)) {
    }
  }

  std::string restlessness() {
    std::set<size_t> machines;
    size_t voters = 0;
    for (const Member& member : members_) {
      if (member.learner) return "there is a learner";
      ++voters;
      machines.insert(member.machine);
      if (follows(member)) continue;
      return fmt::format("voter {} of machine {} does not answer", member.id, member.machine + 1);
    }
    if (published_.change) return "a change is under way";
    std::set<uint64_t> published;
    for (const peers::Voter& voter : published_.voters) published.insert(voter.member);
    std::set<uint64_t> members;
    for (const Member& member : members_) members.insert(member.id);
    if (published != members) return "not the members are published";
    const auto live = static_cast<size_t>(std::ranges::count(machines_, true, &Machine::lives));
    if (voters > founding::votersFor(live)) return fmt::format("{} voters of {} machines", voters, live);
    return "";
  }

  // With a machine to spare for each voter that is silent for ever, or it cannot be replaced.
  bool isAtRest() {
    if (restlessness().empty()) return true;
    size_t silent = 0;
    for (const Member& member : members_) silent += machines_[member.machine].lives ? 0 : 1;
    const bool some = std::ranges::any_of(machines_, [](const Machine& one) { return one.lives && one.durable; });
    const auto spare = static_cast<size_t>(std::ranges::count_if(
        machines_, [some](const Machine& one) { return one.lives && one.member == 0 && one.durable == some; }));
    return faults_ended_ && spare < silent;
  }

  void violate(std::string property, std::string text) {
    if (violation_) return;
    timeline_.say(Timeline::kEverybody, "VIOLATED: {}", text);
    violation_ = Violation{std::move(property), std::move(text), {}};
  }

  RunResult result() {
    RunResult made;
    made.violation = violation_;
    made.timeline = timeline_.render({}, 400);
    made.scenario = fmt::format("{} machines, {} voters at the end{}, {} of all members of etcd", machines_.size(),
                                members_.size(), hasQuorum() ? "" : ", no majority", last_id_);
    made.events = time_.steps();
    made.states = states_;
    made.faults = faults_;
    made.nodes = machines_.size();
    made.time = time_.now().time_since_epoch();
    return made;
  }

  Random random_;
  VirtualTime time_;
  Timeline timeline_;
  std::vector<Machine> machines_;
  std::vector<Member> members_;  // in the order of their IDs
  std::map<uint64_t, std::string> uuids_;
  uint64_t last_id_ = 0;
  size_t leader_ = kNobody;
  Published published_;
  uint64_t revision_ = 0;  // of the voters key
  Duration pace_{0};
  Time faults_end_;
  bool faults_ended_ = false;
  std::optional<Violation> violation_;
  uint64_t states_ = 0;
  uint64_t faults_ = 0;
};

}  // namespace

RunResult simulateMembership(const RunOptions& options) { return MembershipWorld(options).run(); }

}  // namespace idetcd::simulation
