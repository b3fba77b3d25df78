#include "simulation/world.h"

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/ip_address.h"
#include "naming/context.h"
#include "naming/keyspace.h"
#include "naming/record_codec.h"
#include "node/uuid.h"
#include "simulation/network.h"
#include "simulation/relay_network.h"

namespace idetcd::simulation {
namespace {

using naming::NodeRecord;
using naming::Ownership;
using store::DeleteOp;
using store::KeyRange;
using store::PutOp;
using namespace std::chrono_literals;

constexpr const char* kPattern = "worker{{.ID}}.tf.internal.";
constexpr Duration kLook = 500ms;  // in which the judge looks at all
constexpr Duration kRest = 120s;   // likewise, at rest
constexpr uint64_t kMostEvents = 200'000'000;
// After all faults: the longest back-offs of a claim and of a keeper, a lease and an election, some time-outs.
Duration restBound(std::chrono::seconds lease) { return 150s + 4 * lease; }

// What a state directory keeps of a node.
struct Disk {
  std::string uuid;
  int64_t slot = 0;
  int64_t token = 0;
  uint64_t cluster_id = 0;
  int64_t revision = 0;
  std::vector<int64_t> leases = {};
  size_t holder = SIZE_MAX;  // the machine whose process wrote this
};

struct Machine {
  size_t index = 0;
  std::unique_ptr<SimulatedClock> clock;
  std::vector<Link> links;
  std::optional<Disk> disk;
  uint64_t process = 0;    // that runs; 0: none
  uint64_t processes = 0;  // that have run
  bool busy = false;       // a fault of its process is under way
  bool links_busy = false;
  Time wall_set_at = Time() - 1h;
  Time shown_by_wall_at = Time() - 1h;  // that it was paused
  NodeRecord record;                    // its addresses
  int64_t limit = 1;                    // in its Corefile, as the next
  std::chrono::seconds hold{0};
};

struct Running {
  std::unique_ptr<ProcessNetwork> network;
  std::shared_ptr<Process> process;
  uint64_t twin = 0;                  // that follows it; 0: none
  bool dormant = false;               // it is such a twin: nobody sees what it does
  std::optional<Ownership> reported;  // as its programs know it
};

enum class Kind {
  kKill,
  kTerminate,
  kStop,
  kSuspend,
  kPauseMachine,
  kSetWall,
  kMoveAddress,
  kCopyState,
  kClone,
  kJoin,
  kCut,
  kSlow,
  kFlaky,
  kBreak,
  kFreezeMember,
  kPauseMember,
  kIsolateMember,
  kKillMember,
  kLagMember,
  kChangeLeader,
  kDeafen,
  kDisorder,
  kCompact,
  kNoSpace,
  kRestore,
  kDeleteSlot,
  kOverwriteSlot,
  kDeleteInternal,
  kWipe,
  kForeign,
  kCount,
  // Of etcd versions with known defects.
  kStaleReads = kCount,
  kRenewsEnded,
  kOldLeader,
  kOldEvents,
  kDefects
};

// --- the world ---

class World {
 public:
  explicit World(const RunOptions& options);
  ~World();

  RunResult run();

 private:
  void drawScenario(size_t nodes);
  void drawRelays();
  Machine& addMachine();
  int64_t someLimit();

  // Processes.
  Process& launch(Machine& machine, uint64_t seed, const Disk& disk, bool predecessor_ended, bool dormant);
  void start(Machine& machine);
  void startClonable(Machine& machine);
  void kill(Machine& machine);
  void remove(uint64_t id);
  void restart(Machine& machine, Duration after);
  Process* processOf(const Machine& machine);
  template <typename Work>
  void withTwin(Machine& machine, Work work);
  void deliver(uint64_t id, const std::function<void(SimulatedStore&)>& what);
  void afterTurn(Process& process);
  void claimed(Process& process, const Ownership& owned);
  void lost(Process& process);
  void write(uint64_t id, size_t index, std::function<void(Disk&)> change, std::function<void()> done = {});

  // Faults.
  void planFault();
  bool begin(Kind kind);
  void endLater(Duration duration, std::function<void()> end);
  void heal();
  Duration someDuration();
  Machine* someMachine();
  std::optional<size_t> someMember();
  template <typename... Args>
  void say(size_t machine, fmt::format_string<Args...> format, Args&&... args) {
    timeline_.say(machine, format, std::forward<Args>(args)...);
  }

  bool killNode();
  bool terminateNode();
  bool standNode(bool suspend);
  bool pauseMachine();
  bool setWall();
  bool moveAddress();
  bool copyState();
  bool cloneNode();
  bool join();
  bool cutLinks();
  void cut(Machine& machine, bool all, Duration duration);
  bool slowLinks();
  bool flakyLinks();
  bool breakConnections();
  bool memberFault(SimulatedEtcd::Fault fault, const char* what);
  bool lagMember();
  bool deafen();
  bool disorder();
  bool staleReads();
  bool renewsEnded();
  bool oldLeader();
  bool oldEvents();
  bool compact();
  bool noSpace();
  bool restore();
  bool deleteSlot();
  bool overwriteSlot();
  bool deleteInternal();
  bool wipe();
  bool foreign();
  std::string someSlot();
  void operate(store::Op op);

  void look();
  void startAll();
  void judgeRun();
  void measure();
  void pass(
      Duration duration, const std::function<bool()>& until = [] { return false; });
  std::string measureDeadMember();
  bool allKnowAll() const;
  std::string costTable(const Traffic& start, const Traffic& before, Duration rest) const;
  RunResult result() const;

  const RunOptions options_;
  VirtualTime time_;
  Random random_;
  Random limits_;
  Random crowds_;
  Random relay_chances_;
  Random holds_;
  Timeline timeline_;
  std::chrono::seconds lease_{20};
  std::chrono::seconds hold_{0};
  size_t nodes_ = 1;
  int64_t limit_ = 1;  // the highest of any node
  bool limits_differ_ = false;
  size_t members_ = 1;
  Duration storm_{0};
  Duration mean_gap_{1s};
  Duration start_spread_{0};
  int64_t fan_out_ = 0;  // 0: there are no relays
  int64_t most_at_once_ = naming::Protocol::Options().most_at_once;
  size_t lost_ = 0;
  size_t late_ = 0;
  size_t claims_lost_ = 0;
  Duration most_delay_{20ms};
  Duration most_page_delay_{0};
  Duration most_disk_delay_{0};
  KeyRange watched_ = naming::watchedRange();
  bool has_state_ = true;
  std::vector<Kind> kinds_;

