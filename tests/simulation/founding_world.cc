#include "simulation/founding_world.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "founding/elector.h"
#include "node/uuid.h"

namespace idetcd::simulation {
namespace {

using founding::Elector;
using founding::Value;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint16_t kPort = 2390;
constexpr Duration kLease = seconds(5);
constexpr Duration kMaxFounding = seconds(2);      // from the last start, in a calm world
constexpr Duration kMaxAfterFaults = seconds(90);  // until all have learnt
constexpr Duration kMaxUntilOne = seconds(240);    // until two clusters that can meet are one
constexpr int64_t kTenYears = 10LL * 365 * 86400 * 1'000'000'000;
constexpr size_t kMostExpected = 9;
constexpr uint64_t kMeetingSeeds = 8;  // one in so many has two clusters
constexpr uint64_t kGrowingSeeds = 16;  // one in so many has new machines

// What goes wrong, and how badly. Chances are in a thousand.
struct Weather {
  bool calm = false;
  size_t loss = 0;
  size_t duplicates = 0;
  size_t stragglers = 0;  // messages that take up to kLongest
  Duration delay = milliseconds(20);
  Duration disk = milliseconds(20);  // until something is durable, at most
  size_t crash_when_speaking = 0;    // just after a promise, a proposal or an acceptance was sent
  bool partitions = false;
  bool bridged = false;  // the network is cut so that two machines found at once, and some hear both
  bool crashes = false;
  static constexpr Duration kLongest = seconds(8);
};

struct Machine {
  SocketAddress address;
  bool durable = false;
  bool can_vote = true;
  int64_t clock_error = 0;
  int64_t token = 0;
  // One life after the other.
  uint64_t lives = 0;
  std::string uuid;
  std::string disk;                  // its record
  std::unique_ptr<Elector> elector;  // none: it is down
  Time writing_until;
  std::optional<std::string> decided;  // the cluster, in this life or, with a disk, in one before
  size_t side = 0;                     // of two clusters
  std::string owns;                    // it says that a name of this cluster is its own; empty: of none
  bool leaves = false;
  std::set<std::string> emptied;  // clusters whose data it has deleted
};

class FoundingWorld {
 public:
  explicit FoundingWorld(const RunOptions& options)
      : random_(options.seed),
        timeline_(time_, options.trace),
        key_(founding::Secret::parse("of all machines alike")->derive(founding::kMessageLabel)) {
    meets_ = options.seed % kMeetingSeeds == kMeetingSeeds - 1 && options.nodes == 0;
    choose(options.nodes);
    if (meets_) chooseMeeting();
    grows_ = options.seed % kGrowingSeeds == kGrowingSeeds - 2 && options.nodes == 0;
    if (grows_) chooseGrowing();
  }

  RunResult run() {
    for (size_t i = 0; i < starts_.size(); ++i) {
      time_.at(starts_[i], [this, i] { start(i); });
      last_start_ = std::max(last_start_, starts_[i]);
    }
    if (grows_) time_.after(seconds(5), [this] { grow(); });
    if (weather_.partitions)
      time_.after(weather_.bridged ? Duration(0) : random_.between(Duration(0), seconds(2)), [this] { partition(); });
    if (weather_.crashes) time_.after(random_.between(Duration(0), seconds(5)), [this] { crashSomebody(); });
    if (by_name_) time_.after(seconds(1), [this] { resolve(); });
    if (meets_) time_.after(random_.between(seconds(3), seconds(60)), [this] { meet(); });
    goOn(faults_end_, false);
    endFaults();
    goOn(faults_end_ + (meets_ ? kMaxUntilOne : kMaxAfterFaults), true);
    if (!violation_ && meets_ && !areOne()) violate("meeting", "two clusters that can meet are not one in time");
    if (!violation_ && !allKnow() && canFound())
      violate("founding", "not every live machine has learnt of the cluster in time");
    if (!violation_) goOn(time_.now() + seconds(5), false);
    return result();
  }

