#include "peers/peer_group.h"

#include <filesystem>
#include <sys/stat.h>

#include "base/file.h"
#include "node/address_monitor.h"
#include "node/uuid.h"
#include "peers/certificates.h"

namespace idetcd::peers {

namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxSecret = 4096;  // bytes
constexpr milliseconds kHandOver{2000};
constexpr milliseconds kBeginAgain{1000};  // after the disk has refused
constexpr milliseconds kLookAgain{100};    // whether etcd has ended

std::vector<std::string> texts(const std::vector<IpAddress>& addresses) {
  std::vector<std::string> all;
  all.reserve(addresses.size());
  for (const IpAddress& address : addresses) all.push_back(address.toString());
  return all;
}

}  // namespace

std::string warningOfSecret(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || (status.st_mode & S_IROTH) == 0) return {};
  return fmt::format("every user of this machine may read the secret {}, and so change every name: chmod o= {}", path,
                     path);
}

std::chrono::milliseconds silenceAfter(std::chrono::seconds lease) {
  return lease + milliseconds(lease) / 10 + milliseconds(100);
}

struct PeerGroup::Impl : std::enable_shared_from_this<PeerGroup::Impl> {
  Impl(Options group_options, etcd::CompletionThread& completion_thread, Logger logger, const metrics::Scope& scope)
      : options(std::move(group_options)),
        thread(completion_thread),
        log(std::move(logger)),
        seen_gauge(scope, "idetcd_peers_seen", "Machines without a cluster that are seen, this one among them.",
                   [this] { return read([this] { return founder ? founder->status().progress.seen : 0; }); }),
        member_gauge(scope, "idetcd_peers_member",
                     "Whether this machine is a member of a cluster that was founded: 1 or 0.",
                     [this] { return read([this] { return membership.has_value(); }); }),
        reached_gauge(scope, "idetcd_peers_voters_reached",
                      "Whether this machine reaches the voters of its cluster: 1 or 0.",
                      [this] { return read([this] { return reaches_voters; }); }),
        dissolved(scope, "idetcd_peers_dissolved_total",
                  "Clusters that this machine has left for another one of the same secret.") {}

  template <typename What>
  double read(const What& what) const {
    const std::lock_guard lock(mutex);
    return static_cast<double>(what());
  }
  Result<void> open();
  void start();
  void onAddresses();
  void beginSoon(milliseconds delay);
  Result<void> begin();
  Result<founding::Record> takeRecord();
  void onMember(const founding::Value& value, const std::vector<founding::Voter>& voters, bool promised);
  void onVoters(const std::vector<founding::Voter>& voters);
  void onLeave(const founding::Value& value);
  void leave(int64_t seen_token);
  void end(milliseconds budget);
  void stop(milliseconds budget);
  std::shared_ptr<Voting> votingThatRuns() const {
    const std::lock_guard lock(mutex);
    return stopped || !left_cluster.empty() ? nullptr : voting;
  }
  std::string recordFile() const { return directory + "/record"; }
  bool isDurable() const { return state && !options.observes; }

  const Options options;
  etcd::CompletionThread& thread;
  const Logger log;
  Meeting meeting;
  std::optional<founding::Secret> secret;
  std::string directory;
  std::shared_ptr<node::StateDirectory> state;  // null: this machine keeps nothing
  std::string uuid;
  const int64_t started_at = SystemClock().wallTime().count();
  std::once_flag started;
  std::shared_ptr<Executor::Strand> disk;
  std::unique_ptr<node::AddressMonitor> monitor;  // from start() to stop()
  std::mutex ending;                              // held while what runs is being ended

  // --- on the strand ---
  std::vector<IpAddress> addresses = options.addresses;
  std::string kept_record;  // see Founder

  mutable std::mutex mutex;  // guards what follows
  bool stopped = false;
  int64_t token = 0;
  std::string left_cluster;       // is being left; empty: none
  std::string dissolved_cluster;  // the last one that was; empty: none
  std::string trouble = "not started";
  std::unique_ptr<Founder> founder;
  std::shared_ptr<Voting> voting;
  bool reaches_voters = false;
  std::optional<Membership> membership;
  std::vector<std::string> endpoints;