  std::optional<slots::NamePattern> pattern_;
  std::optional<SimulatedEtcd> etcd_;
  std::optional<Judge> judge_;
  std::deque<Machine> machines_;
  std::map<uint64_t, Running> running_;
  RelayNetwork relays_{time_, relay_chances_, [this](uint64_t id) -> SimulatedScheduler* {
                         const auto found = running_.find(id);
                         return found == running_.end() ? nullptr : &found->second.process->scheduler();
                       }};
  uint64_t processes_ = 0;
  std::map<uint64_t, std::function<void()>> ends_;
  uint64_t ends_planned_ = 0;
  bool calm_ = false;
  bool one_stays_frozen_ = false;
  bool no_space_ = false;
  bool renews_ended_ = false;
  Time space_since_ = Time() - 1h;
  uint64_t faults_ = 0;
  uint64_t states_ = 0;
  std::optional<EtcdModel> backup_;
  uint64_t clusters_ = 1;
  bool was_set_back_ = false;
  bool was_copied_ = false;
  size_t named_ = 0;  // processes that have said so
  uint64_t losses_ = 0;
  std::string cost_;
};

World::World(const RunOptions& options)
    : options_(options),
      random_(options.seed * 0x9e3779b97f4a7c15 + 1),
      limits_(options.seed * 0x9e3779b97f4a7c15 + 2),
      crowds_(options.seed * 0x9e3779b97f4a7c15 + 3),
      relay_chances_(options.seed * 0x9e3779b97f4a7c15 + 4),
      holds_(options.seed * 0x9e3779b97f4a7c15 + 5),
      timeline_(time_, options.trace) {
  drawScenario(options.nodes);
}

World::~World() {
  while (!running_.empty()) remove(running_.begin()->first);
}

// Each seed has a few kinds of faults of its own: with all of them in each, none would ever do its work undisturbed.
void World::drawScenario(size_t nodes) {
  constexpr std::array kLeases{5s, 10s, 20s};
  lease_ = kLeases[random_.below(kLeases.size())];
  const size_t size_class = random_.below(100);
  nodes_ = size_class < 60 ? 1 + random_.below(6) : size_class < 93 ? 4 + random_.below(10) : 10 + random_.below(30);
  if (nodes > 0) nodes_ = nodes;
  limit_ = std::max<int64_t>(1, static_cast<int64_t>(nodes_) + random_.between(-2, 4));
  limits_differ_ = limits_.chance(250);
  members_ = random_.chance(700) ? 3 : 1;
  storm_ = random_.between(3 * lease_, 9 * lease_);
  mean_gap_ = random_.between(Duration(lease_) / 20, Duration(lease_) / 2);
  start_spread_ = random_.chance(500) ? Duration(0) : random_.between(0s, 2 * lease_);
  lost_ = random_.chance(500) ? 0 : random_.below(40);
  late_ = random_.chance(500) ? 0 : random_.below(20);
  claims_lost_ = random_.chance(800) ? 0 : 300 + random_.below(500);
  if (random_.chance(100))
    most_delay_ = Duration(lease_) / (2 * naming::RoundTrip::kLeastInLease);  // as slow as may be
  most_page_delay_ = random_.chance(800) ? Duration(0) : Duration(4s);
  most_disk_delay_ = random_.chance(800) ? 50ms : 800ms;
  const bool watches_pattern_only = random_.chance(300);
  has_state_ = random_.chance(700);
  const size_t share = 100 + random_.below(400);
  for (size_t kind = 0; kind < static_cast<size_t>(Kind::kCount); ++kind) {
    if (random_.chance(share)) kinds_.push_back(static_cast<Kind>(kind));
  }
  for (auto kind = static_cast<size_t>(Kind::kCount); options_.defects && kind < static_cast<size_t>(Kind::kDefects);
       ++kind)
    kinds_.push_back(static_cast<Kind>(kind));
  if (options_.cost) {
    lease_ = 20s;
    limit_ = static_cast<int64_t>(nodes_);
    limits_differ_ = has_state_ = false;
    members_ = 3;
    lost_ = late_ = claims_lost_ = 0;
    most_delay_ = 20ms;
    most_page_delay_ = Duration(0);
    most_disk_delay_ = 50ms;
    start_spread_ = Duration(0);
    kinds_.clear();
  } else if (crowds_.chance(250)) {
    most_at_once_ = crowds_.between(1, 5);
  }
  drawRelays();
  if (!options_.cost && holds_.chance(150)) hold_ = lease_ * holds_.between(2, 8);
  pattern_ = slots::NamePattern::parse(kPattern, limit_).value();
  etcd_.emplace(time_, random_, members_, [this] {
    if (!options_.cost) judge_->storeChanged();
  });
  if (options_.cost) etcd_->setServiceTime(Duration(1s) / options_.rate);
  if (watches_pattern_only && !options_.cost) watched_ = KeyRange::prefix(pattern_->literalPrefix());
  judge_.emplace(time_, etcd_->model(), *pattern_, watched_, lease_, hold_);
}

// What a copy of a process is told by a relay is not followed: it is of no world with both.
void World::drawRelays() {
  if (options_.relay > 0) fan_out_ = options_.relay;
  if (options_.cost || (options_.relay == 0 && !relay_chances_.chance(200))) return;
  if (options_.relay == 0) fan_out_ = relay_chances_.between(1, 3);
  relays_.setLost(relay_chances_.chance(500) ? 0 : 20);
  std::erase(kinds_, Kind::kClone);
}

Machine& World::addMachine() {
  constexpr int64_t kDriftPpm = 40'000;
  Machine& machine = machines_.emplace_back();
  machine.index = machines_.size() - 1;
  const SimulatedClock::Reading reading{Time(random_.between(1s, 1'000'000s)),
                                        random_.between(1'700'000'000s, 1'800'000'000s)};
  machine.clock = std::make_unique<SimulatedClock>(time_, reading, random_.between(-kDriftPpm, kDriftPpm));
  machine.links.resize(members_);
  for (Link& link : machine.links) {
    link.most_delay = most_delay_ > 20ms ? most_delay_ : random_.between(1ms, 20ms);
    link.lost = lost_;
    link.late = late_;
    link.claims_lost = claims_lost_;
    link.most_page_delay = most_page_delay_;
  }
  const auto number = static_cast<uint8_t>(machine.index % 250 + 1);
  machine.record.ipv4 = IpAddress::v4({10, 0, static_cast<uint8_t>(machine.index / 250), number});
  machine.record.port = "53";
  machine.limit = someLimit();
  machine.hold = holds_.chance(800) ? hold_ : 0s;
  return machine;
}

int64_t World::someLimit() { return limits_differ_ && limits_.chance(600) ? limits_.between(1, limit_) : limit_; }

// --- processes ---

Process& World::launch(Machine& machine, uint64_t seed, const Disk& disk, bool predecessor_ended, bool dormant) {
  const uint64_t id = ++processes_;
  Running& running = running_[id];
  running.dormant = dormant;
  running.network = std::make_unique<ProcessNetwork>(time_, random_, *etcd_, machine.links);
  std::function<void(std::string)> trace;
  if (timeline_.enabled()) {
    trace = [this, id, index = machine.index](std::string text) {
      const auto found = running_.find(id);
      if (found != running_.end() && !found->second.dormant) timeline_.add(index, std::move(text));
    };
  }
  running.network->connect([this, id](const auto& what) { deliver(id, what); },
                           [this, id](const Request& request) { judge_->sent(id, request); }, std::move(trace));

  Process::Options made;
  made.id = id;
  made.machine = machine.index;
  made.seed = seed;
  naming::Claim::Options& claim = made.protocol.claim;
  claim.pattern = slots::NamePattern::parse(kPattern, machine.limit).value();
  claim.lease = lease_;
  claim.hold = machine.hold;
  claim.record = machine.record;
  claim.record.id = disk.uuid;
  if (predecessor_ended) claim.predecessor = naming::Claim::Predecessor{disk.cluster_id, disk.revision, disk.leases};
  // What is copied with its machine has no disk of its own.
  if (!dormant) {
    claim.keep_leases = [this, id, index = machine.index](uint64_t cluster_id, const std::vector<int64_t>& leases,
                                                          const std::function<void()>& kept) {
      if (running_.at(id).twin != 0) return kept();
      const auto change = [cluster_id, leases](Disk& kept_disk) {
        if (std::exchange(kept_disk.cluster_id, cluster_id) != cluster_id) kept_disk.revision = 0;
        kept_disk.leases = leases;
      };
      write(id, index, change, kept);
    };
  }
  ValueFilter filter;
  if (options_.cost) filter.uuid = disk.uuid;
  made.protocol.watched = {watched_};
  made.protocol.most_at_once = most_at_once_;
  if (fan_out_ > 0) made.protocol.relay = relays_.optionsOf(id, fan_out_, filter);
  filter.keeps_ids = fan_out_ > 0;
  running.network->setFilter(std::move(filter));
  for (size_t i = 0; i < members_; ++i) made.store.endpoints.push_back((seed + i) % members_);
  made.preferred_slot = disk.slot;
  made.seen_token = disk.token;
  made.after_turn = [this](Process& process) { afterTurn(process); };
  made.on_claimed = [this](Process& process, const Ownership& owned) { claimed(process, owned); };
  made.on_lost = [this](Process& process) { lost(process); };
  made.on_released = [this](Process& process) { time_.after(0s, [this, id = process.id()] { remove(id); }); };
  running.process = std::make_shared<Process>(time_, *machine.clock, *running.network, std::move(made));
  return *running.process;
}

void World::start(Machine& machine) {
  if (machine.processes > 0 && limits_.chance(200)) machine.limit = someLimit();
  const bool keeps = has_state_ && machine.disk;
  const uint64_t seed = random_.next();
  Random uuids(seed + 1);
  const Disk disk = keeps ? *machine.disk : Disk{.uuid = node::randomUuid(uuids)};
  // A copy of another's state says nothing of whether that one has ended, and now and then nothing else does.
  const bool ended = keeps && disk.holder == machine.index && random_.chance(900);
  if (!ended && machine.disk) machine.disk->holder = SIZE_MAX;  // its leases may be another's
  Process& process = launch(machine, seed, disk, ended, false);
  machine.process = process.id();
  ++machine.processes;
  say(machine.index, "starts as process {}, {}, limit {}{}{}", process.id(), disk.uuid, machine.limit,
      disk.slot > 0 ? fmt::format(", was {}", pattern_->render(disk.slot)) : "", ended ? " for certain" : "");
  if (!options_.cost) judge_->began(process, process.id());
  process.start();
}

// With a twin on a machine of its own, which follows until it is the copy.
void World::startClonable(Machine& machine) {
  Machine& other = addMachine();
  const uint64_t seed = random_.next();
  Random uuids(seed + 1);
  const Disk disk{.uuid = node::randomUuid(uuids)};
  *other.clock = *machine.clock;
  other.record = machine.record;
  other.limit = machine.limit;
  other.hold = machine.hold;
  other.busy = other.links_busy = true;
  Process& process = launch(machine, seed, disk, false, false);
  Process& twin = launch(other, seed, disk, false, true);
  machine.process = process.id();
  ++machine.processes;
  Running& running = running_.at(process.id());
  running.twin = twin.id();
  running.network->follow(running_.at(twin.id()).network.get());
  running_.at(twin.id()).network->beTwinOf([this, index = machine.index] {
    judge_->violated("twin", fmt::format("the process of node {} does not do the same twice", index), {index});
  });
  say(machine.index, "starts as process {}, {}", process.id(), disk.uuid);
  judge_->began(process, process.id());
  process.start();
  twin.start();
}

Process* World::processOf(const Machine& machine) {
  const auto found = running_.find(machine.process);
  return found == running_.end() ? nullptr : found->second.process.get();
}

// Whatever reaches a process reaches the twin that follows it.
template <typename Work>
void World::withTwin(Machine& machine, Work work) {
  const auto found = running_.find(machine.process);
  if (found == running_.end()) return;
  const uint64_t twin_id = found->second.twin;
  work(*found->second.process, machine);
  const auto twin = running_.find(twin_id);
  if (twin != running_.end()) work(*twin->second.process, machines_[twin->second.process->machine()]);
}

void World::deliver(uint64_t id, const std::function<void(SimulatedStore&)>& what) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  const uint64_t twin_id = found->second.twin;
  Process& process = *found->second.process;
  process.scheduler().deliver([&process, what] { what(process.store()); });
  const auto twin = running_.find(twin_id);
  if (twin == running_.end()) return;
  Process& other = *twin->second.process;
  other.scheduler().deliver([&other, what] { what(other.store()); });
}

void World::afterTurn(Process& process) {
  ++states_;
  if (options_.cost) return;
  const auto found = running_.find(process.id());
  if (found != running_.end() && !found->second.dormant) judge_->look(process);
}

void World::claimed(Process& process, const Ownership& owned) {
  Running& claimant = running_.at(process.id());
  claimant.reported = owned;
  ++named_;
  if (claimant.dormant) return;
  say(process.machine(), "owns {}, token {}, lease {:x}", owned.name, owned.token, owned.lease);
  judge_->reportedClaim(process, owned);
  process.protocol().setTold(true);
  write(process.id(), process.machine(), [uuid = process.uuid(), owned](Disk& disk) {
    disk.uuid = uuid;
    disk.slot = owned.id;
    disk.token = owned.token;
    disk.cluster_id = owned.cluster_id;
    disk.revision = owned.revision;
  });
}

void World::lost(Process& process) {
  Running& lost = running_.at(process.id());
  lost.reported.reset();
  --named_;
  ++losses_;
  if (lost.dormant) return;
  say(process.machine(), "owns nothing any more");
  judge_->reportedLoss(process);
  if (lost.twin != 0) return process.protocol().setTold(false);
  write(
      process.id(), process.machine(), [](Disk&) {},
      [this, id = process.id()] {
        const auto told = running_.find(id);
        if (told != running_.end() && !told->second.reported) told->second.process->protocol().setTold(false);
      });
}

// The file is written a moment later, if the process lives that long; `done` is called then.
void World::write(uint64_t id, size_t index, std::function<void(Disk&)> change, std::function<void()> done) {
  time_.after(random_.between(0ms, most_disk_delay_),
              [this, id, index, change = std::move(change), done = std::move(done)] {
                const auto found = running_.find(id);
                if (found == running_.end() || machines_[index].process != id) return;
                std::optional<Disk>& disk = machines_[index].disk;
                if (!disk) disk.emplace();
                if (std::exchange(disk->holder, index) != index) {
                  disk->uuid = found->second.process->uuid();
                  disk->revision = 0;
                  disk->leases.clear();
                }
                change(*disk);
                if (done) found->second.process->scheduler().deliver(done);
              });
}

void World::remove(uint64_t id) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  const uint64_t twin = found->second.twin;
  Running& running = found->second;
  running.network->close();
  judge_->ended(*running.process);
  running.process->kill();
  Machine& machine = machines_[running.process->machine()];
  if (machine.process == id) machine.process = 0;
  running_.erase(found);
  if (twin != 0) remove(twin);
}