 private:
  // --- what the seed decides ---

  void choose(size_t nodes) {
    weather_.calm = random_.chance(250);
    weather_.bridged = !weather_.calm && random_.chance(400);
    expect_ = nodes > 0 ? nodes : weather_.bridged ? 3 + random_.below(3) : 1 + random_.below(kMostExpected);
    const size_t quorum = expect_ / 2 + 1;
    const size_t count = weather_.bridged ? expect_ : quorum + random_.below(expect_ - quorum + 1);
    spare_ = expect_ - count;
    const size_t durable = random_.oneOf<size_t>({1000, 1000, 1000, 700, 500, 0});
    const size_t can_vote = random_.oneOf<size_t>({1000, 1000, 700, 0});
    for (size_t i = 0; i < count; ++i) {
      Machine& machine = machines_.emplace_back();
      machine.address = {IpAddress::v4({10, 0, 0, static_cast<uint8_t>(i + 1)}), kPort};
      machine.durable = random_.chance(durable);
      machine.can_vote = random_.chance(can_vote);
      machine.token = random_.between(0, 1000);
      machine.clock_error = weather_.calm ? 0 : random_.between(-50'000'000, 50'000'000);
    }
    if (random_.chance(250)) machines_[random_.below(count)].clock_error = random_.chance(500) ? kTenYears : -kTenYears;
    cut_.assign(count, std::vector<bool>(count, false));
    by_name_ = random_.chance(400);
    Time at;
    for (size_t i = 0; i < count; ++i) {
      at += weather_.calm || weather_.bridged ? random_.between(Duration(0), milliseconds(200))
                                              : random_.between(Duration(0), seconds(2));
      const bool late = !weather_.calm && !weather_.bridged && random_.chance(150);
      starts_.push_back(late ? at + random_.between(seconds(5), seconds(30)) : at);
    }
    if (weather_.calm) {
      faults_end_ = at + kMaxFounding;
      return;
    }
    faults_end_ = Time(random_.between(seconds(20), seconds(60)));
    for (const Time start : starts_) faults_end_ = std::max(faults_end_, start + milliseconds(1));
    weather_.loss = random_.oneOf<size_t>({0, 100, 300});
    weather_.duplicates = random_.oneOf<size_t>({0, 50, 200});
    weather_.stragglers = random_.oneOf<size_t>({0, 20, 200});
    weather_.delay = weather_.bridged ? milliseconds(200) : random_.between(milliseconds(1), milliseconds(200));
    weather_.disk = milliseconds(random_.oneOf<int>({20, 1000, 2500}));
    weather_.crash_when_speaking = random_.oneOf<size_t>({weather_.bridged ? 300UL : 0UL, 50, 300});
    weather_.partitions = weather_.bridged || random_.chance(700);
    weather_.crashes = random_.chance(600);
  }

  // Two clusters of one secret, each founded by machines that do not know those of the other one, until one of them does.
  void chooseMeeting() {
    const size_t each = 1 + random_.below(4);
    expect_ = each;
    spare_ = 0;
    by_name_ = false;
    weather_.calm = weather_.bridged = false;
    machines_.clear();
    starts_.clear();
    const size_t count = each + each / 2 + 1 + random_.below(each - each / 2);
    for (size_t i = 0; i < count; ++i) {
      Machine& machine = machines_.emplace_back();
      machine.address = {IpAddress::v4({10, 0, 0, static_cast<uint8_t>(i + 1)}), kPort};
      machine.durable = true;
      machine.side = i / each;
      machine.clock_error = random_.chance(100) ? kTenYears : random_.between(-50'000'000, 50'000'000);
      starts_.push_back(Time(random_.between(Duration(0), seconds(3))));
    }
    cut_.assign(machines_.size(), std::vector<bool>(machines_.size(), false));
    faults_end_ = Time(random_.between(seconds(20), seconds(60)));
    knows_ = random_.below(machines_.size());
    if (random_.chance(200)) dead_side_ = random_.below(2);
  }

