#include "directive/xdp/kernel_answers.h"

#include <numeric>

#include "base/hash.h"
#include "directive/idetcd/clusters.h"
#include "dns/types.h"
#include "net/local_addresses.h"

namespace idetcd::directive {

namespace {

using resolve::QueryMeter;

constexpr size_t kUdp = static_cast<size_t>(resolve::Transport::kUdp);
constexpr std::array<dns::Rcode, kernel::kRcodes> kRcodes{dns::Rcode::kNoError, dns::Rcode::kNxDomain};

static_assert(QueryMeter::kTypes.size() == kernel::kTypes && QueryMeter::kTypes[kernel::kTypeA] == "A" &&
              QueryMeter::kTypes[kernel::kTypePtr] == "PTR" && QueryMeter::kTypes[kernel::kTypeHttps] == "HTTPS" &&
              QueryMeter::kTypes[kernel::kTypeOther] == "other");

template <size_t size>
using Numbers = __u64[size];

// The program's buckets are those of SizeHistogram, from its second one on.
void addSizes(const Numbers<kernel::kSizeBuckets>& now, const Numbers<kernel::kSizeBuckets>& seen, uint64_t bytes,
              resolve::SizeHistogram& histogram) {
  static_assert(resolve::SizeHistogram::kBounds[1] == 100 && resolve::SizeHistogram::kBounds[4] == 400);
  for (size_t i = 0; i < kernel::kSizeBuckets; ++i) histogram.buckets_[i + 1].add(now[i] - seen[i]);
  histogram.sum_.add(bytes);
}

// An endpoint may be spelled with its scheme or without.
std::string_view withoutScheme(std::string_view endpoint) {
  const size_t scheme = endpoint.find("://");
  return scheme == std::string_view::npos ? endpoint : endpoint.substr(scheme + 3);
}

kernel::ZoneIdentity identityOf(const Cluster& cluster, const kernel::Settings& settings) {
  const auto hashOf = [&settings](std::string_view text) {
    return hashBytes(text.data(), text.size(), settings.seed[0]);
  };
  kernel::ZoneIdentity identity{.names = hashOf(cluster.settings.pattern.text()) | 1};
  std::vector<uint32_t> endpoints;
  for (const std::string& endpoint : cluster.first->client->endpoints())
    endpoints.push_back(static_cast<uint32_t>(hashOf(withoutScheme(endpoint))) | 1);
  // The smallest, of which long lists with most members in common share some.
  std::ranges::sort(endpoints);
  std::ranges::copy_n(endpoints.begin(), static_cast<ptrdiff_t>(std::min(endpoints.size(), identity.endpoints.size())),
                      identity.endpoints.begin());
  return identity;
}

KernelCounts::Subject subjectOf(const SocketAddress& address, const PlannedZone& planned) {
  return {address, planned.route->name.toString()};
}

uint8_t prefixLengthOf(const kernel::ListenerKey& key, std::span<const net::AssignedAddress> assigned) {
  constexpr uint8_t kNoSubnet = 32;
  const IpAddress ip = IpAddress::fromBytes(key.address).unmapped();
  const auto found = std::ranges::find_if(
      assigned, [&](const net::AssignedAddress& one) { return one.ip == ip && one.interface == key.interface; });
  return found == assigned.end() ? kNoSubnet : found->prefix_length;
}

bool areEqual(const kernel::Listener& a, const kernel::Listener& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

}  // namespace

KernelCounts::KernelCounts(std::shared_ptr<const kernel::Maps> maps, metrics::Scope scope,
                           std::shared_ptr<resolve::QuerySamples> samples)
    : Group(std::move(scope)),
      maps_(std::move(maps)),
      samples_(std::move(samples)),
      passed_(*this, "idetcd_xdp_passed_total", "reason", kReasons,
              "Queries that the program in the kernel has left to the sockets, and why."),
      seen_passed_(maps_->passed()) {}

std::optional<uint16_t> KernelCounts::meterFor(const Subject& of, std::shared_ptr<QueryMeter> meter,
                                               resolve::DirectiveId by) {
  auto source = std::ranges::find(sources_, std::optional(of), &Source::of);
  if (source == sources_.end()) source = std::ranges::find(sources_, std::optional<Subject>(), &Source::of);
  if (source == sources_.end()) return std::nullopt;
  const auto index = static_cast<uint16_t>(source - sources_.begin());
  if (!source->of) source->seen = maps_->meter(index);
  source->of = of;
  source->meter = std::move(meter);
  source->by = by;
  return index;
}

void KernelCounts::keepOnly(const std::set<Subject>& subjects) {
  update(BootClock::now());
  for (Source& source : sources_) {
    if (source.of && !subjects.contains(*source.of)) source = {};
  }
}

void KernelCounts::update(BootClock::time_point now) {
  uint64_t answers = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].of) answers += add(sources_[i], maps_->meter(i));
  }
  if (answers > 0 && samples_) samples_->onAnsweredElsewhere(static_cast<uint32_t>(answers), now);
  const auto passed = maps_->passed();
  for (size_t reason = 0; reason < passed.size(); ++reason) {
    passed_.add(static_cast<kernel::PassReason>(reason), passed[reason] - seen_passed_[reason]);
  }
  seen_passed_ = passed;
}