void World::kill(Machine& machine) {
  if (machine.process != 0) remove(machine.process);
}

void World::restart(Machine& machine, Duration after) {
  machine.busy = true;
  endLater(after, [this, &machine] {
    machine.busy = false;
    kill(machine);
    start(machine);
  });
}

// --- faults ---

void World::endLater(Duration duration, std::function<void()> end) {
  const uint64_t number = ++ends_planned_;
  ends_[number] = std::move(end);
  time_.after(duration, [this, number] {
    const auto found = ends_.find(number);
    if (found == ends_.end()) return;
    const auto what = std::move(found->second);
    ends_.erase(found);
    what();
  });
}

void World::heal() {
  calm_ = true;
  say(Timeline::kEverybody, "all faults end");
  for (auto& [number, end] : std::exchange(ends_, {})) end();
  for (Machine& machine : machines_) {
    for (Link& link : machine.links) link.lost = link.late = link.claims_lost = 0;
  }
}

void World::planFault() {
  if (kinds_.empty()) return;
  time_.after(random_.between(mean_gap_ / 10, 2 * mean_gap_), [this] {
    if (calm_) return;
    if (begin(random_.oneOf(kinds_))) ++faults_;
    planFault();
  });
}

// A moment; less than a lease; about a lease; more than one.
Duration World::someDuration() {
  const Duration lease = lease_;
  switch (random_.below(4)) {
    case 0:
      return random_.between(20ms, 500ms);
    case 1:
      return random_.between(500ms, lease);
    case 2:
      return random_.between(lease * 8 / 10, lease * 13 / 10);
    default:
      return random_.between(lease, lease * 5 / 2);
  }
}