  // A cluster is there, and new machines come at once, which know each other. Where the cluster is they find out by a search of
  // a network, or from a name that is resolved late. Everybody reaches everybody.
  void chooseGrowing() {
    expect_ = 1 + random_.below(4);
    spare_ = 0;
    by_name_ = false;
    weather_ = {};
    const std::string network = fmt::format("10.0.0.0/{}", 22 + random_.below(3));
    network_ = founding::Hello::addressesOf(*IpNetwork::parse(network), kPort).value();
    machines_.clear();
    starts_.clear();
    std::set<SocketAddress> addresses;
    const size_t quorum = expect_ / 2 + 1;
    const size_t count = expect_ + quorum + random_.below(expect_ - quorum + 1);
    while (addresses.size() < count) addresses.insert(network_[random_.below(network_.size())]);
    for (const SocketAddress& address : addresses) {
      Machine& machine = machines_.emplace_back();
      machine.address = address;
      machine.durable = true;
    }
    if (random_.chance(500)) std::ranges::reverse(machines_);
    for (size_t i = 0; i < expect_; ++i) starts_.push_back(Time(random_.between(Duration(0), seconds(1))));
    cut_.assign(count, std::vector<bool>(count, false));
    late_name_ = random_.chance(300);
    faults_end_ = Time(seconds(20));
  }

  // The new machines start.
  void grow() {
    if (!founded_[0]) return time_.after(seconds(1), [this] { grow(); });
    for (size_t i = expect_; i < machines_.size(); ++i)
      time_.after(random_.between(Duration(0), milliseconds(200)), [this, i] { start(i); });
    if (random_.chance(500)) cramped_until_ = time_.now() + random_.between(milliseconds(200), seconds(8));
  }

  // --- machines ---

  // Its own, and those that it has been told of.
  std::vector<SocketAddress> peersOf(size_t i) const {
    std::vector<SocketAddress> all;
    for (size_t j = 0; j < machines_.size(); ++j) {
      const bool is_known = grows_ ? isNew(j) == isNew(i) : machines_[j].side == machines_[i].side;
      if (is_known || (i == knows_ && have_met_)) all.push_back(machines_[j].address);
    }
    if (isNew(i) && !late_name_) all.insert(all.end(), network_.begin(), network_.end());
    return all;
  }

  bool isNew(size_t i) const { return grows_ && i >= expect_; }

  void start(size_t i) {
    Machine& machine = machines_[i];
    if (machine.elector) return;
    const bool again = machine.lives > 0;
    if (again && !machine.durable) {
      if (spare_ == 0) return;  // one more would be more electors than are expected
      --spare_;
    }
    if (!again || !machine.durable) {
      machine.uuid = node::randomUuid(random_);
      machine.disk = founding::encode(founding::Record{machine.uuid, {}, {}, {}});
      machine.decided.reset();
    }
    ++machine.lives;
    machine.writing_until = time_.now();
    const Result<founding::Record> record = founding::decodeRecord(machine.disk, machine.uuid);
    if (!record) return violate("record", record.error().message);
    Elector::Options options;
    options.self = {.member = {kEpoch + time_.now().time_since_epoch().count() + machine.clock_error, machine.uuid},
                    .addresses = {machine.address},
                    .durable = machine.durable,
                    .token = machine.token,
                    .expect = static_cast<uint32_t>(expect_),
                    .can_vote = machine.can_vote};
    options.port = kPort;
    if (!by_name_) options.peers = peersOf(i);
    options.has_names = by_name_ || (isNew(i) && late_name_);
    if (again && !machine.durable) options.silence = kLease * 11 / 10;
    electors_.insert(machine.uuid);
    facts_[machine.uuid] = {(machine.can_vote ? 2 : 0) + (machine.durable ? 1 : 0), machine.token};
    timeline_.say(i, "starts as {}, expects {}", machine.uuid.substr(0, 8), expect_);
    machine.leaves = false;
    machine.elector = std::make_unique<Elector>(options, key_, *record, time_.now(), random_);
    if (by_name_) machine.elector->resolved(time_.now(), whatTheNameSays());
    if (isNew(i) && late_name_) {
      time_.after(random_.between(Duration(0), seconds(3)), [this, i, life = machine.lives] {
        if (lives(i, life)) machines_[i].elector->resolved(time_.now(), peersOf(0));
      });
    }
    tick(i, machine.lives);
  }