// Returns how many answers there were.
uint64_t KernelCounts::add(Source& source, const kernel::Meter& now) {
  QueryMeter* const meter = source.meter.get();
  const kernel::Meter& seen = source.seen;
  uint64_t all = 0;
  for (size_t family = 0; family < kernel::kFamilies; ++family) {
    for (size_t type = 0; type < kernel::kTypes; ++type) {
      for (size_t rcode = 0; rcode < kernel::kRcodes; ++rcode) {
        const uint64_t answers = now.answered[family][type][rcode] - seen.answered[family][type][rcode];
        if (answers == 0) continue;
        all += answers;
        answered(type, rcode).add(answers);
        if (meter == nullptr) continue;
        meter->requests[kUdp][family][type].add(answers);
        meter->responses[source.by][static_cast<size_t>(kRcodes[rcode])].add(answers);
      }
    }
  }
  if (meter != nullptr && all > 0) {
    meter->requests_with_do.add(now.with_do - seen.with_do);
    addSizes(now.request_sizes, seen.request_sizes, now.request_bytes - seen.request_bytes, meter->request_sizes[kUdp]);
    addSizes(now.response_sizes, seen.response_sizes, now.response_bytes - seen.response_bytes,
             meter->response_sizes[kUdp]);
    meter->durations.observe(kDuration, all);
  }
  source.seen = now;
  return all;
}

metrics::Counter& KernelCounts::answered(size_t type, size_t rcode) {
  auto& counter = answered_[{type, rcode}];
  if (!counter) {
    counter = std::make_unique<Answered>(
        scope().with("type", std::string(QueryMeter::kTypes[type])).with("rcode", kRcodeNames[rcode]));
  }
  return *counter;
}

KernelAnswers::~KernelAnswers() = default;

Result<void> KernelAnswers::want(const XdpSettings& settings, std::optional<Result<kernel::Attachment>> taken) {
  if (process_.predecessor != 0) return {};  // which has the interfaces until it ends
  if (std::exchange(wanted_, true)) return {};
  if (!taken && in_use_ && in_use_->settings.pin == settings.pin && isStillFeeding()) {
    if (in_use_->settings.isSameAttachment(settings)) return {};
    if (!settings.pin.empty()) {
      process_.log.named("plugin/xdp")
          .warning("a change of interfaces, mode or max_names takes 'idetcd xdp attach' or a restart");
      return {};
    }
  }
  auto found = find(settings, std::move(taken));
  if (found && !found->failure.empty()) {
    if (settings.required) return fail(fmt::format("plugin/xdp: {}", found->failure));
    process_.log.named("plugin/xdp").warning("{}; elsewhere the program answers", found->failure);
  }
  if (found) {
    next_ = InUse{.settings = settings, .attachment = std::move(*found)};
    return {};
  }
  if (settings.required) return fail(fmt::format("plugin/xdp: {}", found.error().message));
  process_.log.named("plugin/xdp")
      .warning("{}; {}", found.error().message, in_use_ ? "nothing changes until then" : "the sockets answer alone");
  return {};
}