Machine* World::someMachine() {
  Machine& machine = machines_[random_.below(machines_.size())];
  return machine.busy || machine.process == 0 ? nullptr : &machine;
}

std::optional<size_t> World::someMember() {
  const size_t member = random_.below(members_);
  if (!etcd_->isHealthy(member)) return std::nullopt;
  // Now and then too many fail.
  if (!etcd_->canSpare() && !random_.chance(200)) return std::nullopt;
  return member;
}

bool World::begin(Kind kind) {
  using Fault = SimulatedEtcd::Fault;
  if (kind >= Kind::kCompact && !etcd_->isUp()) return false;
  switch (kind) {
    case Kind::kKill:
      return killNode();
    case Kind::kTerminate:
      return terminateNode();
    case Kind::kStop:
      return standNode(false);
    case Kind::kSuspend:
      return standNode(true);
    case Kind::kPauseMachine:
      return pauseMachine();
    case Kind::kSetWall:
      return setWall();
    case Kind::kMoveAddress:
      return moveAddress();
    case Kind::kCopyState:
      return copyState();
    case Kind::kClone:
      return cloneNode();
    case Kind::kJoin:
      return join();
    case Kind::kCut:
      return cutLinks();
    case Kind::kSlow:
      return slowLinks();
    case Kind::kFlaky:
      return flakyLinks();
    case Kind::kBreak:
      return breakConnections();
    case Kind::kFreezeMember:
      return memberFault(Fault::kFrozen, "is frozen");
    case Kind::kPauseMember:
      return memberFault(Fault::kPaused, "is paused");
    case Kind::kIsolateMember:
      return memberFault(Fault::kIsolated, "is isolated");
    case Kind::kKillMember:
      return memberFault(Fault::kKilled, "is killed");
    case Kind::kLagMember:
      return lagMember();
    case Kind::kChangeLeader:
      say(Timeline::kEverybody, "another member leads");
      etcd_->changeLeader();
      return true;
    case Kind::kDeafen:
      return deafen();
    case Kind::kDisorder:
      return disorder();
    case Kind::kCompact:
      return compact();
    case Kind::kNoSpace:
      return noSpace();
    case Kind::kRestore:
      return restore();
    case Kind::kDeleteSlot:
      return deleteSlot();
    case Kind::kOverwriteSlot:
      return overwriteSlot();
    case Kind::kDeleteInternal:
      return deleteInternal();
    case Kind::kWipe:
      return wipe();
    case Kind::kForeign:
      return foreign();
    case Kind::kStaleReads:
      return staleReads();
    case Kind::kRenewsEnded:
      return renewsEnded();
    case Kind::kOldLeader:
      return oldLeader();
    case Kind::kOldEvents:
      return oldEvents();
    case Kind::kDefects:
      break;
  }
  return false;
}

// --- of nodes ---

bool World::killNode() {
  Machine* machine = someMachine();
  if (machine == nullptr) return false;
  const Duration down = random_.chance(400) ? random_.between(10ms, 1s) : someDuration();
  say(machine->index, "is killed, for {:.2f} s", std::chrono::duration<double>(down).count());
  kill(*machine);
  if (random_.chance(300)) machine->disk.reset();
  restart(*machine, down);
  return true;
}

bool World::terminateNode() {
  Machine* machine = someMachine();
  if (machine == nullptr) return false;
  say(machine->index, "is told to end");
  withTwin(*machine, [](Process& process, Machine&) { process.terminate(); });
  restart(*machine, random_.between(500ms, 20s));
  return true;
}

// By SIGSTOP, or with the whole machine, whose monotonic timers sleep with it.
bool World::standNode(bool suspend) {
  Machine* machine = someMachine();
  if (machine == nullptr) return false;
  const Duration duration = someDuration();
  say(machine->index, "{} for {:.2f} s", suspend ? "is suspended" : "is stopped",
      std::chrono::duration<double>(duration).count());
  machine->busy = true;
  const Time since = time_.now();
  withTwin(*machine, [](Process& process, Machine&) { process.scheduler().stand(); });
  endLater(duration, [this, machine, suspend, since] {
    machine->busy = false;
    say(machine->index, "goes on");
    const auto first = random_.chance(500) ? SimulatedScheduler::First::kTimers : SimulatedScheduler::First::kInbox;
    if (Process* process = processOf(*machine)) judge_->look(*process);
    withTwin(*machine, [&](Process& process, Machine&) {
      process.scheduler().go(first, suspend ? time_.now() - since : Duration(0));
    });
  });
  return true;
}