  void crash(size_t i, Duration down) {
    Machine& machine = machines_[i];
    if (!machine.elector) return;
    ++faults_;
    timeline_.say(i, "crashes, for {} ms", std::chrono::duration_cast<milliseconds>(down).count());
    machine.elector.reset();
    machine.owns.clear();  // only a process says so
    time_.after(down, [this, i] { start(i); });
  }

  bool lives(size_t i, uint64_t life) const { return machines_[i].elector && machines_[i].lives == life; }

  void tick(size_t i, uint64_t life) {
    if (!lives(i, life)) return;
    machines_[i].elector->advance(time_.now());
    settle(i);
    if (!lives(i, life)) return;
    time_.at(machines_[i].elector->wakeAt(time_.now()), [this, i, life] { tick(i, life); });
  }

  // As a host that is to leave its cluster: gives up what it holds of it, some time later.
  void leave(size_t i) {
    Machine& machine = machines_[i];
    const bool left_before = std::exchange(machine.leaves, machine.elector->next().has_value());
    if (!machine.leaves || left_before) return;
    timeline_.say(i, "leaves {}", machine.elector->decision()->cluster.substr(0, 8));
    const uint64_t life = machine.lives;
    time_.after(random_.between(Duration(0), kLease), [this, i, life] {
      if (!lives(i, life)) return;
      machines_[i].owns.clear();
      machines_[i].emptied.insert(machines_[i].elector->decision()->cluster);
      machines_[i].elector->left();
      settle(i);
    });
    if (!faults_ended_ && random_.chance(300)) {
      time_.after(random_.between(Duration(0), 2 * kLease), [this, i, life] {
        if (lives(i, life)) crash(i, random_.between(milliseconds(10), seconds(10)));
      });
    }
  }

  // As soon as nobody is blank any more: who is would be an elector on both sides.
  void meet() {
    have_met_ = std::ranges::all_of(machines_, [](const Machine& machine) { return machine.decided.has_value(); });
    if (!have_met_) return time_.after(seconds(1), [this] { meet(); });
    timeline_.say(knows_, "learns of all machines");
    if (machines_[knows_].elector) machines_[knows_].elector->resolved(time_.now(), peersOf(knows_));
  }

  // It reaches the voters of its cluster, or finds that it does not.
  void reach(size_t i) {
    const uint64_t life = machines_[i].lives;
    time_.after(random_.between(Duration(0), seconds(5)), [this, i, life, cluster = machines_[i].decided] {
      if (!lives(i, life) || machines_[i].decided != cluster) return;
      machines_[i].elector->search(dead_side_ < 2 && founded_[dead_side_]->cluster == cluster);
    });
  }

  // After each call: its messages, its disk, and what it says.
  void settle(size_t i) {
    Machine& machine = machines_[i];
    ++states_;
    bool speaks = false;
    for (const Elector::Outgoing& message : machine.elector->takeMessages()) speaks |= send(i, message);
    if (auto unwritten = machine.elector->takeUnwritten()) write(i, *std::move(unwritten));
    judge(i);
    if (violation_) return;
    leave(i);
    if (speaks && !faults_ended_ && random_.chance(weather_.crash_when_speaking))
      crash(i, random_.between(milliseconds(1), milliseconds(300)));
  }

