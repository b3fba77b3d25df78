#include "peers/voting.h"

#include <filesystem>
#include <unistd.h>

#include "base/file.h"
#include "etcd/cluster.h"
#include "net/local_addresses.h"
#include "peers/certificates.h"
#include "peers/etcd_child.h"
#include "peers/etcd_version.h"
#include "runtime/scheduler.h"

namespace idetcd::peers {
namespace {

using namespace std::chrono_literals;
using etcd::ClusterMember;
using etcd::MemberStatus;
using runtime::Task;
using std::chrono::nanoseconds;
using store::StoreResult;

constexpr std::string_view kPrefix = "/idetcd/peers/";
constexpr std::string_view kFoundingData = "founding";
constexpr std::chrono::seconds kTick{1};
constexpr std::chrono::seconds kReachPatience{5};
constexpr std::chrono::seconds kAnswersLately{3};
constexpr std::chrono::seconds kAskPatience{2};
// With etcd's orderly end: it waits up to 7 s for its clients' streams where there is no TLS.
constexpr std::chrono::seconds kOrderlyEnd{10};
// With an etcd that stands still, at the end.
constexpr std::chrono::milliseconds kHandOverPatience{500};
constexpr std::chrono::milliseconds kKeyPatience{300};
constexpr std::chrono::seconds kWatchPatience{10};  // a voter that stands still hides a change for so long
constexpr uint64_t kMaxLag = 5000;                  // entries of the log: such a voter has nearly caught up
constexpr uintmax_t kMaxLogBytes = 4 << 20;

SocketAddress shifted(SocketAddress address, int ports) {
  address.port = static_cast<uint16_t>(address.port + ports);
  return address;
}

std::string url(const SocketAddress& address, bool tls) { return (tls ? "https://" : "http://") + address.toString(); }
std::string peerUrl(const SocketAddress& peers_address, bool tls) { return url(shifted(peers_address, 2), tls); }

// Of a member's URL: the peers port of its machine.
std::optional<SocketAddress> machineAddressOf(const ClusterMember& member) {
  if (member.peer_urls.empty()) return std::nullopt;
  std::string_view text = member.peer_urls[0];
  text.remove_prefix(std::min(text.size(), text.find("://") + 3));
  const auto address = SocketAddress::parse(text);
  if (!address) return std::nullopt;
  return shifted(*address, -2);
}

std::string hex(uint64_t id) { return fmt::format("{:x}", id); }

// Before something that has failed is tried again: as long as it took, so that many that wait for a busy etcd do not keep
// it busy.
nanoseconds pauseAfter(nanoseconds taken, nanoseconds least) { return std::clamp(taken, least, nanoseconds(3s)); }

}  // namespace

bool isProgram(const std::string& program) {
  if (program.find('/') != std::string::npos) return access(program.c_str(), X_OK) == 0;
  const char* const variable = std::getenv("PATH");
  std::string_view rest = variable == nullptr ? "/usr/bin:/bin" : variable;
  while (true) {
    const std::string_view directory = rest.substr(0, rest.find(':'));
    if (access(fmt::format("{}/{}", directory, program).c_str(), X_OK) == 0) return true;
    if (directory.size() == rest.size()) return false;
    rest.remove_prefix(directory.size() + 1);
  }
}

namespace {

struct Counters : metrics::Group {
  using Group::Group;

  metrics::Gauge voters{*this, "idetcd_peers_voters", "Machines that run etcd, as published in it."};
  metrics::Gauge leads{*this, "idetcd_peers_leads", "Whether the etcd of this machine leads: 1 or 0."};
  metrics::Counter changes{*this, "idetcd_peers_changes_total",
                           "Members of etcd that this machine has added, promoted or removed."};
  metrics::Counter etcd_starts{*this, "idetcd_peers_etcd_starts_total", "Starts of etcd by this machine."};
};

struct VersionMetric : metrics::Group {
  using Group::Group;

  metrics::Gauge version{*this, "idetcd_peers_etcd_version", "The version of etcd that this machine runs: 1."};
};

}  // namespace

std::string clientEndpoint(const SocketAddress& peers_address, bool tls) { return url(shifted(peers_address, 1), tls); }

struct Voting::Impl : std::enable_shared_from_this<Voting::Impl> {
  using Self = std::shared_ptr<Impl>;

  Impl(etcd::CompletionThread& completion_thread, Options voting_options, const Logger& logger)
      : thread(completion_thread),
        options(std::move(voting_options)),
        log(logger),
        store(thread, clientOptions({}), Logger()),
        own(thread, clientOptions({}), Logger()),
        wake(thread),
        machine_changed(thread),
        ended(thread) {}

  bool tls() const { return options.secret.has_value(); }
  std::string path(std::string_view name) const { return fmt::format("{}/{}", options.directory, name); }
  // Of this cluster alone.
  std::string marker() const { return fmt::format("{}/{}/started", options.directory, options.cluster.cluster); }
  std::string dataDirectory() const { return fmt::format("{}/{}/etcd", options.directory, options.cluster.cluster); }
  std::string removedDirectory() const { return dataDirectory() + ".removed"; }
  std::string endpointOf(const SocketAddress& address) const { return clientEndpoint(address, tls()); }
  etcd::Client::Options clientOptions(std::vector<std::string> endpoints) const {
    etcd::Client::Options made;
    made.endpoints = std::move(endpoints);
    if (tls()) made.tls = tlsFilesIn(path("tls"));
    made.call_timeout = 2s;
    made.spread = true;
    made.self_founded = true;
    made.executor = options.executor;
    return made;
  }
  bool isFounder() const {
    return std::ranges::find(options.cluster.voters, options.uuid, &founding::Voter::uuid) !=
           options.cluster.voters.end();
  }
  const Voter* me() const {
    const auto found = std::ranges::find(published.voters, options.uuid, &Voter::uuid);
    return found == published.voters.end() ? nullptr : &*found;
  }
  Machine machine() const {
    return {.uuid = options.uuid,
            .address = options.address,
            .start = options.start,
            .durable = options.durable,
            .stands_by = stands_by};
  }
  Role role() const {
    if (!child) return Role::kStandsBy;
    if (!own_status) return Role::kStarts;
    return own_status->is_learner ? Role::kLearns : Role::kVotes;
  }

  // --- all machines ---
  static Task<void> run(Self self);
  static Task<void> end(Self self);
  static Task<void> follow(Self self);
  static Task<void> publishMachine(Self self);
  Task<bool> block(std::function<void()> work);
  Task<std::optional<Result<void>>> blockFor(std::function<Result<void>()> work);
  Result<void> certify();
  void announce(std::vector<founding::Voter> voters);
  void readVotersKey(const std::vector<store::KeyValue>& kvs);
  void reached(bool yes);
  void reportVoters() {
    if (reach != Reach::kUnknown && !stopping && options.on_voters) options.on_voters(serving);
  }
  void complain(std::string what);