// By its hypervisor. What shows it is the wall clock, or the event of a new generation; or nothing, if it is short.
bool World::pauseMachine() {
  Machine* machine = someMachine();
  if (machine == nullptr) return false;
  const bool hidden = random_.chance(300);
  const Duration duration = hidden ? random_.between(1ms, Duration(lease_) / 20) : someDuration();
  // A wall clock that was set back a moment ago hides that it is set on.
  const bool by_wall = random_.chance(500) && time_.now() > machine->wall_set_at + lease_;
  say(machine->index, "its machine is paused for {:.3f} s{}", std::chrono::duration<double>(duration).count(),
      hidden    ? ", which nothing shows"
      : by_wall ? ", which the wall clock shows"
                : ", of which it is told");
  machine->busy = true;
  const Time since = time_.now();
  withTwin(*machine, [](Process& process, Machine& its) {
    process.scheduler().stand();
    its.clock->stop();
  });
  // Hidden pauses do not add up: the margin is for one of them in a lease.
  const Duration rest = hidden ? Duration(lease_) : Duration(0);
  endLater(duration, [this, machine, hidden, by_wall, since, rest] {
    say(machine->index, "its machine goes on");
    const auto first = random_.chance(500) ? SimulatedScheduler::First::kTimers : SimulatedScheduler::First::kInbox;
    withTwin(*machine, [&](Process& process, Machine& its) {
      its.clock->go();
      judge_->machineStoodStill(process, time_.now() - since);
      if (!hidden && by_wall) its.clock->setWall(time_.now() - since);
      if (!hidden && !by_wall) process.protocol().name().noteGeneration();
    });
    if (!hidden && by_wall) machine->shown_by_wall_at = time_.now();
    endLater(rest, [machine] { machine->busy = false; });
    withTwin(*machine, [&](Process& process, Machine&) {
      process.scheduler().go(first);
      if (!hidden && !by_wall) process.scheduler().deliver([&process] { process.protocol().name().suspect(); });
    });
  });
  return true;
}

bool World::setWall() {
  Machine* machine = someMachine();
  if (machine == nullptr || time_.now() < machine->shown_by_wall_at + lease_ / 4) return false;
  const Duration by = random_.between(-3600s, 3600s);
  say(machine->index, "its wall clock is set by {:.0f} s", std::chrono::duration<double>(by).count());
  machine->wall_set_at = time_.now();
  withTwin(*machine, [by](Process&, Machine& its) { its.clock->setWall(by); });
  if (Process* process = processOf(*machine)) judge_->look(*process);
  return true;
}

bool World::moveAddress() {
  Machine* machine = someMachine();
  if (machine == nullptr) return false;
  const auto third = static_cast<uint8_t>(machine->index / 250 + 100);
  machine->record.ipv4 = IpAddress::v4({10, 1, third, static_cast<uint8_t>(1 + random_.below(250))});
  say(machine->index, "has the address {}", machine->record.ipv4->toString());
  withTwin(*machine, [&](Process& process, Machine& its) {
    its.record = machine->record;
    process.scheduler().deliver([&process, ipv4 = its.record.ipv4] {
      process.protocol().name().setAddresses({{ipv4, std::nullopt}, {}});
    });
  });
  return true;
}

// The state directory of one machine, in the image of another. Not in a store that is set back: there a key of before
// one's own claim passes for a remnant, while a copy with the same UUID may have put it.
bool World::copyState() {
  if (!has_state_ || was_set_back_ || machines_.size() > nodes_ + 4) return false;
  const Machine& from = machines_[random_.below(machines_.size())];
  if (!from.disk) return false;
  const Disk disk = *from.disk;
  Machine& machine = addMachine();
  machine.disk = disk;
  was_copied_ = true;
  say(machine.index, "has a copy of node {}'s state", from.index);
  start(machine);
  return true;
}

bool World::join() {
  if (machines_.size() > nodes_ + 4) return false;
  start(addMachine());
  return true;
}

// A snapshot of the memory of the first machine is resumed on another one. The original goes on from the same snapshot,
// or as if nothing had been, or never. Only while it owns a name: of two copies that wait for one neither learns of the
// other before it has it.
bool World::cloneNode() {
  Machine& machine = machines_.front();
  const auto found = running_.find(machine.process);
  if (machine.busy || found == running_.end() || found->second.twin == 0 || !found->second.reported) return false;
  const Time since = time_.now();
  enum class Original { kAware, kUnaware, kGone };
  const auto original = static_cast<Original>(random_.below(3));
  const Duration pause = random_.between(1ms, 2s);
  const Duration later = original == Original::kGone ? random_.between(0s, 2 * lease_) : someDuration();
  const uint64_t id = machine.process;
  const uint64_t copy_id = found->second.twin;
  Running& copy = running_.at(copy_id);
  Machine& other = machines_[copy.process->machine()];
  say(machine.index, "a snapshot is taken of its memory; it {}, node {} goes on from it",
      original == Original::kAware     ? "goes on too, and is told"
      : original == Original::kUnaware ? "goes on unaware"
                                       : "ends",
      other.index);
  found->second.twin = 0;
  found->second.network->follow(nullptr);
  copy.network->beItself();
  copy.process->scheduler().stand();
  other.clock->stop();

  if (original == Original::kGone) {
    kill(machine);
    machine.busy = true;  // for good
  } else {
    machine.busy = true;
    machine.clock->stop();
    found->second.process->scheduler().stand();
    const bool aware = original == Original::kAware;
    endLater(aware ? pause : pause / 1000, [this, &machine, aware, since] {
      machine.busy = false;
      machine.clock->go();
      Process* process = processOf(machine);
      if (process == nullptr) return;
      judge_->machineStoodStill(*process, time_.now() - since);
      if (aware) process->protocol().name().noteGeneration();
      process->scheduler().go(SimulatedScheduler::First::kInbox);
      if (aware) process->scheduler().deliver([process] { process->protocol().name().suspect(); });
    });
  }
  endLater(pause + later, [this, id, copy_id, original, &other, since] {
    const auto resumed = running_.find(copy_id);
    if (resumed == running_.end()) return;
    Running& running = resumed->second;
    Process& process = *running.process;
    say(other.index, "goes on from the snapshot as process {}", copy_id);
    other.clock->go();
    // No two machines take exactly as long to wake up, and the incarnation of a copy is told by that.
    other.clock->setWall(random_.between(1ns, 1000ns));
    other.busy = other.links_busy = false;
    other.process = copy_id;
    running.dormant = false;
    process.protocol().name().noteGeneration();
    judge_->began(process, id);
    if (running.reported) judge_->reportedClaim(process, *running.reported);
    judge_->machineStoodStill(process, time_.now() - since);
    if (const auto first = running_.find(id); first != running_.end())
      judge_->copied(*first->second.process, process, original != Original::kUnaware);
    process.scheduler().go(SimulatedScheduler::First::kInbox);
    process.scheduler().deliver([&process] {
      process.store().breakConnections();
      process.protocol().name().suspect();
    });
  });
  return true;
}