  void write(size_t i, founding::Founding::Unwritten unwritten) {
    Machine& machine = machines_[i];
    const uint64_t life = machine.lives;
    const Duration takes = machine.durable ? random_.between(milliseconds(1), weather_.disk) : Duration(0);
    machine.writing_until = std::max(machine.writing_until, time_.now()) + takes;
    time_.at(machine.writing_until, [this, i, life, unwritten = std::move(unwritten)] {
      if (!lives(i, life)) return;
      machines_[i].disk = unwritten.bytes;
      judgeRecord(i);
      machines_[i].elector->written(time_.now(), unwritten.version);
      settle(i);
    });
  }

  // --- the network ---

  // Who lives, but for some; and a stranger.
  std::vector<SocketAddress> whatTheNameSays() {
    std::vector<SocketAddress> addresses{{IpAddress::v4({192, 0, 2, 1}), kPort}};
    for (const Machine& machine : machines_) {
      if (machine.elector && (weather_.calm || random_.chance(800))) addresses.push_back(machine.address);
    }
    return addresses;
  }

  void resolve() {
    for (Machine& machine : machines_) {
      if (machine.elector) machine.elector->resolved(time_.now(), whatTheNameSays());
    }
    time_.after(seconds(1), [this] { resolve(); });
  }

  // Whether it is a promise, a proposal or an acceptance.
  bool send(size_t from, const Elector::Outgoing& message) {
    const auto body = founding::decode(founding::unseal(key_, message.envelope)->body)->body;
    if (isNew(from) && time_.now() < cramped_until_ && random_.chance(700)) {
      timeline_.say(from, "has no room for a message to {}", message.to.ip.toString());
      machines_[from].elector->unsent(time_.now(), message.to);
      return false;
    }
    if (timeline_.enabled()) note(from, message.to, body);
    const auto to = std::find_if(machines_.begin(), machines_.end(),
                                 [&](const Machine& machine) { return machine.address == message.to; });
    if (to != machines_.end()) {
      const size_t receiver = static_cast<size_t>(to - machines_.begin());
      if (!random_.chance(weather_.loss)) deliver(from, receiver, message.envelope);
      if (random_.chance(weather_.duplicates)) deliver(from, receiver, message.envelope);
    }
    return std::holds_alternative<founding::Promise>(body) || std::holds_alternative<founding::Accept>(body) ||
           std::holds_alternative<founding::Accepted>(body);
  }

  // Nobody on one side hears of the other one yet.
  bool areApart(size_t one, size_t other) const {
    return meets_ && !have_met_ && machines_[one].side != machines_[other].side;
  }

  void deliver(size_t from, size_t to, std::string envelope) {
    if (cut_[from][to] || areApart(from, to)) return;
    const Duration most = random_.chance(weather_.stragglers) ? Weather::kLongest : weather_.delay;
    time_.after(random_.between(std::chrono::microseconds(50), most), [this, from, to, envelope = std::move(envelope)] {
      if (cut_[from][to] || !machines_[to].elector) return;
      machines_[to].elector->receive(time_.now(), machines_[from].address, envelope);
      settle(to);
    });
  }

  void note(size_t from, const SocketAddress& to, const founding::Body& body) {
    const std::string ip = to.ip.toString();
    if (const auto* it = std::get_if<founding::Prepare>(&body)) {
      timeline_.say(from, "to {}: prepare {}", ip, it->ballot.round);
    } else if (const auto* promise = std::get_if<founding::Promise>(&body)) {
      timeline_.say(from, "to {}: promise {}, {}", ip, promise->ballot.round,
                    promise->accepted ? promise->accepted->value.cluster.substr(0, 8) : "nothing accepted");
    } else if (const auto* accept = std::get_if<founding::Accept>(&body)) {
      timeline_.say(from, "to {}: accept {} {}", ip, accept->proposal.ballot.round,
                    accept->proposal.value.cluster.substr(0, 8));
    } else if (const auto* accepted = std::get_if<founding::Accepted>(&body)) {
      timeline_.say(from, "to {}: accepted {}", ip, accepted->ballot.round);
    } else if (const auto* refused = std::get_if<founding::Refused>(&body)) {
      timeline_.say(from, "to {}: refused {} for {}", ip, refused->ballot.round, refused->promised.round);
    } else if (const auto* decided = std::get_if<founding::Decided>(&body)) {
      timeline_.say(from, "to {}: decided {}", ip, decided->value.cluster.substr(0, 8));
    }
  }