  // Last: they read what is above.
  const metrics::GaugeFunction seen_gauge;
  const metrics::GaugeFunction member_gauge;
  const metrics::GaugeFunction reached_gauge;
  metrics::Counter dissolved;
};

Result<void> PeerGroup::Impl::open() {
  const Settings& settings = options.settings;
  if (auto parsed = Meeting::parse(settings.where, settings.port)) {
    meeting = std::move(*parsed);
  } else {
    return tl::unexpected(parsed.error());
  }
  if (!settings.secret_file.empty()) {
    const auto text = readFile(settings.secret_file, kMaxSecret);
    auto parsed = text ? founding::Secret::parse(*text) : tl::unexpected(text.error());
    if (!parsed) return fail(fmt::format("secret {}: {}", settings.secret_file, parsed.error().message));
    secret = std::move(*parsed);
    if (const std::string warning = warningOfSecret(settings.secret_file); !warning.empty())
      log.warning("peers: {}", warning);
  }
  disk = options.executor->makeStrand();
  if (options.state.empty()) {
    directory = fmt::format("{}/peers-{}-{}", options.runtime, options.addresses.front().toString(), settings.port);
    KernelRandom random;
    uuid = node::randomUuid(random);
    return {};
  }
  const std::string name = fmt::format("peers-{}", settings.port);
  directory = fmt::format("{}/{}", options.state, name);
  auto taken = node::StateDirectory::open(
      {.directory = options.state, .pattern = name, .predecessor = options.predecessor}, log);
  if (!taken) return tl::unexpected(taken.error());
  state = std::move(*taken);
  uuid = state->node().uuid;
  return {};
}

void PeerGroup::Impl::start() {
  beginSoon(milliseconds(0));
  if (!options.find_addresses) return;
  const auto on_change = [this] { disk->submit([self = shared_from_this()] { self->onAddresses(); }); };
  monitor = std::make_unique<node::AddressMonitor>(node::AddressMonitor::Options{}, on_change, log);
}

void PeerGroup::Impl::beginSoon(milliseconds delay) {
  disk->submitAfter(delay, [self = shared_from_this()] {
    const auto begun = self->begin();
    const std::string reason = begun ? "" : begun.error().message;
    std::string before;
    {
      const std::lock_guard lock(self->mutex);
      if (self->stopped) return;
      before = std::exchange(self->trouble, reason);
    }
    if (begun) return;
    if (before != reason) self->log.error("peers: {}; it is tried again", reason);
    self->beginSoon(kBeginAgain);
  });
}

// As after a restart of the process, but that what was promised without a disk is not forgotten.
void PeerGroup::Impl::onAddresses() {
  const auto found = options.find_addresses();
  if (!found || found->empty() || *found == addresses) return;
  log.info("peers: this machine's addresses are {} now", fmt::join(texts(*found), " "));
  end(kHandOver);
  addresses = *found;
  beginSoon(milliseconds(0));
}

Result<void> PeerGroup::Impl::begin() {
  if (founder) return {};
  if (state) {
    if (auto taken = state->take(); !taken) return taken;
  }
  const bool was_here = std::filesystem::exists(directory);
  auto record = takeRecord();
  if (!record) return tl::unexpected(record.error());
  Founder::Options founding;
  founding.self.member = {started_at, record->uuid};
  for (const IpAddress& address : addresses) founding.self.addresses.push_back({address, options.settings.port});
  founding.self.durable = isDurable();
  founding.self.can_vote = isProgram(options.settings.program);
  founding.self.expect = static_cast<uint32_t>(options.settings.expect);
  founding.port = options.settings.port;
  founding.meeting = meeting;
  if (secret) founding.key = secret->derive(founding::kMessageLabel);
  founding.record = std::move(*record);
  if (state) founding.record_file = recordFile();
  founding.disk = disk;
  if (!state && was_here && kept_record.empty()) founding.silence = silenceAfter(options.lease);
  if (options.observes) founding.silence = founding::Elector::kForEver;
  founding.executor = options.executor;
  founding.metrics = options.metrics;
  founding.on_member = [this](const auto& value, const auto& voters, bool promised) {
    onMember(value, voters, promised);
  };
  founding.on_leave = [this](const auto& value) { onLeave(value); };
  const std::lock_guard lock(mutex);
  if (stopped) return {};
  founding.self.token = token;
  uuid = founding.self.member.uuid;
  auto made = std::make_unique<Founder>(std::move(founding), log);
  auto begun = made->start();
  if (begun) founder = std::move(made);
  return begun;
}