Result<kernel::Attachment> KernelAnswers::find(const XdpSettings& settings,
                                               std::optional<Result<kernel::Attachment>> taken) const {
  if (taken) return std::move(*taken);
  if (settings.pin.empty()) return fail("a change of what is attached takes a restart");
  auto maps = kernel::Maps::open(settings.pin);
  if (!maps) return tl::unexpected(maps.error());
  return kernel::Attachment{.maps = std::move(*maps), .failure = {}, .program = {}, .links = {}};
}

void KernelAnswers::refuse() {
  wanted_ = false;
  next_.reset();
}

void KernelAnswers::accept() {
  const bool wanted = std::exchange(wanted_, false);
  if (wanted && !next_) return;
  end();
  if (!next_) return;
  in_use_ = std::exchange(next_, std::nullopt);
  begin();
}

void KernelAnswers::begin() {
  in_use_->attachment.maps->takeOver();
  replaced_counts_ = 0;
  if (!metrics_) metrics_.emplace(process_.metrics.scope());
  counts_.emplace(in_use_->attachment.maps, process_.metrics.scope(), process_.state<resolve::LoopSamples>().of(0));
  timer_.emplace(process_.loop, [this] { count(); });
  timer_->start(kCountInterval, kCountInterval);
  if (std::ranges::find(in_use_->settings.attach.interfaces, "lo") == in_use_->settings.attach.interfaces.end()) return;
  process_.log.named("plugin/xdp")
      .info(
          "with a program on lo, small writes over TCP there are slower, connections may be delayed at their start, "
          "and a firewall for incoming packets has to accept what comes from lo");
}

// Nothing is answered in the kernel from here on.
void KernelAnswers::end() {
  if (!in_use_) return;
  written_.clear();
  writeListeners();
  for (const Fed& fed : std::exchange(fed_, {})) drop(fed);
  count();
  timer_.reset();
  monitor_.reset();
  counts_.reset();
  seen_.clear();
  metrics_->attached.set(0);
  in_use_.reset();
}

void KernelAnswers::drop(const Fed& fed) {
  process_.state<Clusters>().forget(*fed.store, fed.feed);
  left_out_before_ += fed.feed->leftOut();
  fed.feed->close();
}

void KernelAnswers::onRoutes(const std::vector<resolve::ListenerRoutes>& routes) {
  if (!in_use_) return;
  const std::vector<PlannedListener> plan = planListeners(routes);
  listening_.clear();
  for (const resolve::ListenerRoutes& listener : routes) listening_.push_back(listener.address);
  withdraw(plan);
  feed(plan);
  countOnly(plan);
  written_.clear();
  lacks_meters_ = false;
  for (const PlannedListener& listener : plan) {
    if (const auto value = valueOf(listener)) written_.push_back({.address = listener.address, .value = *value});
  }
  look();
  writeListeners();
  observe();
  watchAddresses();
  if (lacks_meters_) {
    process_.log.named("plugin/xdp")
        .warning("The kernel answers for {} pairs of an address and a block at most: not for all of this Corefile's",
                 int{kernel::kMeters});
  }
  if (!written_.empty() || routes.empty()) return;
  process_.log.named("plugin/xdp")
      .warning(
          "The kernel answers nothing: in each block something has to see the queries first ('log', 'acl', 'any', …), "
          "another block serves a part of the zone, or its name has more than 64 bytes");
}