// --- of the network ---

bool World::cutLinks() {
  Machine& machine = machines_[random_.below(machines_.size())];
  if (machine.links_busy) return false;
  const bool all = random_.chance(600);
  cut(machine, all, someDuration());
  return true;
}

void World::cut(Machine& machine, bool all, Duration duration) {
  machine.links_busy = true;
  const size_t only = random_.below(members_);
  const size_t direction = random_.below(4);
  say(machine.index, "is cut off from {}{} for {:.2f} s", all ? "all members" : fmt::format("member {}", only),
      direction == 0   ? ", requests only"
      : direction == 1 ? ", answers only"
                       : "",
      std::chrono::duration<double>(duration).count());
  for (size_t i = 0; i < members_; ++i) {
    if (!all && i != only) continue;
    machine.links[i].to_member.cut = direction != 1;
    machine.links[i].from_member.cut = direction != 0;
  }
  endLater(duration, [this, &machine] {
    say(machine.index, "is no longer cut off");
    machine.links_busy = false;
    for (Link& link : machine.links) {
      for (Path* path : {&link.to_member, &link.from_member}) {
        path->cut = false;
        for (auto& what : std::exchange(path->held, {})) what();
      }
    }
  });
}

// And now and then it is cut off after that: what was answered late is the last that it has heard.
bool World::slowLinks() {
  Machine& machine = machines_[random_.below(machines_.size())];
  if (machine.links_busy) return false;
  machine.links_busy = true;
  const Duration delay = random_.between(50ms, 4s);
  say(machine.index, "its messages take up to {:.2f} s", std::chrono::duration<double>(delay).count());
  std::vector<Duration> before;
  for (Link& link : machine.links) before.push_back(std::exchange(link.most_delay, delay));
  endLater(someDuration(), [this, &machine, before] {
    machine.links_busy = false;
    for (size_t i = 0; i < before.size(); ++i) machine.links[i].most_delay = before[i];
    if (!calm_ && random_.chance(300)) cut(machine, true, random_.between(lease_, 2 * lease_));
  });
  return true;
}

bool World::flakyLinks() {
  Machine& machine = machines_[random_.below(machines_.size())];
  if (machine.links_busy) return false;
  machine.links_busy = true;
  say(machine.index, "loses messages");
  for (Link& link : machine.links) {
    link.lost = 300;
    link.late = 100;
  }
  endLater(someDuration(), [this, &machine] {
    machine.links_busy = false;
    for (Link& link : machine.links) {
      link.lost = lost_;
      link.late = late_;
    }
  });
  return true;
}

bool World::breakConnections() {
  Machine* machine = someMachine();
  if (machine == nullptr) return false;
  say(machine->index, "its connections break");
  withTwin(*machine, [](Process& process, Machine&) {
    process.scheduler().deliver([&process] { process.store().breakConnections(); });
  });
  return true;
}

// --- of etcd ---

bool World::memberFault(SimulatedEtcd::Fault fault, const char* what) {
  const auto member = someMember();
  if (!member) return false;
  const Duration duration = someDuration();
  say(Timeline::kEverybody, "member {} {} for {:.2f} s", *member, what,
      std::chrono::duration<double>(duration).count());
  etcd_->begin(*member, fault);
  endLater(duration, [this, fault, index = *member] {
    // The nodes come to rest without it: who asks it has to notice, and to leave it.
    if (calm_ && fault == SimulatedEtcd::Fault::kFrozen && members_ > 1 && !std::exchange(one_stays_frozen_, true))
      return say(Timeline::kEverybody, "member {} stays so", index);
    say(Timeline::kEverybody, "member {} is well again", index);
    etcd_->end(index, fault);
  });
  return true;
}

bool World::lagMember() {
  const size_t member = random_.below(members_);
  const Duration lag = random_.between(20ms, Duration(lease_) / 2);
  say(Timeline::kEverybody, "member {} applies {:.2f} s later", member, std::chrono::duration<double>(lag).count());
  etcd_->setLag(member, lag);
  endLater(someDuration(), [this, member] { etcd_->setLag(member, Duration(0)); });
  return true;
}

// Not while there is no space, or nodes think so: then the answer to a progress request is all that a watch can show,
// and it lies.
bool World::deafen() {
  if (no_space_ || time_.now() < space_since_ + 2 * lease_) return false;
  const size_t member = random_.below(members_);
  say(Timeline::kEverybody, "member {} loses its watches and says nothing of it", member);
  etcd_->deafen(member);
  return true;
}

bool World::disorder() {
  const size_t member = random_.below(members_);
  say(Timeline::kEverybody, "the watches of member {} end", member);
  const bool disordered = random_.chance(300);
  etcd_->breakWatches(member, disordered ? store::StoreError{ErrorCode::kDisordered, "a change after a later one"}
                                         : store::StoreError{ErrorCode::kUnavailable, "the connection broke"});
  return true;
}

// https://github.com/etcd-io/etcd/issues/20418
bool World::staleReads() {
  const auto member = someMember();
  if (!member) return false;
  const Duration duration = someDuration();
  say(Timeline::kEverybody, "member {} answers reads with what was there before, for {:.2f} s", *member,
      std::chrono::duration<double>(duration).count());
  etcd_->begin(*member, SimulatedEtcd::Fault::kStale);
  judge_->readsAreStale(*member, true);
  endLater(duration, [this, index = *member] {
    say(Timeline::kEverybody, "member {} is well again", index);
    etcd_->end(index, SimulatedEtcd::Fault::kStale);
    judge_->readsAreStale(index, false);
  });
  return true;
}

// https://github.com/etcd-io/etcd/issues/20615
bool World::renewsEnded() {
  if (renews_ended_) return false;
  renews_ended_ = true;
  say(Timeline::kEverybody, "leases that have ended are confirmed when they are renewed");
  etcd_->setRenewsEnded([this](int64_t lease) { judge_->leaseIsLost(lease); });
  endLater(someDuration() + lease_, [this] {
    renews_ended_ = false;
    etcd_->setRenewsEnded({});
  });
  return true;
}