// What this machine has promised and learned before. One that keeps nothing, or whose record is not its own (of a copied
// disk) or is damaged, is another machine, and takes nothing over.
Result<founding::Record> PeerGroup::Impl::takeRecord() {
  founding::Record record{uuid, {}, {}, {}};
  if (!kept_record.empty()) return founding::decodeRecord(kept_record, uuid);
  if (state) {
    const auto bytes = readFile(recordFile(), Founder::kMaxRecord);
    if (!bytes && bytes.error().code != ErrorCode::kNotFound)
      return fail(fmt::format("{}: {}", recordFile(), bytes.error().message));
    if (bytes) {
      auto read = founding::decodeRecord(*bytes, uuid);
      if (read) return read;
      log.warning("peers: {}: {}: this machine begins as another one", recordFile(), read.error().message);
      KernelRandom random;
      node::RememberedNode node = state->node();
      node.uuid = record.uuid = node::randomUuid(random);
      if (auto remembered = state->remember(node); !remembered) return tl::unexpected(remembered.error());
    }
  }
  std::error_code error;
  std::filesystem::remove_all(directory, error);
  if (error) return fail(fmt::format("cannot empty {}: {}", directory, error.message()));
  if (auto made = makeDirectory(directory, 0700); !made)
    return fail(fmt::format("cannot make {}: {}", directory, made.error().message));
  return record;
}

// On the founder's thread, which has ended before the voting does.
void PeerGroup::Impl::onMember(const founding::Value& value, const std::vector<founding::Voter>& voters,
                               bool promised) {
  if (voting) return voting->learn(voters);
  Voting::Options options_of_voting;
  options_of_voting.cluster = value;
  options_of_voting.voters = voters;
  options_of_voting.uuid = uuid;
  options_of_voting.address = {addresses.front(), options.settings.port};
  options_of_voting.start = started_at;
  options_of_voting.durable = isDurable();
  options_of_voting.leases_end = silenceAfter(options.lease);
  options_of_voting.promised = promised;
  options_of_voting.directory = directory;
  options_of_voting.secret = secret;
  options_of_voting.programs = options.programs;
  options_of_voting.program = options.settings.program;
  options_of_voting.metrics = options.metrics;
  options_of_voting.executor = options.executor;
  options_of_voting.on_voters = [this](const std::vector<founding::Voter>& today) { onVoters(today); };
  options_of_voting.on_reach = [this](bool reached) {
    const std::lock_guard lock(mutex);
    reaches_voters = reached;
    if (founder) founder->search(!reached);
  };
  auto made = std::make_shared<Voting>(thread, std::move(options_of_voting), log);
  {
    const std::lock_guard lock(mutex);
    if (stopped) return;
    voting = std::move(made);
    reaches_voters = true;  // until it says otherwise
    membership = {value.numberOf(uuid), std::max(value.token_base, token + 1)};
  }
  voting->start();
}

void PeerGroup::Impl::onVoters(const std::vector<founding::Voter>& voters) {
  {
    const std::lock_guard lock(mutex);
    if (!founder || !left_cluster.empty()) return;  // it is about to end
    endpoints.clear();
    for (const founding::Voter& voter : voters) endpoints.push_back(clientEndpoint(voter.address, secret.has_value()));
    founder->setVoters(voters);
  }
  options.on_change();
}

void PeerGroup::Impl::onLeave(const founding::Value& value) {
  {
    const std::lock_guard lock(mutex);
    left_cluster = value.cluster;
    if (std::exchange(dissolved_cluster, value.cluster) != value.cluster) dissolved.add();
    endpoints.clear();
    membership.reset();
  }
  options.on_leave();
}