// Addresses at which other zones are answered from now on are left to the sockets while the zones change.
void KernelAnswers::withdraw(std::span<const PlannedListener> plan) {
  const auto changes = [this, plan](const Written& written) {
    const auto planned = std::ranges::find(plan, written.address, &PlannedListener::address);
    return planned == plan.end() || !isSame(written.value, *planned);
  };
  if (std::erase_if(written_, changes) > 0) writeListeners();
}

bool KernelAnswers::isSame(const kernel::ListenerZone& written, const PlannedZone& planned) const {
  const auto fed = std::ranges::find(fed_, planned.store, &Fed::store);
  return fed != fed_.end() && fed->feed->zone() == written.zone && planned.flags == written.flags;
}

bool KernelAnswers::isSame(const kernel::Listener& written, const PlannedListener& planned) const {
  const auto same = [this](const auto& one, const auto& other) { return isSame(one, other); };
  return std::ranges::equal(std::span(written.zones, written.zone_count), planned.zones, same) &&
         std::ranges::equal(std::span(&written.reverse, written.has_reverse), planned.reverse, same);
}

// Feeds those tables that some listener answers from, and no other.
void KernelAnswers::feed(std::span<const PlannedListener> plan) {
  std::set<const records::RecordStore*> stores;
  for (const PlannedListener& listener : plan) {
    for (const auto* zones : {&listener.zones, &listener.reverse}) {
      for (const PlannedZone& zone : *zones) stores.insert(zone.store);
    }
  }
  for (const Fed& fed : fed_) {
    if (!stores.contains(fed.store)) drop(fed);
  }
  std::erase_if(fed_, [&stores](const Fed& fed) { return !stores.contains(fed.store); });
  std::vector<kernel::ZoneIdentity> wanted;
  for (const records::RecordStore* store : stores) {
    const Cluster* cluster = process_.state<Clusters>().findRunning(*store);
    if (cluster != nullptr) wanted.push_back(identityOf(*cluster, maps().settings()));
  }
  freeZones(wanted);
  for (const records::RecordStore* store : stores) {
    if (std::ranges::find(fed_, store, &Fed::store) != fed_.end()) continue;
    if (auto made = makeFeed(*store)) fed_.push_back({.store = store, .feed = std::move(made)});
  }
}

// Only now: with the listeners of a process before, a zone would be answered where it is not any more.
void KernelAnswers::observe() {
  for (Fed& fed : fed_) {
    if (!std::exchange(fed.observes, true)) process_.state<Clusters>().observe(*fed.store, fed.feed);
  }
}

// Leftovers of processes before that this one does not serve take no room.
void KernelAnswers::freeZones(std::span<const kernel::ZoneIdentity> wanted) {
  if (!maps().isFeeding()) return;
  for (size_t i = 0; i < kernel::kZones; ++i) {
    const kernel::Zone& zone = maps().zone(i);
    const auto matches = [&zone](const kernel::ZoneIdentity& one) { return one.matches(zone) > 0; };
    if (!isFed(i) && zone.identity != 0 && std::ranges::none_of(wanted, matches)) maps().clear(i);
  }
}

std::shared_ptr<kernel::AnswerFeed> KernelAnswers::makeFeed(const records::RecordStore& store) {
  const Cluster* cluster = process_.state<Clusters>().findRunning(store);
  if (cluster == nullptr) return nullptr;
  const kernel::ZoneIdentity identity = identityOf(*cluster, maps().settings());
  const auto zone = freeZone(identity);
  if (!zone) {
    process_.log.named("plugin/xdp")
        .warning("The kernel answers for {} clusters at most: not for {}", int{kernel::kZones},
                 cluster->settings.pattern.text());
    return nullptr;
  }
  return std::make_shared<kernel::AnswerFeed>(in_use_->attachment.maps, *zone, identity, store);
}

bool KernelAnswers::isFed(size_t zone) const {
  return std::ranges::any_of(fed_, [zone](const Fed& fed) { return fed.feed->zone() == zone; });
}