  // --- faults ---

  void partition() {
    if (faults_ended_) return;
    ++faults_;
    // Machines on sides A and B do not reach each other; those on the bridge reach all.
    const size_t kind =
        weather_.bridged && random_.chance(800)
            ? 4
            : random_.below(5);  // 0: no cut; 1: one machine is alone; 2: halves; 3: the same, one way; 4: a bridge
    const size_t one = random_.below(machines_.size());
    const bool oldest = weather_.bridged && random_.chance(500);  // are on the two sides
    std::string side;
    for (size_t i = 0; i < machines_.size(); ++i)
      side += oldest      ? "AB-"[std::min<size_t>(i, 2)]
              : kind == 0 ? '-'
              : kind == 1 ? (i == one ? 'A' : 'B')
                          : "AB-"[random_.below(kind == 4 ? 3 : 2)];
    for (size_t i = 0; i < machines_.size(); ++i) {
      for (size_t j = 0; j < machines_.size(); ++j)
        cut_[i][j] = (side[i] == 'A' && side[j] == 'B') || (kind != 3 && side[i] == 'B' && side[j] == 'A');
    }
    timeline_.say(Timeline::kEverybody, "the network is cut{}: {}", kind == 3 ? " one way" : "", side);
    time_.after(random_.between(milliseconds(200), weather_.bridged ? seconds(3) : seconds(8)),
                [this] { partition(); });
  }

  void crashSomebody() {
    if (faults_ended_) return;
    const size_t first = random_.below(machines_.size());
    const size_t last = random_.chance(100) ? first + machines_.size() : first + 1;  // of all: the power fails
    const Duration down = random_.between(milliseconds(10), seconds(10));
    for (size_t i = first; i < last; ++i) crash(i % machines_.size(), down);
    time_.after(random_.between(milliseconds(200), seconds(10)), [this] { crashSomebody(); });
  }

  void endFaults() {
    faults_ended_ = true;
    timeline_.say(Timeline::kEverybody, "all faults end");
    cut_.assign(machines_.size(), std::vector<bool>(machines_.size(), false));
    weather_.loss = weather_.duplicates = weather_.stragglers = 0;
    for (size_t i = 0; i < machines_.size(); ++i) start(i);
  }

  // --- the judge ---

  void goOn(Time end, bool until_all_know) {
    while (!violation_ && !(until_all_know && allKnow()) && time_.step(end)) {
    }
  }

  bool allKnow() const {
    return (!meets_ || areOne()) &&
           std::all_of(machines_.begin(), machines_.end(),
                       [](const Machine& machine) { return !machine.elector || machine.decided; });
  }
  bool canFound() const {
    const auto live = static_cast<size_t>(std::count_if(
        machines_.begin(), machines_.end(), [](const Machine& machine) { return machine.elector != nullptr; }));
    return live >= expect_ / 2 + 1 || std::any_of(machines_.begin(), machines_.end(), [](const Machine& machine) {
             return machine.elector && machine.decided;
           });
  }