  // --- the child ---
  Task<void> tick();
  bool isNoMember() const;
  Task<void> leaveIfRemoved();
  void updateStandsBy();
  enum class Start { kNone, kFound, kRestart, kJoin };
  Start chooseStart(bool is_no_member) const;
  Task<void> startIfWanted(bool is_no_member);
  Task<bool> readOwnStatus();
  Task<void> maintainFiles();
  Task<void> leadOrStandBack();
  bool leads() const { return own_status && own_status->leader == own_status->id; }
  Task<void> startChild(std::string name, std::string initial_cluster, std::string state,
                        std::vector<std::string> first_only = {});
  Task<void> lookForProgram();
  Task<void> startFounding();
  std::string foundingCluster() const;
  Task<void> awaitFirst();
  Task<void> join(uint64_t member);
  Task<bool> isRemoved();
  Task<void> leave();
  Task<void> endChild(std::chrono::milliseconds patience = {});
  std::string noRecovery() const;
  Task<void> recoverNow();
  Task<bool> restartAlone();
  Task<bool> writesAlone(BootClock::time_point deadline, uint64_t most_starts);
  static Task<void> tryToWrite(Self self, std::shared_ptr<runtime::Event> done);
  Task<void> moveAddress(Voter voter);
  void seeVersion(const std::string& version);
  std::vector<std::string> commandFor(const std::string& name, const std::string& initial_cluster,
                                      const std::string& state) const;

  // --- the leader ---
  struct Answer {
    MemberStatus status;
    BootClock::time_point at;
  };
  struct Awaited {
    explicit Awaited(runtime::Scheduler& scheduler) : all(scheduler) {}
    void done() {
      if (--left == 0) all.set();
    }
    size_t left = 0;
    runtime::Event all;
  };
  std::shared_ptr<etcd::Client> clientOf(const SocketAddress& address);
  static Task<void> ask(Self self, Voter voter, std::shared_ptr<Awaited> awaited);
  Task<void> askAll(std::vector<Voter> voters, std::function<bool(uint64_t)> is_awaited,
                    nanoseconds patience = kAskPatience);
  Voter voterOf(const ClusterMember& member, const std::vector<Machine>& machines) const;
  Task<void> lead();
  Task<bool> readMembers(View& view);
  bool answersLately(uint64_t id, BootClock::time_point time) const;
  void judgeAnswers(View& view, BootClock::time_point begun);
  void forgetGone(const View& view);
  void noteDurations(View& view);
  Task<std::optional<View>> readView();
  Task<std::set<SocketAddress>> goneOf(const View& view);
  Task<bool> carryOut(Step step);
  Task<bool> publish(Published value);
  Task<void> keepSpace();
  Task<StoreResult<void>> makeSpace();
  static Task<void> handOver(Self self, std::shared_ptr<Awaited> awaited);
  static Task<void> takeBackKey(Self self, std::shared_ptr<Awaited> awaited);
  static Task<void> readMachines(Self self, std::shared_ptr<std::vector<Machine>> machines,
                                 std::shared_ptr<Awaited> awaited);
  static Task<void> inspect(Self self, nanoseconds patience, std::shared_ptr<std::promise<Status>> promise);

  etcd::CompletionThread& thread;
  const Options options;
  Logger log;
  etcd::Client store;
  const etcd::Cluster cluster{store};
  etcd::Client own;  // of the child alone
  const etcd::Cluster own_cluster{own};
  runtime::Event wake;
  runtime::Event machine_changed;
  runtime::Event ended;  // its etcd, after stop()
  Counters counters{options.metrics};

  bool stopping = false;
  std::promise<void> stopped;
  const std::shared_future<void> is_stopped = stopped.get_future().share();
  std::optional<std::promise<Result<void>>> recovery;
  std::string problem;

  std::vector<IpAddress> certified;  // see certify()

  bool is_published = false;  // the voters key has been read
  Published published;
  int64_t published_revision = 0;  // 0: any is taken
  std::optional<BootClock::time_point> away_since;
  enum class Reach { kUnknown, kReached, kAway } reach = Reach::kUnknown;  // of the voters, as said
  std::vector<founding::Voter> serving;
  bool publishes = false;  // itself: since they were reached first
  bool stands_by = false;
  int64_t machine_lease = 0;

  bool has_program = false;
  bool started = false;             // see the header
  std::optional<std::string> data;  // its name, if there is some
  std::unique_ptr<EtcdChild> child;
  std::shared_ptr<EtcdChild> ending;  // the last one that was ended
  bool in_memory_said = false;
  uint64_t child_starts = 0;
  std::optional<MemberStatus> own_status;
  std::string version;
  std::optional<VersionMetric> version_metric;