// https://github.com/etcd-io/etcd/issues/15247
bool World::oldLeader() {
  const auto member = etcd_->leader();
  if (!member || !etcd_->isHealthy(*member) || !etcd_->canSpare()) return false;
  const Duration duration = someDuration();
  say(Timeline::kEverybody, "member {}, which leads, is paused for {:.2f} s, and will lead on", *member,
      std::chrono::duration<double>(duration).count());
  etcd_->begin(*member, SimulatedEtcd::Fault::kPaused);
  endLater(duration, [this, index = *member, known = etcd_->model().leaseEnds()] {
    etcd_->end(index, SimulatedEtcd::Fault::kPaused);
    if (!etcd_->isUp()) return;
    for (const auto& [lease, end] : known) {
      if (end > time_.now() || !etcd_->model().hasLease(lease)) continue;
      say(Timeline::kEverybody, "member {} revokes lease {:x}", index, lease);
      judge_->leaseIsLost(lease);
      etcd_->revoke(lease);
    }
  });
  return true;
}

// https://github.com/etcd-io/etcd/issues/20221
bool World::oldEvents() {
  say(Timeline::kEverybody, "watches from a future revision begin with older events");
  etcd_->setOldEvents(true);
  endLater(someDuration() + lease_, [this] { etcd_->setOldEvents(false); });
  return true;
}

bool World::compact() {
  const int64_t revision = std::max<int64_t>(1, etcd_->model().revision() - random_.between(0, 20));
  say(Timeline::kEverybody, "compacts up to {}", revision);
  etcd_->compact(revision);
  return true;
}

bool World::noSpace() {
  if (no_space_ || etcd_->hasDeafWatches()) return false;
  no_space_ = true;
  say(Timeline::kEverybody, "etcd has no space");
  etcd_->setNoSpace(true, random_.below(4));
  endLater(someDuration(), [this] {
    no_space_ = false;
    space_since_ = time_.now();
    etcd_->setNoSpace(false);
  });
  return true;
}

bool World::restore() {
  if (!backup_ || random_.chance(600)) {
    say(Timeline::kEverybody, "a backup is taken at revision {}", etcd_->model().revision());
    backup_ = etcd_->model();
    return true;
  }
  if (was_copied_) return false;
  was_set_back_ = true;
  const bool same_id = random_.chance(500);
  const Duration outage = random_.between(1s, 15s);
  say(Timeline::kEverybody, "etcd ends; in {:.2f} s it is set back from revision {} to {}, as {} cluster",
      std::chrono::duration<double>(outage).count(), etcd_->model().revision(), backup_->revision(),
      same_id ? "the same" : "another");
  etcd_->stop();
  const uint64_t id = same_id ? etcd_->model().clusterId() : ++clusters_;
  endLater(outage, [this, id, backup = std::exchange(backup_, {})] {
    say(Timeline::kEverybody, "etcd is back");
    etcd_->startFrom(*backup, id);
    judge_->storeWasSetBack();
    judge_->storeChanged();
  });
  return true;
}

// --- of operators ---

void World::operate(store::Op op) {
  store::TxnRequest request;
  request.success.push_back(std::move(op));
  (void)etcd_->operate(request);
}

std::string World::someSlot() { return pattern_->render(random_.between(1, limit_)); }

bool World::deleteSlot() {
  const std::string key = someSlot();
  say(Timeline::kEverybody, "an operator deletes {}", key);
  judge_->operatorTouches(key);
  operate(DeleteOp{KeyRange::single(key)});
  return true;
}

bool World::overwriteSlot() {
  const std::string key = someSlot();
  const auto found = etcd_->model().range(KeyRange::single(key), {});
  std::string value;
  int64_t lease = 0;
  switch (random_.below(6)) {
    case 0:  // over what is there, under its lease: etcdctl put --ignore-lease
      if (!found || found->kvs.empty()) return false;
      value = R"({"ipv4":"192.0.2.97","id":"by-hand"})";
      lease = found->kvs.front().lease;
      break;
    case 1:
      value = "garbage";
      break;
    case 2:
      value = R"({"ipv4":"192.0.2.99"})";
      break;
    case 3:  // what is there, without its lease
      if (!found || found->kvs.empty()) return false;
      value = found->kvs.front().value;
      break;
    case 4:  // so that its node gives it up: idetcd release
      if (!found || found->kvs.empty()) return false;
      value = fmt::format(R"({{"id":"{}"}})", naming::kReleased);
      lease = found->kvs.front().lease;
      break;
    default:  // as the Go plugin does, which keeps its lease for a while
      value = R"({"ipv4":"192.0.2.98","port":"53"})";
      lease = etcd_->operatorLease(std::chrono::duration_cast<std::chrono::seconds>(someDuration() + 2s));
      break;
  }
  say(Timeline::kEverybody, "an operator puts {} = {} under lease {:x}", key, value, lease);
  judge_->operatorTouches(key);
  operate(PutOp{key, value, lease});
  if (value.find(naming::kReleased) == std::string::npos) return true;
  if (hold_ > 0s) operate(DeleteOp{KeyRange::single(naming::reservationKey(key))});
  // Then it deletes what is still there; an older one does so at once.
  const auto is_still_there = [this, key, created = found->kvs.front().create_revision] {
    const auto now = etcd_->model().range(KeyRange::single(key), {});
    return now && !now->kvs.empty() && now->kvs.front().create_revision == created;
  };
  time_.after(random_.chance(500) ? 0ms : 1500ms, [this, key, is_still_there] {
    if (!is_still_there()) return;
    say(Timeline::kEverybody, "an operator deletes {}, which is released", key);
    judge_->operatorTouches(key);
    operate(DeleteOp{KeyRange::single(key)});
  });
  return true;
}

// Keys that are the protocol's own business.
bool World::deleteInternal() {
  std::vector<std::string> prefixes{naming::queuePrefix(pattern_->text()), naming::incarnationKey("")};
  if (hold_ > 0s) prefixes.emplace_back(naming::kReservationPrefix);
  const std::string prefix = random_.oneOf(prefixes);
  const auto found = etcd_->model().range(KeyRange::prefix(prefix), {.keys_only = true});
  if (!found || found->kvs.empty()) return false;
  const std::string key = found->kvs[random_.below(found->kvs.size())].key;
  say(Timeline::kEverybody, "an operator deletes {}", key);
  judge_->operatorDeletesInternal(key);
  operate(DeleteOp{KeyRange::single(key)});
  return true;
}

bool World::wipe() {
  say(Timeline::kEverybody, "an operator deletes all names");
  for (int64_t slot = 1; slot <= limit_; ++slot) judge_->operatorTouches(pattern_->render(slot));
  operate(DeleteOp{KeyRange{"0", std::string(1, '\0')}});
  return true;
}

bool World::foreign() {
  const std::string key = random_.chance(500) ? fmt::format("db{}.tf.internal.", random_.below(5))
                                              : fmt::format("/other/{}", random_.below(5));
  if (random_.chance(200)) {
    operate(DeleteOp{KeyRange::single(key)});
  } else {
    operate(PutOp{key, fmt::format(R"({{"ipv4":"192.0.2.{}"}})", random_.below(200) + 1), 0});
  }
  return true;
}