  void judge(size_t i) {
    Machine& machine = machines_[i];
    const std::optional<Value>& decision = machine.elector->decision();
    if (decision && !machine.elector->next() && machine.emptied.contains(decision->cluster))
      return violate("memory", fmt::format("machine {} is again a member of a cluster that it has left", i + 1));
    if (!decision) {
      if (machine.decided) violate("memory", fmt::format("machine {} has forgotten the cluster", i + 1));
      return;
    }
    const bool is_known = machine.decided == decision->cluster;
    if (!is_known && machine.decided) judgeMove(i, *decision);
    if (machine.owns.empty() && !machine.elector->next()) {
      machine.decided = machine.owns = decision->cluster;
      reach(i);
    }
    if (is_known) return;
    timeline_.say(i, "is a member of {}, number {}", decision->cluster.substr(0, 8), decision->numberOf(machine.uuid));
    std::optional<Value>& founded = founded_[machine.side];
    if (std::ranges::find(founded_, decision) != founded_.end()) {
    } else if (founded) {
      violate("founding", fmt::format("two clusters: {} and {}", founded->cluster, decision->cluster));
    } else {
      founded = decision;
      founded_at_ = time_.now();
      judgeValue(*decision, chosen_[machine.side]);
    }
    if (weather_.calm && time_.now() > last_start_ + kMaxFounding)
      violate("speed", fmt::format("machine {} learns of the cluster {} ms after the last start", i + 1,
                                   std::chrono::duration_cast<milliseconds>(time_.now() - last_start_).count()));
  }

  // What Paxos says of acceptances that are durable: those of a quorum for one ballot choose its value.
  void judgeRecord(size_t i) {
    const Result<founding::Record> record = founding::decodeRecord(machines_[i].disk, machines_[i].uuid);
    if (!record || !record->accepted) return;
    std::set<std::string>& acceptors = acceptors_[record->accepted->ballot];
    acceptors.insert(machines_[i].uuid);
    const auto known = proposals_.emplace(record->accepted->ballot, record->accepted->value).first;
    if (known->second != record->accepted->value) violate("founding", "one ballot has two values");
    if (acceptors.size() < expect_ / 2 + 1) return;
    std::optional<Value>& chosen = chosen_[machines_[i].side];
    if (!chosen) chosen = record->accepted->value;
    if (*chosen != record->accepted->value)
      violate("founding",
              fmt::format("two values are chosen: {} and {}", chosen->cluster, record->accepted->value.cluster));
  }

  // Of two clusters that have met: to the one that stays, which lives, and with nothing in hand.
  void judgeMove(size_t i, const Value& to) {
    const Machine& machine = machines_[i];
    const auto from = std::ranges::find_if(
        founded_, [&](const auto& value) { return value && value->cluster == machine.decided; });
    if (!meets_ || from == founded_.end() || to != founded_[staying()])
      return violate("memory", fmt::format("machine {} has changed its cluster", i + 1));
    if (!machine.owns.empty())
      return violate("leases", fmt::format("machine {} has a name of the cluster that it has left", i + 1));
    if (dead_side_ < 2 && founded_[dead_side_] == to)
      return violate("meeting", fmt::format("machine {} leaves its cluster for one without voters", i + 1));
  }

  // The side whose cluster more machines have founded, whatever their clocks said.
  size_t staying() const {
    const size_t sizes[] = {founded_[0]->members.size(), founded_[1]->members.size()};
    if (sizes[0] != sizes[1]) return sizes[0] > sizes[1] ? 0 : 1;
    return founding::yields(*founded_[0], *founded_[1]) ? 1 : 0;
  }

  // Both sides are of the cluster that stays, unless that has no voters.
  bool areOne() const {
    if (!founded_[0] || !founded_[1]) return true;
    if (dead_side_ == staying()) return true;
    return std::ranges::all_of(machines_, [&](const Machine& machine) {
      return !machine.elector || machine.decided == founded_[staying()]->cluster;
    });
  }