  // While this machine leads.
  std::map<std::string, std::shared_ptr<etcd::Client>> clients;  // by endpoint
  int64_t key_revision = 0;                                      // of the voters key
  std::map<uint64_t, Answer> answers;
  std::set<uint64_t> being_asked;
  std::map<uint64_t, BootClock::time_point> answered;  // when this leader last counted it in
  std::optional<std::pair<Change, BootClock::time_point>> change_seen;
  std::optional<BootClock::time_point> too_many_since;
  std::map<std::string, BootClock::time_point> avoided;
  std::vector<View::Member> last_members;
  std::string going_on;
  BootClock::time_point next_look_at_files;
  std::optional<std::string> full;  // etcd is; why it stays so
};

// --- all machines ---

Task<bool> Voting::Impl::block(std::function<void()> work) {
  const auto done = std::make_shared<runtime::Event>(thread);
  const bool submitted = options.executor->submit([work = std::move(work), done, &scheduler = thread] {
    work();
    scheduler.post([done] { done->set(); });
  });
  if (!submitted) co_return false;
  const bool is_done = co_await done->wait(nanoseconds::max());
  co_return is_done;
}

// None: the process ends.
Task<std::optional<Result<void>>> Voting::Impl::blockFor(std::function<Result<void>()> work) {
  const auto result = std::make_shared<Result<void>>();
  auto blocked = block([work = std::move(work), result] { *result = work(); });
  if (!co_await blocked) co_return std::nullopt;
  co_return *result;
}

void Voting::Impl::complain(std::string what) {
  if (what == problem) return;
  problem = std::move(what);
  if (!problem.empty()) log.error("peers: {}", problem);
}

Task<void> Voting::Impl::run(Self self) {
  Impl& impl = *self;
  while (!impl.stopping) {
    auto preparing = impl.blockFor([self] {
      auto made = makeDirectory(self->dataDirectory(), 0700);
      if (made) made = self->certify();
      self->has_program = isProgram(self->options.program);
      std::error_code ignored;
      std::filesystem::remove_all(self->removedDirectory(), ignored);
      self->started = !self->options.promised || std::filesystem::exists(self->marker(), ignored);
      for (const auto& entry : std::filesystem::directory_iterator(self->dataDirectory(), ignored))
        self->data = entry.path().filename();
      return made;
    });
    const std::optional<Result<void>> prepared = co_await preparing;
    if (!prepared) break;
    impl.complain(!*prepared          ? "this machine cannot take part: " + prepared->error().message
                  : !impl.has_program ? fmt::format("there is no program '{}', so this machine cannot vote: install "
                                                    "etcd-server",
                                                    impl.options.program)
                                      : "");
    if (*prepared) break;
    co_await impl.thread.sleepFor(5s);
  }
  if (!impl.stopping && !impl.thread.stopping()) {
    impl.announce(impl.options.voters.empty() ? impl.options.cluster.voters : impl.options.voters);
    impl.thread.spawn(follow(self));
  }
  while (!impl.stopping && !impl.thread.stopping()) {
    impl.wake.reset();
    co_await impl.tick();
    const bool is_starting = impl.child && !impl.own_status;
    auto pause = impl.wake.wait(is_starting               ? nanoseconds(50ms)
                                : impl.child || impl.data ? nanoseconds(kTick)
                                                          : nanoseconds(5s));
    co_await pause;
  }
  const bool has_ended = co_await impl.ended.wait(nanoseconds::max());
  if (!has_ended) co_await impl.endChild();  // the thread stops
  if (impl.recovery) std::exchange(impl.recovery, std::nullopt)->set_value(fail("the server ends"));
  impl.stopped.set_value();
}

// As soon as that is wanted, beside a tick that may wait for an etcd that stands still.
Task<void> Voting::Impl::end(Self self) {
  Impl& impl = *self;
  const auto handed_over = std::make_shared<Awaited>(impl.thread);
  handed_over->left = 1;
  impl.thread.spawn(handOver(self, handed_over));
  co_await handed_over->all.wait(kHandOverPatience);
  // After that: a leader that hands over drops what it is asked to write.
  const auto taken_back = std::make_shared<Awaited>(impl.thread);
  taken_back->left = 1;
  impl.thread.spawn(takeBackKey(self, taken_back));
  co_await taken_back->all.wait(kKeyPatience);
  co_await impl.endChild();
  impl.ended.set();
}

Task<void> Voting::Impl::takeBackKey(Self self, std::shared_ptr<Awaited> awaited) {
  if (self->machine_lease != 0) {
    co_await self->store.leaseRevoke(self->machine_lease);
  }
  awaited->done();
}

// Its certificate names all addresses of this machine: a member of etcd compares the one that a connection comes from, which
// the route to that member decides. Issued anew when they are others. On the executor, while a Task waits.
Result<void> Voting::Impl::certify() {
  if (!tls()) return {};
  std::vector<IpAddress> addresses{options.address.ip};
  for (const SocketAddress& local : net::localAddresses()) {
    if (std::ranges::find(addresses, local.ip) == addresses.end()) addresses.push_back(local.ip);
  }
  if (addresses == certified) return {};
  if (auto files = issue(*options.secret, addresses, path("tls")); !files) return tl::unexpected(files.error());
  certified = std::move(addresses);
  return {};
}

void Voting::Impl::announce(std::vector<founding::Voter> voters) {
  if (stopping) return;
  std::vector<std::string> endpoints;
  for (founding::Voter& voter : voters) {
    if (voter.uuid == options.uuid) voter.address = options.address;  // whatever others know of it
    endpoints.push_back(endpointOf(voter.address));
  }
  store.setEndpoints(std::move(endpoints));
  serving = std::move(voters);
  reportVoters();
}

void Voting::Impl::readVotersKey(const std::vector<store::KeyValue>& kvs) {
  for (const store::KeyValue& kv : kvs) {
    if (kv.key != kVotersKey) continue;
    auto value = decodePublished(kv.value);
    if (!value || value->cluster != options.cluster.cluster)
      return complain(fmt::format("the key {} {}", kVotersKey, value ? "is another cluster's" : "cannot be read"));
    if (kv.mod_revision < published_revision) return;  // a read that goes back (etcd 20418)
    published_revision = kv.mod_revision;
    if (is_published && *value == published) return;
    const bool same_voters = is_published && value->voters == published.voters;
    is_published = true;
    published = std::move(*value);
    counters.voters.set(static_cast<double>(published.voters.size()));
    wake.set();
    if (same_voters) return;
    std::vector<founding::Voter> voters;
    for (const Voter& voter : published.voters) {
      if (!voter.learner) voters.push_back({voter.uuid, voter.address});
    }
    announce(std::move(voters));
  }
}

void Voting::Impl::reached(bool yes) {
  if (stopping) return;
  if (yes) {
    away_since.reset();
  } else if (!away_since) {
    away_since = thread.now();
  }
  const bool away = !yes && (reach == Reach::kAway || thread.now() - *away_since >= kReachPatience);
  if (away) published_revision = 0;  // one that goes on alone may have lower ones
  if (yes && !std::exchange(publishes, true)) thread.spawn(publishMachine(shared_from_this()));
  if (!yes && !away) return;
  const Reach before = std::exchange(reach, away ? Reach::kAway : Reach::kReached);
  if (before != reach && options.on_reach) options.on_reach(!away);
  if (before == Reach::kUnknown) reportVoters();
}

Task<void> Voting::Impl::follow(Self self) {
  Impl& impl = *self;
  while (!impl.stopping && !impl.thread.stopping()) {
    const BootClock::time_point begun = impl.thread.now();
    auto reading = impl.store.range(store::KeyRange::single(std::string(kVotersKey)), {});
    const StoreResult<store::RangeResult> now = co_await reading;
    impl.reached(now.has_value());
    if (now) {
      impl.readVotersKey(now->kvs);
      std::vector<store::WatchRange> ranges{{store::KeyRange::single(std::string(kVotersKey)), now->revision + 1}};
      StoreResult<std::unique_ptr<store::WatchStream>> stream = co_await impl.store.watch(std::move(ranges));
      while (stream && !impl.stopping) {
        const StoreResult<store::WatchBatch> batch = co_await (*stream)->next(kWatchPatience);
        if (!batch || !(*stream)->isAtCurrentEndpoint()) break;
        for (const store::WatchEvent& event : batch->events) {
          if (event.type == store::WatchEvent::Type::kPut) impl.readVotersKey({event.kv});
        }
      }
    }
    const nanoseconds pause = now ? 200ms : std::min<nanoseconds>(pauseAfter(impl.thread.now() - begun, 200ms), 1s);
    co_await impl.thread.sleepFor(pause);
  }
}

Task<void> Voting::Impl::publishMachine(Self self) {
  Impl& impl = *self;
  std::string written;
  while (!impl.stopping && !impl.thread.stopping()) {
    const BootClock::time_point begun = impl.thread.now();
    impl.machine_changed.reset();
    if (impl.machine_lease == 0) {
      written.clear();
      const StoreResult<store::Lease> lease = co_await impl.store.leaseGrant(kMachineLease);
      if (lease) impl.machine_lease = lease->id;
    }
    if (const std::string value = encode(impl.machine());
        impl.machine_lease != 0 && value != written && !impl.stopping) {
      store::TxnRequest request;
      request.success.emplace_back(
          store::PutOp{std::string(kMachinesPrefix) + impl.options.uuid, value, impl.machine_lease});
      request.repeatable = true;
      const StoreResult<store::TxnResult> put = co_await impl.store.txn(std::move(request));
      if (put) written = value;
      if (!put && put.error().code == ErrorCode::kLeaseNotFound) impl.machine_lease = 0;
    }
    const bool all_said = impl.machine_lease != 0 && !written.empty();
    auto wait = impl.machine_changed.wait(all_said ? nanoseconds(kMachineLease / 3)
                                                   : pauseAfter(impl.thread.now() - begun, 1s));
    if (co_await wait || impl.stopping || impl.machine_lease == 0) continue;
    const StoreResult<store::Lease> renewed = co_await impl.store.leaseKeepAlive(impl.machine_lease, 5s);
    if (!renewed && renewed.error().code == ErrorCode::kLeaseNotFound) impl.machine_lease = 0;
  }
}

// --- the child ---

std::vector<std::string> Voting::Impl::commandFor(const std::string& name, const std::string& initial_cluster,
                                                  const std::string& state) const {
  const std::string client_url = endpointOf(options.address);
  const std::string peer_url = peerUrl(options.address, tls());
  // Flags that 3.4, 3.5 and 3.6 share. Strict checks would refuse to add a member while another one is dead.
  // What the libraries of etcd write goes where etcd's own log goes, not into that of this server. ETCD_* of the server's
  // environment would set what no flag sets, or end etcd, and a proxy is not for members.
  constexpr const char* kScript =
      R"(exec env -i PATH="$PATH" GOMAXPROCS=2 GOMEMLIMIT=256MiB )"
      R"(${ETCD_UNSUPPORTED_ARCH:+"ETCD_UNSUPPORTED_ARCH=$ETCD_UNSUPPORTED_ARCH"} )"
      R"("$@" >>"$0" 2>&1)";
  std::vector<std::string> command{"/bin/sh",
                                   "-c",
                                   kScript,
                                   path("etcd.log"),
                                   options.program,
                                   "--name=" + options.uuid,
                                   "--data-dir=" + dataDirectory() + "/" + name,
                                   "--listen-client-urls=" + client_url,
                                   "--advertise-client-urls=" + client_url,
                                   "--listen-peer-urls=" + peer_url,
                                   "--initial-advertise-peer-urls=" + peer_url,
                                   "--initial-cluster=" + initial_cluster,
                                   "--initial-cluster-state=" + state,
                                   "--initial-cluster-token=" + options.cluster.etcdToken(),
                                   "--strict-reconfig-check=false",
                                   "--pre-vote=true",
                                   "--auto-compaction-mode=revision",
                                   "--auto-compaction-retention=10000",
                                   fmt::format("--quota-backend-bytes={}", options.quota_bytes),
                                   "--snapshot-count=5000",
                                   "--max-snapshots=2",
                                   "--max-wals=2",
                                   "--logger=zap",
                                   "--log-level=warn",
                                   "--log-outputs=stderr"};
  if (tls()) {
    const etcd::TlsFiles files = tlsFilesIn(path("tls"));
    for (const std::string who : {"", "peer-"}) {
      command.insert(command.end(),
                     {"--" + who + "cert-file=" + files.certificate_file, "--" + who + "key-file=" + files.key_file,
                      "--" + who + "trusted-ca-file=" + files.ca_file, "--" + who + "client-cert-auth"});
    }
  }
  return command;
}

Task<void> Voting::Impl::startChild(std::string name, std::string initial_cluster, std::string state,
                                    std::vector<std::string> first_only) {
  auto preparing = blockFor([self = shared_from_this()] {
    auto made = makeDirectory(self->dataDirectory(), 0700);
    if (made) made = self->certify();
    return made;
  });
  const std::optional<Result<void>> prepared = co_await preparing;
  if (!prepared || stopping) co_return;
  if (!*prepared) {
    complain(fmt::format("etcd cannot be started: {}: {}", dataDirectory(), prepared->error().message));
    co_return;
  }
  EtcdChild::Options made{
      .programs = options.programs, .name = options.program, .command = commandFor(name, initial_cluster, state)};
  made.first_only = std::move(first_only);
  child = std::make_unique<EtcdChild>(std::move(made));
  child_starts = 0;
  const bool is_there = std::exchange(data, name).has_value();
  own_status.reset();
  own.setEndpoints({endpointOf(options.address)});
  if (auto begun = child->start(); !begun) {
    complain("etcd cannot be started: " + begun.error().message);
    child.reset();
    co_return;
  }
  if (!options.durable && !std::exchange(in_memory_said, true))
    log.warning("peers: etcd's data is in memory, and lost when this server ends: set state");
  log.info("peers: this machine runs etcd ({})", is_there ? "again" : state == "new" ? "founded" : "joins");
}

// A new etcd asks the others, in the order of their URLs, whether it has been there before, until one answers. It gives
// 1 s to each that listens and does not answer yet, because it asks, too: if all start at once, 1 to 4 s pass. So the
// first in that order starts first, which all others refuse; the others have its answer at once.
Task<void> Voting::Impl::awaitFirst() {
  const auto url = [this](const founding::Voter& voter) { return peerUrl(voter.address, tls()); };
  const founding::Voter& first = *std::ranges::min_element(options.cluster.voters, {}, url);
  if (first.uuid == options.uuid) co_return;
  const auto deadline = thread.now() + options.first_patience;
  const auto is_served = std::make_shared<bool>(false);
  while (!*is_served && !stopping && !thread.stopping() && thread.now() < deadline) {
    auto asking = block([is_served, address = shifted(first.address, 2)] { *is_served = isServed(address, 100ms); });
    if (!co_await asking || *is_served) co_return;
    co_await thread.sleepFor(20ms);
  }
}

Task<void> Voting::Impl::startFounding() {
  co_await awaitFirst();
  if (stopping) co_return;
  // First its directory: who finds that beside the marker, and nothing in it, goes on with the start.
  auto marking = blockFor([directory = fmt::format("{}/{}", dataDirectory(), kFoundingData), marker = marker()] {
    auto made = makeDirectory(directory, 0700);
    return made ? replaceFile(marker, "") : made;
  });
  const std::optional<Result<void>> marked = co_await marking;
  if (!marked || stopping) co_return;
  if (!*marked) {
    complain(fmt::format("etcd cannot be started: {}: {}", marker(), marked->error().message));
    co_return;
  }
  started = true;
  auto starting = startChild(std::string(kFoundingData), foundingCluster(), "new");
  co_await starting;
  data = kFoundingData;  // also if it could not be started: with that it is tried again
}

std::string Voting::Impl::foundingCluster() const {
  std::string all;
  for (const founding::Voter& voter : options.cluster.voters)
    all += (all.empty() ? "" : ",") + voter.uuid + "=" + peerUrl(voter.address, tls());
  return all;
}

// `patience`: with an orderly end; none: it is killed, also while another Task has patience with it.
Task<void> Voting::Impl::endChild(std::chrono::milliseconds patience) {
  if (child) ending = std::move(child);
  if (!ending) co_return;
  own_status.reset();
  counters.leads.set(0);
  const std::shared_ptr<EtcdChild> last = ending;
  auto blocked = block([last, patience] { last->stop(patience); });
  if (!co_await blocked) last->stop();
  if (ending == last) ending.reset();
}

Task<void> Voting::Impl::join(uint64_t member) {
  const StoreResult<etcd::MemberList> list = co_await cluster.memberList();
  if (!list || stopping) co_return;
  std::string initial_cluster;
  bool is_listed = false;
  for (const ClusterMember& one : list->members) {
    const bool is_self = one.id == member;
    is_listed = is_listed || is_self;
    const std::string name = is_self ? options.uuid : one.name.empty() ? hex(one.id) : one.name;
    for (const std::string& peer_url : one.peer_urls)
      initial_cluster += (initial_cluster.empty() ? "" : ",") + name + "=" + peer_url;
  }
  if (!is_listed) co_return;
  auto starting = startChild(hex(member), initial_cluster, "existing");
  co_await starting;
}

// Whether etcd has the member no more whose data this machine has. A voters key without it does not show that: reads may
// go back (etcd 20418), and the data is a vote. So a majority of the voters agrees on a leader, and that one's list, after
// it has applied what is committed, has it not.
Task<bool> Voting::Impl::isRemoved() {
  std::vector<Voter> others = published.voters;
  std::erase_if(others, [this](const Voter& voter) { return voter.uuid == options.uuid; });
  const BootClock::time_point begun = thread.now();
  auto asking = askAll(others, [](uint64_t) { return true; });
  co_await asking;
  const auto follows = [this, begun](uint64_t member, uint64_t leader, uint64_t term) {
    const auto answer = answers.find(member);
    return answer != answers.end() && answer->second.at >= begun && answer->second.status.leader == leader &&
           (term == 0 || answer->second.status.term == term);
  };
  const auto leader =
      std::ranges::find_if(others, [&](const Voter& voter) { return follows(voter.member, voter.member, 0); });
  if (leader == others.end()) co_return false;
  const uint64_t term = answers.at(leader->member).status.term;
  const std::shared_ptr<etcd::Client> client = clientOf(leader->address);
  clients.clear();
  auto reading = client->range(store::KeyRange::single(std::string(kVotersKey)), {});
  const StoreResult<store::RangeResult> applied = co_await reading;
  if (!applied || !data) co_return false;
  const etcd::Cluster one(*client);
  const StoreResult<etcd::MemberList> list = co_await one.memberList();
  if (!list || !data) co_return false;
  size_t voters = 0;
  size_t following = 0;
  for (const ClusterMember& member : list->members) {
    if (*data == kFoundingData ? member.name == options.uuid : hex(member.id) == *data) co_return false;
    voters += member.is_learner ? 0 : 1;
    following += !member.is_learner && follows(member.id, leader->member, term) ? 1 : 0;
  }
  co_return following >= voters / 2 + 1;
}

Task<void> Voting::Impl::leave() {
  co_await endChild();
  if (stopping) co_return;  // end() has the child, which may live yet
  auto deleting = blockFor([marker = marker(), directory = dataDirectory(), removed = removedDirectory()] {
    auto written = replaceFile(marker, "");
    // As a whole: etcd would take what a loss of power has left of it for its own, or for a founding that begins.
    return written ? removeDirectory(directory, removed) : written;
  });
  const std::optional<Result<void>> deleted = co_await deleting;
  if (!deleted) co_return;
  complain(*deleted
               ? ""
               : fmt::format("the data of etcd cannot be deleted: {}: {}", dataDirectory(), deleted->error().message));
  if (!*deleted) co_return;
  data.reset();
  started = true;
  log.info("peers: this machine runs no etcd any more: others vote");
}

Task<void> Voting::Impl::moveAddress(Voter voter) {
  std::vector<std::string> urls{peerUrl(options.address, tls())};
  const StoreResult<void> updated = co_await own_cluster.memberUpdate(voter.member, std::move(urls));
  if (updated)
    log.info("peers: etcd's other members are told the new address of this machine, {}", options.address.ip.toString());
}

void Voting::Impl::seeVersion(const std::string& seen) {
  if (seen == version) return;
  version = seen;
  version_metric.emplace(options.metrics.with("version", version)).version.set(1);
  if (const std::string defects = defectsOf(version); !defects.empty())
    log.warning("peers: etcd {} has known defects: {}", version, defects);
}

// Again and again: it may be installed later.
Task<void> Voting::Impl::lookForProgram() {
  const auto found = std::make_shared<bool>();
  auto looking = block([program = options.program, found] { *found = isProgram(program); });
  if (!co_await looking || !*found) co_return;
  has_program = true;
  complain("");
}

// Whether the published voters have the member no more whose data this machine has.
bool Voting::Impl::isNoMember() const {
  if (!is_published || !data) return false;
  return me() == nullptr || (*data != kFoundingData && *data != hex(me()->member));
}

Task<void> Voting::Impl::leaveIfRemoved() {
  if (!isNoMember()) co_return;
  const bool is_removed = co_await isRemoved();
  if (is_removed && !stopping) co_await leave();
}

void Voting::Impl::updateStandsBy() {
  const bool is_lost = me() != nullptr && !me()->learner && (started || !isFounder());
  const bool waits = is_published && (me() == nullptr || is_lost) && !data && has_program;
  if (std::exchange(stands_by, waits) != waits) machine_changed.set();
  if (waits && is_lost)
    complain("this machine votes, but has lost its data of etcd: it will be added anew, or another one will");
}

// `is_no_member`: it is not known yet whether the data is void.
Voting::Impl::Start Voting::Impl::chooseStart(bool is_no_member) const {
  if (data && is_no_member) return Start::kNone;
  if (data == kFoundingData && !started) return Start::kFound;  // it was broken off before the marker was there
  if (data) return Start::kRestart;
  if (me() != nullptr && me()->learner) return Start::kJoin;
  return isFounder() && !started ? Start::kFound : Start::kNone;
}

Task<void> Voting::Impl::startIfWanted(bool is_no_member) {
  switch (chooseStart(is_no_member)) {
    case Start::kNone:
      co_return;
    case Start::kFound:
      co_await startFounding();
      co_return;
    case Start::kRestart: {
      // etcd looks at it only where it has no data yet.
      const bool is_founding = *data == kFoundingData;
      auto starting = startChild(*data, is_founding ? foundingCluster() : "", is_founding ? "new" : "existing");
      co_await starting;
      co_return;
    }
    case Start::kJoin:
      co_await join(me()->member);
      co_return;
  }
}

// False: etcd does not answer, or ends.
Task<bool> Voting::Impl::readOwnStatus() {
  counters.etcd_starts.add(child->starts() - std::exchange(child_starts, child->starts()));
  const StoreResult<MemberStatus> answer = co_await own_cluster.status();
  if (stopping || !child) co_return false;
  complain(child->problem());
  own_status.reset();
  if (answer) own_status = *answer;
  counters.leads.set(leads() ? 1 : 0);
  if (own_status) seeVersion(own_status->version);
  co_return own_status.has_value();
}

Task<void> Voting::Impl::maintainFiles() {
  if (thread.now() < next_look_at_files) co_return;
  next_look_at_files = thread.now() + 60s;
  auto looking = block([self = shared_from_this()] {
    const std::string file = self->path("etcd.log");
    std::error_code error;
    if (const auto size = std::filesystem::file_size(file, error); !error && size > kMaxLogBytes)
      std::filesystem::resize_file(file, 0, error);
    (void)self->certify();  // etcd and its clients read the files again
  });
  co_await looking;
}

Task<void> Voting::Impl::leadOrStandBack() {
  if (leads()) {
    if (own_status->no_space) {
      co_await keepSpace();
    } else {
      full.reset();
    }
    co_await lead();
  } else {
    answered.clear();
    change_seen.reset();
    too_many_since.reset();
    clients.clear();
    last_members.clear();
    going_on.clear();
  }
}

Task<void> Voting::Impl::tick() {
  if (!has_program) co_await lookForProgram();
  const bool is_no_member = isNoMember();
  co_await leaveIfRemoved();
  updateStandsBy();
  if (recovery) co_await recoverNow();
  if (stopping || stands_by || !has_program) co_return;
  if (!child) {
    co_await startIfWanted(is_no_member);
    co_return;
  }
  const bool answers_now = co_await readOwnStatus();
  if (!answers_now) co_return;
  co_await maintainFiles();
  if (const Voter* const listed = me(); listed != nullptr && listed->address != options.address)
    co_await moveAddress(*listed);
  co_await leadOrStandBack();
}

// Why this machine may not go on alone; empty: it may. An etcd that was started without a majority does not say what it
// is: then what was published last counts, or what was known at the start.
std::string Voting::Impl::noRecovery() const {
  if (!data) return "this machine has no data of etcd";
  const auto& known = options.voters.empty() ? options.cluster.voters : options.voters;
  const bool has_voted = own_status     ? !own_status->is_learner
                         : is_published ? me() != nullptr && !me()->learner
                                        : std::ranges::find(known, options.uuid, &founding::Voter::uuid) != known.end();
  if (!has_voted) return "this machine does not vote, so its data may be old: run it on one that does";
  if (reach == Reach::kUnknown) return "it is not known yet whether the voters are reached: try again in some seconds";
  if (reach != Reach::kAway) return "the voters are reached, or were a moment ago: nothing is lost";
  const nanoseconds left = options.leases_end - (thread.now() - *away_since);
  if (left <= 0s) return {};
  return fmt::format("owners may still hold names that only lost voters knew: try again in {} s",
                     std::chrono::ceil<std::chrono::seconds>(left).count());
}

Task<void> Voting::Impl::recoverNow() {
  std::promise<Result<void>> promise = std::move(*recovery);
  if (std::string reason = noRecovery(); !reason.empty()) {
    recovery.reset();
    promise.set_value(fail(std::move(reason)));
    co_return;
  }
  log.warning("peers: an operator has this machine go on alone; what other voters had and it has not is lost");
  const bool is_alone = co_await restartAlone();
  recovery.reset();
  promise.set_value(is_alone ? Result<void>() : fail("etcd does not come up: see etcd.log"));
}

// With --force-new-cluster etcd drops the entries of its log that it does not know to be committed. After SIGKILL or a loss
// of power its database may have some of them, and whoever joins and replays the log would lack them. So it makes a
// snapshot at once, and is started again from that: what it sends to those that join is its database. One that ends before
// has been started again without these flags: then all is done anew, as nobody has joined yet.
Task<bool> Voting::Impl::restartAlone() {
  const auto deadline = thread.now() + 60s;
  bool is_forced = false;
  while (!is_forced) {
    co_await endChild(kOrderlyEnd);
    std::vector<std::string> flags{"--force-new-cluster", "--snapshot-count=1"};
    auto forced = startChild(*data, "", "existing", std::move(flags));
    co_await forced;
    auto first = writesAlone(deadline, 1);
    const bool writes = co_await first;
    const bool has_ended = child && child->starts() > 1;
    if (stopping || !(writes || has_ended) || thread.now() >= deadline) co_return false;
    is_forced = !has_ended;
  }
  co_await endChild(kOrderlyEnd);  // which waits for the snapshot
  auto again = startChild(*data, "", "existing");
  co_await again;
  auto second = writesAlone(deadline, std::numeric_limits<uint64_t>::max());
  const bool writes = co_await second;
  co_return writes;
}

// Until a write of its own takes effect. The first ones may not, and have no answer: etcd takes an index of the log that
// its database has had for applied. So many are tried at once, each of which takes an index. False: it is not so by then,
// or etcd has been started more often.
Task<bool> Voting::Impl::writesAlone(BootClock::time_point deadline, uint64_t most_starts) {
  constexpr int kAtOnce = 64;
  const auto done = std::make_shared<runtime::Event>(thread);
  while (child && child->starts() <= most_starts && !stopping && !thread.stopping() && thread.now() < deadline) {
    const StoreResult<MemberStatus> answer = co_await own_cluster.status();
    const bool leads_now = answer && answer->leader == answer->id;
    for (int i = 0; leads_now && i < kAtOnce; ++i) thread.spawn(tryToWrite(shared_from_this(), done));
    auto wait = done->wait(leads_now ? nanoseconds(2s) : 100ms);
    if (co_await wait) co_return true;
  }
  co_return false;
}

Task<void> Voting::Impl::tryToWrite(Self self, std::shared_ptr<runtime::Event> done) {
  const StoreResult<std::vector<etcd::Alarm>> written = co_await self->own_cluster.alarms();
  if (written) done->set();
}

// --- the leader ---

std::shared_ptr<etcd::Client> Voting::Impl::clientOf(const SocketAddress& address) {
  const std::string endpoint = endpointOf(address);
  auto& client = clients[endpoint];
  if (!client) client = std::make_shared<etcd::Client>(thread, clientOptions({endpoint}), Logger());
  return client;
}

// `awaited`: null: nobody waits for it.
Task<void> Voting::Impl::ask(Self self, Voter voter, std::shared_ptr<Awaited> awaited) {
  const std::shared_ptr<etcd::Client> client = self->clientOf(voter.address);
  const etcd::Cluster one(*client);
  const StoreResult<MemberStatus> answer = co_await one.status();
  self->being_asked.erase(voter.member);
  if (answer && answer->id == voter.member) self->answers[voter.member] = {*answer, self->thread.now()};
  if (awaited) awaited->done();
}

// One that stands still is asked too, but holds up no other: its answer counts when it comes.
Task<void> Voting::Impl::askAll(std::vector<Voter> voters, std::function<bool(uint64_t)> is_awaited,
                                nanoseconds patience) {
  const auto awaited = std::make_shared<Awaited>(thread);
  for (const Voter& voter : voters) {
    if (!being_asked.insert(voter.member).second) continue;
    const bool counts = is_awaited(voter.member);
    awaited->left += counts ? 1 : 0;
    thread.spawn(ask(shared_from_this(), voter, counts ? awaited : nullptr));
  }
  if (awaited->left == 0) co_return;
  co_await awaited->all.wait(patience);
}

Voter Voting::Impl::voterOf(const ClusterMember& member, const std::vector<Machine>& machines) const {
  Voter voter{.uuid = member.name, .address = {}, .member = member.id, .learner = member.is_learner};
  if (const auto address = machineAddressOf(member)) voter.address = *address;
  if (!voter.uuid.empty()) return voter;
  // It has not started yet.
  if (const auto found = std::ranges::find(published.voters, member.id, &Voter::member);
      found != published.voters.end()) {
    voter.uuid = found->uuid;
  } else if (const auto at = std::ranges::find(machines, voter.address, &Machine::address); at != machines.end()) {
    voter.uuid = at->uuid;
  } else {
    voter.uuid = hex(member.id);
  }
  return voter;
}

// False: they cannot be read.
Task<bool> Voting::Impl::readMembers(View& view) {
  auto reading = own.range(store::KeyRange::prefix(kPrefix), {});
  const StoreResult<store::RangeResult> keys = co_await reading;
  if (!keys) co_return false;
  const StoreResult<etcd::MemberList> list = co_await own_cluster.memberList();
  if (!list || !own_status) co_return false;
  view.published.cluster = options.cluster.cluster;
  key_revision = 0;
  for (const store::KeyValue& kv : keys->kvs) {
    if (kv.key == kVotersKey) {
      key_revision = kv.mod_revision;
      view.published = decodePublished(kv.value).value_or(Published{});
      view.published.cluster = options.cluster.cluster;
    }
  }
  view.machines = machinesOf(keys->kvs);
  view.self = own_status->id;
  for (const ClusterMember& member : list->members) view.members.push_back({.voter = voterOf(member, view.machines)});
  std::ranges::sort(view.members, {}, [](const View::Member& member) { return member.voter.member; });
  co_return true;
}

// Whether it was counted in shortly before `time`, or is new.
bool Voting::Impl::answersLately(uint64_t id, BootClock::time_point time) const {
  const auto last = answered.find(id);
  return last == answered.end() || time - last->second < kAnswersLately;
}

// `begun`: when the members were asked.
void Voting::Impl::judgeAnswers(View& view, BootClock::time_point begun) {
  const BootClock::time_point now = thread.now();
  for (View::Member& member : view.members) {
    const uint64_t id = member.voter.member;
    const auto answer = answers.find(id);
    const bool has_answered =
        answer != answers.end() && answer->second.at >= (answersLately(id, begun) ? begun : begun - kAnswersLately);
    member.answers = id == view.self || (has_answered && answer->second.status.leader == view.self &&
                                         answer->second.status.index + kMaxLag >= own_status->index);
    BootClock::time_point& last = answered.try_emplace(id, now).first->second;
    if (member.answers) last = now;
    member.silent = now - last;
  }
}

void Voting::Impl::forgetGone(const View& view) {
  const auto is_gone = [&view](const auto& one) {
    return std::ranges::none_of(view.members,
                                [&one](const View::Member& member) { return member.voter.member == one.first; });
  };
  std::erase_if(answers, is_gone);
  std::erase_if(answered, is_gone);
  std::erase_if(clients, [this, &view](const auto& one) {
    return std::ranges::none_of(
        view.members, [&](const View::Member& member) { return endpointOf(member.voter.address) == one.first; });
  });
}

// Since when this leader has seen what it sees.
void Voting::Impl::noteDurations(View& view) {
  const BootClock::time_point now = thread.now();
  if (!view.published.change) {
    change_seen.reset();
  } else {
    if (!change_seen || change_seen->first != *view.published.change) change_seen.emplace(*view.published.change, now);
    view.change_age = now - change_seen->second;
  }
  std::erase_if(avoided, [now](const auto& one) { return now - one.second > kShrinkAfter; });
  for (const auto& [uuid, since] : avoided) view.avoided.insert(uuid);
  const auto voters = static_cast<size_t>(
      std::ranges::count_if(view.members, [](const View::Member& member) { return !member.voter.learner; }));
  if (voters <= founding::votersFor(view.machines.size())) {
    too_many_since.reset();
  } else {
    if (!too_many_since) too_many_since = now;
    view.too_many_for = now - *too_many_since;
  }
}

Task<std::optional<View>> Voting::Impl::readView() {
  View view;
  const bool is_read = co_await readMembers(view);
  if (!is_read) co_return std::nullopt;
  std::vector<Voter> others;
  for (const View::Member& member : view.members) {
    if (member.voter.member != view.self) others.push_back(member.voter);
  }
  const BootClock::time_point begun = thread.now();
  auto asking = askAll(std::move(others), [this, begun](uint64_t id) { return answersLately(id, begun); });
  co_await asking;
  if (!own_status) co_return std::nullopt;
  judgeAnswers(view, begun);
  forgetGone(view);
  noteDurations(view);
  last_members = view.members;
  co_return view;
}

// Of the machines with a key, but for the members that answer: those that do not listen on their peers port.
Task<std::set<SocketAddress>> Voting::Impl::goneOf(const View& view) {
  constexpr size_t kEnough = 64;  // for the most voters, and one that stands by
  static constexpr auto kConnectPatience = 1500ms;  // a lost SYN is repeated after 1 s
  std::vector<Machine> machines;
  for (const Machine& machine : view.machines) {
    const auto is_of = [&machine](const View::Member& member) {
      return member.answers && member.voter.uuid == machine.uuid;
    };
    if (std::ranges::none_of(view.members, is_of)) machines.push_back(machine);
  }
  std::ranges::sort(machines, {}, [](const Machine& machine) { return std::pair(!machine.stands_by, machine.start); });
  machines.resize(std::min(machines.size(), kEnough));
  std::vector<SocketAddress> addresses;
  addresses.reserve(machines.size());
  for (const Machine& machine : machines) addresses.push_back(machine.address);
  const auto gone = std::make_shared<std::set<SocketAddress>>();
  auto asking = block([addresses = std::move(addresses), gone] { *gone = unservedOf(addresses, kConnectPatience); });
  co_await asking;
  co_return *gone;
}

Task<void> Voting::Impl::lead() {
  constexpr int kMaxSteps = 8;
  for (int i = 0; i < kMaxSteps && !stopping; ++i) {
    std::optional<View> view = co_await readView();
    if (!view) co_return;
    Step step = nextStep(*view);
    if (beginsWithAnother(*view, step)) {
      view->gone = co_await goneOf(*view);
      step = nextStep(*view);
      if (std::holds_alternative<step::Wait>(step.what) && !view->gone.empty())
        step.why += fmt::format("{}{} machines that have a key take no connection at their peers port over TCP",
                                step.why.empty() ? "" : "; ", view->gone.size());
    }
    if (step.why != going_on && !step.why.empty()) log.info("peers: {}", step.why);
    going_on = step.why;
    if (std::holds_alternative<step::Wait>(step.what)) co_return;
    if (const auto* remove = std::get_if<step::Remove>(&step.what);
        remove != nullptr && remove->voter.learner && view->change_age >= kLearnerPatience)
      avoided[remove->voter.uuid] = thread.now();
    const bool is_done = co_await carryOut(std::move(step));
    if (!is_done) co_return;
  }
}

Task<bool> Voting::Impl::carryOut(Step step) {
  StoreResult<void> done;
  if (const auto* publication = std::get_if<step::Publish>(&step.what)) {
    const bool is_put = co_await publish(publication->value);
    co_return is_put;
  }
  if (const auto* add = std::get_if<step::Add>(&step.what)) {
    auto adding = own_cluster.memberAdd({peerUrl(add->machine.address, tls())}, true);
    const StoreResult<uint64_t> added = co_await adding;
    if (!added) done = tl::unexpected<store::StoreError>(added.error());
  } else if (const auto* promote = std::get_if<step::Promote>(&step.what)) {
    const StoreResult<void> promoted = co_await own_cluster.memberPromote(promote->voter.member);
    if (!promoted) co_return false;  // not yet: etcd knows better how far it is
  } else if (const auto* remove = std::get_if<step::Remove>(&step.what)) {
    done = co_await own_cluster.memberRemove(remove->voter.member);
  }
  if (!done) {
    log.warning("peers: {}: etcd refuses: {}", step.why, done.error().message);
    co_return false;
  }
  counters.changes.add();
  co_return true;
}

Task<bool> Voting::Impl::publish(Published value) {
  store::TxnRequest request;
  request.compares.push_back({std::string(kVotersKey), store::Compare::Target::kModRevision, key_revision});
  request.success.emplace_back(store::PutOp{std::string(kVotersKey), encode(value), 0});
  const StoreResult<store::TxnResult> put = co_await own.txn(std::move(request));
  co_return put && put->succeeded;
}

Task<void> Voting::Impl::keepSpace() {
  if (!full) log.error("peers: etcd is full ({} MB): it is compacted and defragmented", own_status->bytes >> 20);
  const StoreResult<void> made = co_await makeSpace();
  const std::string why = made ? "" : made.error().message;
  if (!why.empty() && full != why) log.warning("peers: etcd stays full; this machine keeps trying: {}", why);
  full = why;
}

// A full store takes no writes until it has been compacted, each member that answers has given the space back, and the
// alarm is off. An alarm that goes off before would come back with the next write.
Task<StoreResult<void>> Voting::Impl::makeSpace() {
  const StoreResult<void> compacted = co_await own_cluster.compact(own_status->revision);
  if (!compacted && compacted.error().code != ErrorCode::kCompacted) co_return compacted;
  const std::optional<View> view = co_await readView();
  if (!view) co_return tl::unexpected(store::StoreError(ErrorCode::kUnavailable, "its members are not known"));
  for (const View::Member& member : view->members) {
    if (!member.answers) continue;
    const std::shared_ptr<etcd::Client> client = clientOf(member.voter.address);
    const etcd::Cluster one(*client);
    const StoreResult<void> defragmented = co_await one.defragment(30s);
    if (!defragmented) co_return defragmented;
  }
  const StoreResult<std::vector<etcd::Alarm>> alarms = co_await own_cluster.alarms();
  if (!alarms) co_return tl::unexpected(alarms.error());
  for (const etcd::Alarm& alarm : *alarms) {
    if (alarm.kind != etcd::Alarm::Kind::kNoSpace) continue;
    const StoreResult<void> disarmed = co_await own_cluster.disarm(alarm);
    if (!disarmed) co_return disarmed;
  }
  co_return StoreResult<void>();
}

Task<void> Voting::Impl::handOver(Self self, std::shared_ptr<Awaited> awaited) {
  const uint64_t member_id = self->own_status ? self->own_status->id : 0;
  const bool leads = self->child && self->leads();
  const std::vector<View::Member> members = leads ? self->last_members : std::vector<View::Member>();
  for (const View::Member& member : members) {
    if (member.voter.learner || !member.answers || member.voter.member == member_id) continue;
    const StoreResult<void> moved = co_await self->own_cluster.moveLeader(member.voter.member);
    if (moved || !self->child) break;
  }
  awaited->done();
}

Task<void> Voting::Impl::readMachines(Self self, std::shared_ptr<std::vector<Machine>> machines,
                                      std::shared_ptr<Awaited> awaited) {
  auto reading = self->store.range(store::KeyRange::prefix(kMachinesPrefix), {});
  const StoreResult<store::RangeResult> keys = co_await reading;
  if (keys) *machines = machinesOf(keys->kvs);
  awaited->done();
}

Task<void> Voting::Impl::inspect(Self self, nanoseconds patience, std::shared_ptr<std::promise<Status>> promise) {
  Impl& impl = *self;
  Status status;
  const auto machines = std::make_shared<std::vector<Machine>>();
  const auto read = std::make_shared<Awaited>(impl.thread);
  read->left = 1;
  impl.thread.spawn(readMachines(self, machines, read));
  const BootClock::time_point begun = impl.thread.now();
  auto asking = impl.askAll(impl.published.voters, [](uint64_t) { return true; }, patience);
  co_await asking;
  co_await read->all.wait(std::max<nanoseconds>(patience - (impl.thread.now() - begun), 0ns));
  status.machines = *machines;
  for (const Voter& voter : impl.published.voters) {
    VoterStatus& one = status.voters.emplace_back();
    one.voter = voter;
    const auto machine = std::ranges::find(status.machines, voter.uuid, &Machine::uuid);
    one.in_memory = machine != status.machines.end() && !machine->durable;
    const auto answer = impl.answers.find(voter.member);
    if (answer == impl.answers.end() || answer->second.at + kTick < begun) continue;
    one.answers = answer->second.status.leader != 0;
    one.leads = answer->second.status.leader == voter.member;
    one.version = answer->second.status.version;
  }
  if (!impl.leads()) impl.clients.clear();  // no connection stays
  status.role = impl.role();
  status.problem = impl.problem;
  status.going_on = impl.going_on;
  if (const auto& change = impl.published.change; status.going_on.empty() && change) {
    status.going_on = change->add.empty() ? fmt::format("machine {} is to vote no more", change->remove)
                                          : fmt::format("machine {} is to vote", change->add);
  }
  promise->set_value(std::move(status));
}

// --- Voting ---

Voting::Voting(etcd::CompletionThread& thread, Options options, const Logger& log)
    : impl_(std::make_shared<Impl>(thread, std::move(options), log)) {
  assert(impl_->options.programs && !impl_->options.uuid.empty() && !impl_->options.directory.empty());
}

Voting::~Voting() { stop(1s); }

void Voting::start() { impl_->thread.spawn(Impl::run(impl_)); }

bool Voting::stop(std::chrono::milliseconds budget) {
  const bool posted = impl_->thread.post([impl = impl_] {
    if (!std::exchange(impl->stopping, true)) impl->thread.spawn(Impl::end(impl));
    impl->wake.set();
    impl->machine_changed.set();
  });
  return posted && impl_->is_stopped.wait_for(budget) == std::future_status::ready;
}

Voting::Status Voting::status(std::chrono::milliseconds patience) const {
  const auto promise = std::make_shared<std::promise<Status>>();
  auto future = promise->get_future();
  if (!impl_->thread.spawn(Impl::inspect(impl_, patience, promise)) ||
      future.wait_for(patience + 1s) != std::future_status::ready) {
    Status unknown;
    unknown.problem = "the state of the voters is not known in time";
    return unknown;
  }
  return future.get();
}

void Voting::learn(std::vector<founding::Voter> voters) {
  impl_->thread.post([impl = impl_, voters = std::move(voters)]() mutable {
    if (impl->reach == Impl::Reach::kAway) impl->announce(std::move(voters));
  });
}

std::future<Result<void>> Voting::recover() {
  std::promise<Result<void>> promise;
  auto future = promise.get_future();
  const auto shared = std::make_shared<std::promise<Result<void>>>(std::move(promise));
  const bool posted = impl_->thread.post([impl = impl_, shared] {
    if (impl->recovery || impl->stopping) return shared->set_value(fail("it is under way already, or the server ends"));
    impl->recovery.emplace(std::move(*shared));
    impl->wake.set();
  });
  if (!posted) shared->set_value(fail("the server ends"));
  return future;
}

}  // namespace idetcd::peers