// The place of a process before with the same records; else one that is free.
std::optional<size_t> KernelAnswers::freeZone(const kernel::ZoneIdentity& identity) const {
  std::optional<size_t> found;
  size_t most_shared = 0;
  for (size_t i = 0; i < kernel::kZones; ++i) {
    if (isFed(i)) continue;
    const kernel::Zone& zone = maps().zone(i);
    const size_t shared = identity.matches(zone);
    const bool is_better = shared > most_shared || (zone.identity == 0 && !found);
    if (!is_better) continue;
    most_shared = shared;
    found = i;
  }
  return found;
}

void KernelAnswers::countOnly(std::span<const PlannedListener> plan) {
  std::set<KernelCounts::Subject> subjects;
  for (const PlannedListener& listener : plan) {
    for (const auto* zones : {&listener.zones, &listener.reverse}) {
      for (const PlannedZone& zone : *zones) subjects.insert(subjectOf(listener.address, zone));
    }
  }
  counts_->keepOnly(subjects);
}

std::optional<kernel::ListenerZone> KernelAnswers::zoneOf(const SocketAddress& address, const PlannedZone& planned) {
  const auto fed = std::ranges::find(fed_, planned.store, &Fed::store);
  if (fed == fed_.end()) return std::nullopt;
  const auto meter =
      counts_->meterFor(subjectOf(address, planned), planned.route->meter, planned.route->chain->clusterDirective());
  lacks_meters_ |= !meter;
  if (!meter) return std::nullopt;
  return kernel::ListenerZone{.zone = static_cast<uint8_t>(fed->feed->zone()), .flags = planned.flags, .meter = *meter};
}

std::optional<kernel::Listener> KernelAnswers::valueOf(const PlannedListener& planned) {
  kernel::Listener value{};
  for (const PlannedZone& zone : planned.zones) {
    if (const auto known = zoneOf(planned.address, zone)) value.zones[value.zone_count++] = *known;
  }
  for (const PlannedZone& zone : planned.reverse) {
    const auto known = zoneOf(planned.address, zone);
    if (!known) continue;
    value.reverse = *known;
    value.has_reverse = 1;
  }
  if (value.zone_count == 0 && value.has_reverse == 0) return std::nullopt;
  return value;
}

bool KernelAnswers::isNative(uint32_t interface) const {
  return std::ranges::any_of(seen_, [interface](const auto& one) {
    return one.second.index == interface && one.second.mode == kernel::Mode::kNative;
  });
}

void KernelAnswers::writeListeners() {
  if (!maps().isFeeding()) return;
  const auto listeners = maps().listeners();
  const auto textOf = [](const kernel::ListenerKey& key) {
    return std::string(reinterpret_cast<const char*>(&key), sizeof(key));
  };
  const auto assigned = net::assignedAddresses();
  auto hardware_addresses = net::hardwareAddresses();
  listeners_are_incomplete_ = !assigned || !hardware_addresses;
  if (listeners_are_incomplete_) return;
  // The kernel reuses a replaced element's memory at once, even while a program reads it: unchanged entries are not
  // rewritten.
  std::map<std::string, std::pair<kernel::ListenerKey, kernel::Listener>> there;
  listeners_are_incomplete_ = !listeners.forEach([&](const kernel::ListenerKey& key, const kernel::Listener& value) {
    there[textOf(key)] = {key, value};
  });
  std::vector<std::pair<kernel::ListenerKey, kernel::Listener>> wanted;
  std::set<std::string> texts;
  const auto want = [&](const kernel::ListenerKey& key, const kernel::Listener& value) {
    if (texts.insert(textOf(key)).second) wanted.emplace_back(key, value);
  };
  for (const Written& listener : written_) {
    for (const kernel::ListenerKey& key : keysOf(listener.address, listening_, *assigned)) {
      kernel::Listener value = listener.value;
      std::ranges::copy((*hardware_addresses)[key.interface], value.hardware_address);
      value.prefix_length = prefixLengthOf(key, *assigned);
      value.is_behind_driver = isNative(key.interface) ? 0 : 1;
      want(key, value);
    }
  }
  // Last: if there is no room for all, the server's own addresses are answered at.
  if (!written_.empty()) {
    for (const net::AssignedAddress& one : *assigned) want(ownAddressKey(one.ip), {});
  }
  for (const auto& [text, element] : there) {
    if (!texts.contains(text)) listeners.erase(element.first);
  }
  bool has_room = true;
  for (const auto& [key, value] : wanted) {
    const auto known = there.find(textOf(key));
    if (known != there.end() && areEqual(known->second.second, value)) continue;
    has_room &= listeners.put(key, value) == kernel::PutOutcome::kDone;
  }
  if (!has_room) {
    process_.log.named("plugin/xdp")
        .warning("The kernel answers at {} addresses at most: not at all of this machine's", int{kernel::kListeners});
  }
}