  void judgeValue(const Value& value, const std::optional<Value>& chosen) {
    if (value != chosen) return violate("founding", fmt::format("{} is decided, and was not chosen", value.cluster));
    std::vector<std::string> fittest;  // the oldest first
    int64_t token = 0;
    for (const founding::Member& member : value.members) {
      if (!electors_.contains(member.uuid)) return violate("members", "one that has never been");
      const int fitness = facts_[member.uuid].fitness;
      if (!fittest.empty() && fitness > facts_[fittest[0]].fitness) fittest.clear();
      if (fittest.empty() || fitness == facts_[fittest[0]].fitness) fittest.push_back(member.uuid);
      token = std::max(token, facts_[member.uuid].token);
    }
    for (size_t i = 1; i < value.members.size(); ++i) {
      if (value.members[i - 1] >= value.members[i]) violate("order", "numbers that are not in the order of the starts");
    }
    if (value.token_base <= token) violate("tokens", "a member has seen a token above the base");
    // The oldest that can: an odd number.
    const size_t wanted = std::min(value.members.size() <= 2   ? 1UL
                                   : value.members.size() <= 9 ? 3UL
                                                               : 5UL,
                                   (fittest.size() - 1) / 2 * 2 + 1);
    fittest.resize(wanted);
    if (!std::equal(fittest.begin(), fittest.end(), value.voters.begin(), value.voters.end(),
                    [](const std::string& uuid, const founding::Voter& voter) { return uuid == voter.uuid; }))
      violate("voters", "not the oldest of the fittest");
    if (weather_.calm && value.members.size() != machines_.size())
      violate("order", fmt::format("{} of {} machines that started at once have no number",
                                   machines_.size() - value.members.size(), machines_.size()));
  }

  void violate(std::string property, std::string text) {
    if (violation_) return;
    timeline_.say(Timeline::kEverybody, "VIOLATED: {}", text);
    violation_ = Violation{std::move(property), std::move(text), {}};
  }

  RunResult result() const {
    RunResult made;
    made.violation = violation_;
    made.timeline = timeline_.render({}, 400);
    made.scenario = fmt::format(
        "{} machines, {} expected, {}, {} electors, {}", machines_.size(), expect_, weather_.calm ? "calm" : "rough",
        electors_.size(),
        founded_[0] ? fmt::format("founded after {} ms",
                               std::chrono::duration_cast<milliseconds>(founded_at_.time_since_epoch()).count())
                 : "not founded");
    made.events = time_.steps();
    made.states = states_;
    made.faults = faults_;
    made.nodes = machines_.size();
    made.time = time_.now().time_since_epoch();
    return made;
  }

  static constexpr int64_t kEpoch = 1'700'000'000'000'000'000;
  struct Facts {
    int fitness = 0;  // to vote: 1 for a disk, 2 for the program
    int64_t token = 0;
  };

  Random random_;
  VirtualTime time_;
  Timeline timeline_;
  const founding::Key key_;
  Weather weather_;
  size_t expect_ = 1;
  size_t spare_ = 0;  // electors that may still come into being
  bool by_name_ = false;
  bool meets_ = false;  // two clusters do
  bool have_met_ = false;
  bool grows_ = false;      // new machines come, the first of which is number `expect_`
  bool late_name_ = false;  // by which they know the others
  std::vector<SocketAddress> network_;
  size_t knows_ = 0;      // the machine that has addresses of both from then on
  Time cramped_until_;    // sockets of new machines have little room
  size_t dead_side_ = 2;  // its voters are lost; 2: none
  std::vector<Machine> machines_;
  std::vector<Time> starts_;
  Time last_start_;
  Time faults_end_;
  bool faults_ended_ = false;
  std::vector<std::vector<bool>> cut_;  // from, to
  std::set<std::string> electors_;
  std::map<std::string, Facts> facts_;  // of each elector
  std::map<founding::Ballot, std::set<std::string>> acceptors_;
  std::map<founding::Ballot, Value> proposals_;
  std::array<std::optional<Value>, 2> chosen_;   // of each side
  std::array<std::optional<Value>, 2> founded_;  // what is decided, and known
  Time founded_at_;
  std::optional<Violation> violation_;
  uint64_t states_ = 0;
  uint64_t faults_ = 0;
};

}  // namespace

RunResult simulateFounding(const RunOptions& options) { return FoundingWorld(options).run(); }

}  // namespace idetcd::simulation