// On the strand. The record on the disk says by now that this cluster is left: a restart goes on here. The data goes when
// its etcd has ended; the end of the process waits for neither.
void PeerGroup::Impl::leave(int64_t seen_token) {
  const std::lock_guard only(ending);
  std::shared_ptr<Voting> last_voting;
  std::string cluster;
  {
    const std::lock_guard lock(mutex);
    if (stopped || left_cluster.empty()) return;
    token = std::max(token, seen_token);
    cluster = left_cluster;
    last_voting = voting;
    reaches_voters = false;
  }
  const auto again = [this, seen_token](milliseconds delay) {
    disk->submitAfter(delay, [self = shared_from_this(), seen_token] { self->leave(seen_token); });
  };
  if (last_voting && !last_voting->stop(kLookAgain)) return again(kLookAgain);
  std::error_code error;
  std::filesystem::remove_all(fmt::format("{}/{}", directory, cluster), error);
  const std::lock_guard lock(mutex);
  voting.reset();
  const std::string reason =
      error ? fmt::format("the data of the cluster that was left cannot be deleted: {}", error.message()) : "";
  if (const std::string before = std::exchange(trouble, reason); error && before != reason)
    log.error("peers: {}; it is tried again", reason);
  if (error) {
    again(kBeginAgain);
  } else if (founder) {
    left_cluster.clear();
    founder->left();
  }
}

void PeerGroup::Impl::end(milliseconds budget) {
  const std::lock_guard only(ending);
  std::unique_ptr<Founder> last_founder;
  {
    const std::lock_guard lock(mutex);
    last_founder = std::move(founder);
    left_cluster.clear();  // the next founder says it anew
  }
  if (last_founder) {  // first: it makes what follows
    last_founder->stop();
    kept_record = last_founder->keptRecord();
  }
  std::shared_ptr<Voting> last_voting;
  {
    const std::lock_guard lock(mutex);
    last_voting = std::move(voting);
    reaches_voters = false;
  }
  if (last_voting) last_voting->stop(budget);
}

void PeerGroup::Impl::stop(milliseconds budget) {
  {
    const std::lock_guard lock(mutex);
    if (std::exchange(stopped, true)) return;
  }
  monitor.reset();
  end(budget);
  disk->drain();  // what has been promised, for whoever has the directory next
  if (state) {
    state->release();
  } else {  // the directory itself stays, and says that this machine was here
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error))
      std::filesystem::remove_all(entry.path(), error);
  }
}

// --- PeerGroup ---

Result<std::shared_ptr<PeerGroup>> PeerGroup::open(Options options, etcd::CompletionThread& thread, Logger log) {
  assert(!options.addresses.empty() && options.on_change && options.on_leave);
  const metrics::Scope scope = options.metrics;
  auto impl = std::make_shared<Impl>(std::move(options), thread, std::move(log), scope);
  if (auto opened = impl->open(); !opened) return tl::unexpected(opened.error());
  return std::shared_ptr<PeerGroup>(new PeerGroup(std::move(impl)));
}

PeerGroup::~PeerGroup() { stop(milliseconds(0)); }

const Settings& PeerGroup::settings() const { return impl_->options.settings; }

void PeerGroup::start(int64_t token) {
  std::call_once(impl_->started, [this, token] {
    {
      const std::lock_guard lock(impl_->mutex);
      impl_->token = token;
    }
    impl_->start();
  });
}

void PeerGroup::stop(milliseconds budget) { impl_->stop(budget); }

void PeerGroup::left(milliseconds patience, int64_t token) {
  impl_->disk->submitAfter(patience, [impl = impl_, token] { impl->leave(token); });
}

std::optional<PeerGroup::Membership> PeerGroup::membership() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->membership;
}

std::vector<std::string> PeerGroup::endpoints() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->endpoints;
}

std::optional<etcd::TlsFiles> PeerGroup::tls() const {
  if (!impl_->secret) return std::nullopt;
  return tlsFilesIn(impl_->directory + "/tls");
}

PeerGroup::Report PeerGroup::report() const {
  const std::lock_guard lock(impl_->mutex);
  Report report{.founder = {}, .uuid = impl_->uuid, .reaches_voters = impl_->reaches_voters, .trouble = impl_->trouble};
  if (impl_->founder) report.founder = impl_->founder->status();
  return report;
}

std::optional<Voting::Status> PeerGroup::askVoters(milliseconds patience) const {
  const auto voting = impl_->votingThatRuns();
  return voting ? std::optional(voting->status(patience)) : std::nullopt;
}

Result<void> PeerGroup::recover() {
  const auto voting = impl_->votingThatRuns();
  return voting ? voting->recover().get() : fail("this machine is no member of a cluster yet");
}

}  // namespace idetcd::peers