void KernelAnswers::watchAddresses() {
  if (written_.empty()) return monitor_.reset();
  if (monitor_) return;
  const auto on_change = [this] {
    process_.loop.post([this] {
      if (!in_use_) return;
      look();
      writeListeners();
    });
  };
  monitor_.emplace(node::AddressMonitor::Options{}, on_change, process_.log.named("plugin/xdp"));
}

// Whether what this process writes is what answers.
bool KernelAnswers::isStillFeeding() const {
  if (!maps().isFeeding()) return false;
  if (in_use_->settings.pin.empty()) return true;
  const auto pinned = kernel::Maps::open(in_use_->settings.pin);
  return pinned && (*pinned)->isSame(maps());
}

// Reads the state of the interfaces: they come and go, and who has the right may change the program. True: what is
// written of them is out of date. An interface of which the kernel does not say anything now is as it was.
bool KernelAnswers::look() {
  const auto before = seen_;
  size_t bare = 0;
  for (const std::string& interface : in_use_->settings.attach.interfaces) {
    const auto found = kernel::programOn(interface);
    if (found) seen_[interface] = *found;
    const auto known = seen_.find(interface);
    if (known == seen_.end() || known->second.mode) continue;
    ++bare;
    const auto was = before.find(interface);
    if (was == before.end() || was->second.mode) noteBare(interface);
  }
  const bool answers = !written_.empty() && bare < in_use_->settings.attach.interfaces.size();
  metrics_->attached.set(answers ? 1 : 0);
  return seen_ != before;
}

void KernelAnswers::noteBare(const std::string& interface) {
  process_.log.named("plugin/xdp")
      .warning("There is no program on {}: the sockets answer there until 'idetcd xdp attach' or a restart", interface);
}

// A successor in an upgrade takes over a moment before this process ends, which is normal and not logged.
void KernelAnswers::noteReplaced() {
  metrics_->attached.set(0);
  if (++replaced_counts_ != kReplacedCounts) return;
  process_.log.named("plugin/xdp")
      .warning("What is pinned is no longer fed by this process: the sockets answer until a reload");
}

void KernelAnswers::count() {
  const bool looks = ++counts_ended_ % kLookCounts == 0 || replaced_counts_ > 0;
  if (!(looks ? isStillFeeding() : maps().isFeeding())) return noteReplaced();
  replaced_counts_ = 0;
  const bool is_outdated = looks && look();
  if (is_outdated || listeners_are_incomplete_) writeListeners();
  counts_->update(BootClock::now());
  uint64_t left_out = left_out_before_;
  size_t names = 0;
  for (const Fed& fed : fed_) {
    left_out += fed.feed->leftOut();
    names += fed.feed->names();
  }
  metrics_->names.set(static_cast<double>(names));
  metrics_->left_out.add(left_out - metrics_->left_out.value());
}

void KernelAnswers::stop() {
  timer_.reset();
  monitor_.reset();
}

}  // namespace idetcd::directive