// --- a run ---

void World::look() {
  judge_->lookAtAll();
  time_.after(kLook, [this] { look(); });
}

void World::startAll() {
  const bool clonable = std::find(kinds_.begin(), kinds_.end(), Kind::kClone) != kinds_.end();
  for (size_t i = 0; i < nodes_; ++i) addMachine();
  for (size_t i = 0; i < nodes_; ++i) {
    Machine& machine = machines_[i];
    if (i == 0 && clonable) {
      startClonable(machine);
    } else if (start_spread_ == Duration(0)) {
      start(machine);
    } else {
      restart(machine, random_.between(0s, start_spread_));
    }
  }
}

void World::judgeRun() {
  planFault();
  time_.after(kLook, [this] { look(); });
  const Time storm_end = time_.now() + storm_;
  while (!judge_->violation() && time_.step(storm_end)) {
    if (time_.steps() > kMostEvents) throw std::runtime_error("the storm has no end");
  }
  if (!judge_->violation()) heal();
  const Time bound = time_.now() + restBound(lease_) + Duration(hold_) * 3 / 2 + 4 * Duration(lease_);
  std::optional<Violation> unrest;
  while (!judge_->violation() && time_.now() < bound) {
    unrest = judge_->atRest();
    if (!unrest) break;
    const Time next = std::min(bound, time_.now() + 1s);
    while (!judge_->violation() && time_.step(next)) {
      if (time_.steps() > kMostEvents) throw std::runtime_error("the world has no rest");
    }
  }
  if (unrest) judge_->violated(unrest->property, unrest->text, unrest->machines);
}

bool World::allKnowAll() const {
  return std::all_of(running_.begin(), running_.end(),
                     [this](const auto& running) { return running.second.process->records().size() == nodes_; });
}

void World::pass(Duration duration, const std::function<bool()>& until) {
  const Time end = time_.now() + duration;
  while (!until() && time_.step(end)) {
  }
}

// Until all nodes are named, and have all names; the end of what that leaves to do; rest; and a member ends.
void World::measure() {
  constexpr Duration kMostStart = 600s;
  pass(kMostStart, [this] { return named_ == nodes_; });
  const Duration named = time_.now().time_since_epoch();
  if (named_ < nodes_) judge_->violated("named", fmt::format("{} of {} nodes have names", named_, nodes_), {});
  for (const Time end = time_.now() + kMostStart; !allKnowAll() && time_.now() < end;) pass(100ms);
  const Traffic start = etcd_->traffic();
  const Duration known = time_.now().time_since_epoch();
  if (!allKnowAll()) judge_->violated("mirror", "not all nodes have all names", {});
  pass(3 * lease_);
  const Traffic before = etcd_->traffic();
  pass(kRest);
  const std::string table = costTable(start, before, kRest);
  const std::string dead = measureDeadMember();
  cost_ =
      fmt::format("all named after {:.2f} s, all names known to all after {:.1f} s; {} losses\n",
                  std::chrono::duration<double>(named).count(), std::chrono::duration<double>(known).count(), losses_) +
      table + dead;
}

// One that a third of the nodes are connected to; not the leader.
std::string World::measureDeadMember() {
  const auto requests = [this] {
    return std::accumulate(etcd_->traffic().requests.begin(), etcd_->traffic().requests.end(), uint64_t{0});
  };
  const uint64_t requests_before = requests();
  const uint64_t writes_before = etcd_->traffic().writes;
  etcd_->begin((etcd_->leader().value_or(0) + 1) % members_, SimulatedEtcd::Fault::kKilled);
  uint64_t most_requests = 0;
  uint64_t most_writes = 0;
  for (const Time end = time_.now() + lease_; time_.now() < end;) {
    const uint64_t requests_then = requests();
    const uint64_t writes_then = etcd_->traffic().writes;
    pass(1s);
    most_requests = std::max(most_requests, requests() - requests_then);
    most_writes = std::max(most_writes, etcd_->traffic().writes - writes_then);
  }
  return fmt::format(
      "in a lease from the end of one member: {} requests, {} at most in a second; {} writes, {} at most\n",
      requests() - requests_before, most_requests, etcd_->traffic().writes - writes_before, most_writes);
}

std::string World::costTable(const Traffic& start, const Traffic& before, Duration rest) const {
  constexpr std::array kNames{"ranges",        "txns",        "grants",  "keepalives",
                              "times to live", "revocations", "watches", "progress requests"};
  static_assert(kNames.size() == std::tuple_size_v<decltype(Traffic::requests)>);
  const Traffic& after = etcd_->traffic();
  const auto nodes = static_cast<double>(nodes_);
  const double node_seconds = nodes * std::chrono::duration<double>(rest).count();
  std::string text = fmt::format("{:<20}{:>14}{:>14}{:>26}\n", "", "start", "a node", "at rest, a node a second");
  const auto line = [&](const char* name, uint64_t at_start, uint64_t at_rest) {
    text += fmt::format("{:<20}{:>14}{:>14.1f}{:>26.3f}\n", name, at_start, static_cast<double>(at_start) / nodes,
                        static_cast<double>(at_rest) / node_seconds);
  };
  uint64_t at_start = 0;
  uint64_t at_rest = 0;
  for (size_t i = 0; i < kNames.size(); ++i) {
    const uint64_t during_rest = after.requests[i] - before.requests[i];
    line(kNames[i], start.requests[i], during_rest);
    at_start += start.requests[i];
    at_rest += during_rest;
  }
  line("requests", at_start, at_rest);
  line("of these, writes", start.writes, after.writes - before.writes);
  line("events", start.events, after.events - before.events);
  line("bytes sent", start.bytes, after.bytes - before.bytes);
  return text;
}

RunResult World::run() {
  startAll();
  try {
    options_.cost ? measure() : judgeRun();
  } catch (const std::runtime_error& error) {
    judge_->violated("end", error.what(), {});
  }
  return result();
}

RunResult World::result() const {
  RunResult made;
  made.violation = judge_->violation();
  constexpr size_t kLines = 200;
  if (timeline_.enabled())
    made.timeline = timeline_.render(made.violation ? made.violation->machines : std::vector<size_t>(), kLines);
  made.cost = cost_;
  made.scenario = fmt::format("{} nodes, limit {}{}, lease {} s{}, {} members of etcd", nodes_, limit_,
                              limits_differ_ ? " or less" : "", lease_.count(),
                              hold_ > 0s ? fmt::format(", hold {} s", hold_.count()) : "", members_);
  made.events = time_.steps();
  made.states = states_;
  made.faults = faults_;
  made.nodes = nodes_;
  made.time = time_.now().time_since_epoch();
  return made;
}

}  // namespace

RunResult simulate(const RunOptions& options) {
  World world(options);
  return world.run();
}

}  // namespace idetcd::simulation
