#include "directive/secondary/secondary_zones.h"

#include <set>

#include "zones/zone_journal.h"

namespace idetcd::directive {

namespace {

constexpr std::chrono::seconds kFirstWait{1};
constexpr std::chrono::seconds kLongestWait{10};
constexpr std::chrono::hours kWithoutChanges{24};
constexpr std::chrono::seconds kNotifiedLead{10};  // before zones of which no primary has notified: these have their turn, too
constexpr std::chrono::seconds kNotifiedWait{1};  // since the last question: anyone may send a NOTIFY in a primary's name
constexpr std::chrono::seconds kShortest{1};  // refresh and retry
constexpr std::chrono::hours kLongest{24};
constexpr uint32_t kJitterPart = 8;

KeptCopies::Keys keysOf(const dns::Name& zone, const SecondarySettings& settings) {
  std::string with_primaries = zone.toString();
  for (const SocketAddress& primary : settings.primaries) with_primaries += " " + primary.toString();
  if (!settings.key.empty()) with_primaries += " " + settings.key;
  return {with_primaries, zone.toString() + " of " + settings.block};
}

// The numbers of a zone's SOA (RFC 1035 §3.3.13).
struct SoaTimes {
  explicit SoaTimes(const zones::Zone& zone) {
    const auto soa = zone.apex().find(dns::code(dns::RrType::kSoa)).wire;
    const uint8_t* const numbers = &soa[soa.size() - 20];
    const auto bounded = [](uint32_t seconds) {
      return std::clamp<std::chrono::seconds>(std::chrono::seconds(seconds), kShortest, kLongest);
    };
    refresh = bounded(dns::load32(numbers + 4));
    retry = bounded(dns::load32(numbers + 8));
    // At least until a primary that is well has been asked again.
    expire = std::max(std::chrono::seconds(dns::load32(numbers + 12)), refresh + retry);
  }
  std::chrono::seconds refresh;
  std::chrono::seconds retry;
  std::chrono::seconds expire;
};

}  // namespace

KeptCopies::Copy KeptCopies::find(const Keys& keys) const {
  const std::lock_guard lock(mutex_);
  for (const std::string& key : keys) {
    const auto found = copies_.find(key);
    if (found == copies_.end()) continue;
    if (auto zone = found->second.zone.lock())
      return {std::move(zone), found->second.confirmed_at, found->second.of_others || key != keys.front()};
  }
  return {};
}

void KeptCopies::put(const Keys& keys, const Copy& copy) {
  const std::lock_guard lock(mutex_);
  for (const std::string& key : keys) copies_[key] = {copy.zone, copy.confirmed_at, copy.of_others};
}

SecondaryPlaces::Place SecondaryPlaces::place(size_t& count, size_t most) {
  const std::lock_guard lock(state_->mutex);
  if (count >= most) return nullptr;
  ++count;
  return {&count, [state = state_, &count](const void*) {
            const std::lock_guard free(state->mutex);
            --count;
          }};
}

SecondaryPlaces::Place SecondaryPlaces::enterTransfer() { return place(state_->transfers, kMost); }

// References into the map stay: nothing is erased.
SecondaryPlaces::Place SecondaryPlaces::enter(const SocketAddress& primary) {
  std::unique_lock lock(state_->mutex);
  size_t& asked = state_->primaries[primary].asked;
  lock.unlock();
  return place(asked, kOfPrimary);
}

void SecondaryPlaces::note(const SocketAddress& primary, bool answers) {
  const std::lock_guard lock(state_->mutex);
  state_->primaries[primary].silent_since = answers ? std::nullopt : std::optional(BootClock::now());
}

bool SecondaryPlaces::isSilent(const SocketAddress& primary) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->primaries.find(primary);
  if (found == state_->primaries.end() || !found->second.silent_since) return false;
  return found->second.asked > 0 || BootClock::now() - *found->second.silent_since < kSilent;
}

class SecondaryZones::Copy : public std::enable_shared_from_this<SecondaryZones::Copy> {
 public:
  Copy(SecondaryZones& all, const dns::Name& zone, const SecondarySettings& settings)
      : all_(all),
        context_(all.context_),
        random_(all.random_),
        name_(zone),
        settings_(settings),
        key_(settings.key.empty() ? nullptr : context_.key_of(settings.key)),
        counters_(context_.metrics.with("zone", zone.toString())),
        strand_(context_.executor->makeStrand()),
        kept_(context_.kept.find(keysOf(zone, settings))) {
    if (!kept_.zone) return;
    if (!kept_.of_others) context_.kept.put(keysOf(zone, settings), kept_);
    counters_.serial.set(kept_.zone->serial());
    // The last configuration may have taken it over after putKept().
    context_.set->put({name_, settings_.fallthrough, kept_.zone});
  }

  const dns::Name& name() const { return name_; }
  bool isRunning() const { return is_building_ || transfer_ != nullptr; }
  bool isDue(BootClock::time_point now) const { return !isRunning() && now >= next_; }
  // Of those that are due, the least is next.
  BootClock::time_point rank() const { return is_urgent_ ? next_ - kNotifiedLead : next_; }

  void onNotify(const IpAddress& from) {
    const auto is_from = [&from](const SocketAddress& primary) { return primary.ip.unmapped() == from.unmapped(); };
    const auto primary = std::ranges::find_if(settings_.primaries, is_from);
    if (primary == settings_.primaries.end()) return;
    notified_by_ = static_cast<size_t>(primary - settings_.primaries.begin());
    is_urgent_ = true;
    next_ = std::min(next_, begun_at_ + kNotifiedWait);
  }

  // Whom the next turn asks, and whether for the zone itself, not for its serial. REQUIRES: isDue().
  const SocketAddress& choosePrimary() {
    if (!is_newer_) primary_ = nextPrimary();
    return primary();
  }
  bool wantsTransfer() const { return is_newer_; }

  // `transfer_place`: null unless it wantsTransfer().
  void begin(SecondaryPlaces::Place primary_place, SecondaryPlaces::Place transfer_place) {
    primary_place_ = std::move(primary_place);
    transfer_place_ = std::move(transfer_place);
    if (std::exchange(is_newer_, false)) return askForZone();
    begun_at_ = BootClock::now();
    asked_[primary_] = true;
    if (notified_by_ == primary_) notified_by_.reset();
    ask(dns::RrType::kSoa);
  }

  void checkExpiry(BootClock::time_point now) {
    if (!kept_.zone || is_expired_ || now - kept_.confirmed_at < SoaTimes(*kept_.zone).expire) return;
    is_expired_ = true;
    next_ = std::min(next_, now);
    context_.log.warning("{} has expired: no primary has answered for {} s", name_.toString(),
                         SoaTimes(*kept_.zone).expire.count());
    context_.set->put({name_, settings_.fallthrough, nullptr});
  }

 private:
  const SocketAddress& primary() const { return settings_.primaries[primary_]; }
  // The copy, if it is of these primaries; else null.
  std::shared_ptr<const zones::Zone> ownZone() const { return kept_.of_others ? nullptr : kept_.zone; }

  using Built = Result<std::shared_ptr<const zones::Zone>>;

  // `changed`: by the messages; null: they have all of the zone. `before`: whose changes are kept; null: none are.
  static Built build(const dns::Name& name, HashSeed seed, const zones::TransferReader::Messages& messages,
                     const std::string& from, const std::shared_ptr<const zones::Zone>& changed,
                     const std::shared_ptr<const zones::Zone>& before, const std::shared_ptr<Executor>& executor) {
    auto zone = zones::buildZone(name, seed, messages, from, changed);
    if (!zone) return tl::unexpected(zone.error());
    if (before) zones::keepChanges(**zone, before);
    return freedOn<const zones::Zone>(executor, std::move(*zone));
  }

  // Of those that have not been asked yet: who has notified, then who is not silent. REQUIRES: there is one.
  size_t nextPrimary() const {
    if (notified_by_ && !asked_[*notified_by_]) return *notified_by_;
    std::optional<size_t> silent;
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (asked_[i]) continue;
      if (!context_.places.isSilent(settings_.primaries[i])) return i;
      if (!silent) silent = i;
    }
    return *silent;
  }

  void askForZone() {
    changes_unanswered_ = false;
    const bool whole = !ownZone() || BootClock::now() < whole_until_[primary_];
    ask(whole ? dns::RrType::kAxfr : dns::RrType::kIxfr);
  }

  void ask(dns::RrType type) {
    std::optional<uint32_t> serial;
    if (type == dns::RrType::kIxfr) serial = kept_.zone->serial();
    transfer_ = std::make_unique<IncomingTransfer>(
        context_.loop, random_, context_.executor, IncomingTransfer::Question{name_, type, serial, primary(), key_},
        [weak = weak_from_this()](Result<zones::TransferReader::Messages> result) {
          if (const auto copy = weak.lock()) copy->onAnswer(std::move(result));
        });
    transfer_->start();
  }

  void onAnswer(Result<zones::TransferReader::Messages> result) {
    const auto transfer = std::exchange(transfer_, nullptr);
    if (transfer->type() != dns::RrType::kSoa) return onTransferred(transfer->answer(), std::move(result));
    context_.places.note(primary(), transfer->answer() != IncomingTransfer::Answer::kNone);
    if (!result) return onFailed(result.error().message);
    const auto own = ownZone();
    if (own && !zones::isLaterSerial(transfer->serial(), own->serial())) return onConfirmed(own);
    is_newer_ = true;
    leave();
  }

  void onTransferred(IncomingTransfer::Answer answer, Result<zones::TransferReader::Messages> result) {
    using Answer = IncomingTransfer::Answer;
    if (answer == Answer::kNone) changes_unanswered_ = true;
    if (!result && (answer == Answer::kNone || answer == Answer::kNoChanges)) return askForAll(result.error().message);
    if (!result && answer == Answer::kChanges) whole_until_[primary_] = BootClock::time_point::max();  // they broke off
    if (!result) return onFailed(result.error().message);
    const auto changed = answer == Answer::kChanges ? kept_.zone : nullptr;
    const auto before = context_.keeps_changes ? ownZone() : nullptr;
    is_building_ = true;
    std::string from = fmt::format("{} from {}", name_.toString(), primary().toString());
    const bool taken = strand_->submit([weak = weak_from_this(), name = name_, from = std::move(from),
                                        changed, before, set = context_.set, executor = context_.executor,
                                        &loop = context_.loop, messages = std::move(*result)] {
      auto zone = build(name, set->seed(), messages, from, changed, before, executor);
      loop.post([weak, zone = std::move(zone), of_changes = changed != nullptr] {
        if (const auto copy = weak.lock()) copy->onBuilt(zone, of_changes);
      });
    });
    if (taken) return;
    is_building_ = false;
    onFailed("there is no thread for it");
  }

  void onBuilt(const Built& zone, bool of_changes) {
    is_building_ = false;
    if (!zone) return of_changes ? askForAll(zone.error().message) : onFailed(zone.error().message);
    // Behind one address there may be several servers.
    if (const auto own = ownZone(); own && !zones::isLaterSerial((*zone)->serial(), own->serial()))
      return onFailed(fmt::format("the zone that it has sent has serial {}, and {} is here", (*zone)->serial(), own->serial()));
    noteWhole();
    counters_.transfers.add();
    counters_.serial.set((*zone)->serial());
    context_.log.info("{} from {}: serial {}, {} records of {} names", name_.toString(), primary().toString(),
                      (*zone)->serial(), (*zone)->recordCount(), (*zone)->names());
    onConfirmed(*zone);
  }

  void onConfirmed(const std::shared_ptr<const zones::Zone>& zone) {
    const bool is_new = zone != kept_.zone || is_expired_;
    is_expired_ = false;
    kept_ = {zone, BootClock::now()};
    context_.kept.put(keysOf(name_, settings_), kept_);
    if (is_new) context_.set->put({name_, settings_.fallthrough, zone});
    warned_.clear();
    waitFor(SoaTimes(*zone).refresh);
  }

  // A primary that has not the changes, or others than fit, has the zone.
  void askForAll(const std::string& why) {
    context_.log.info("{} is asked for as a whole, from {}: {}", name_.toString(), primary().toString(), why);
    ask(dns::RrType::kAxfr);
  }

  // After the zone has come into use. Who has not answered for changes, but has the zone, is not waited for at each serial.
  void noteWhole() {
    BootClock::time_point& until = whole_until_[primary_];
    if (changes_unanswered_) until = BootClock::now() + kWithoutChanges;
    if (until == BootClock::time_point::max()) until = {};
  }

  void onFailed(const std::string& why) {
    if (warned_.insert(why + " from " + primary().toString()).second)
      context_.log.warning("{} cannot be had from {}: {}", name_.toString(), primary().toString(), why);
    if (std::ranges::find(asked_, false) != asked_.end()) return leave();
    counters_.failures.add();
    if (kept_.zone) return waitFor(SoaTimes(*kept_.zone).retry);
    waitFor(wait_);
    wait_ = std::min(2 * wait_, kLongestWait);
  }

  // A little less, so that not all zones are asked for at once.
  void waitFor(std::chrono::seconds time) {
    const auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(time);
    const std::chrono::milliseconds less(random_.below(static_cast<uint32_t>(longest.count()) / kJitterPart + 1));
    is_urgent_ = notified_by_.has_value();
    next_ = is_urgent_ ? begun_at_ + kNotifiedWait : BootClock::now() + longest - less;
    asked_.assign(asked_.size(), false);
    leave();
  }

  void leave() {
    primary_place_.reset();
    transfer_place_.reset();
    all_.lookSoon();
  }

  SecondaryZones& all_;
  const Context& context_;
  SecureRandom& random_;
  const dns::Name name_;
  const SecondarySettings settings_;
  const tsig::Key* const key_;
  SecondaryCounters counters_;
  const std::shared_ptr<Executor::Strand> strand_;
  KeptCopies::Copy kept_;
  std::optional<size_t> notified_by_{};  // the primary, until it is asked
  bool is_urgent_ = false;               // a primary has notified, and the zone has not been asked for to the end
  size_t primary_ = 0;                   // that is asked
  std::vector<bool> asked_ = std::vector<bool>(settings_.primaries.size());  // since the last waitFor()
  bool is_newer_ = false;                // the zone of the primary: it is to be transferred
  BootClock::time_point begun_at_{};     // the last question for the serial
  SecondaryPlaces::Place primary_place_;
  SecondaryPlaces::Place transfer_place_;
  std::unique_ptr<IncomingTransfer> transfer_;
  bool changes_unanswered_ = false;  // by the primary that is asked
  // Of each primary: so long it is asked for the zone, not for changes; the end of time: until it has sent the zone.
  std::vector<BootClock::time_point> whole_until_ = std::vector<BootClock::time_point>(settings_.primaries.size());
  bool is_building_ = false;
  bool is_expired_ = false;  // and answered with SERVFAIL
  std::set<std::string> warned_;
  std::chrono::seconds wait_ = kFirstWait;
  BootClock::time_point next_{};
};

SecondaryZones::SecondaryZones(Context context, const std::vector<SecondarySettings>& settings)
    : context_(std::move(context)), timer_(context_.loop, [this] { onTimer(); }) {
  for (const SecondarySettings& one : settings) {
    for (const dns::Name& zone : one.zones) copies_.push_back(std::make_shared<Copy>(*this, zone, one));
  }
  timer_.start(std::chrono::milliseconds(0), kTick);
}

SecondaryZones::~SecondaryZones() = default;

void SecondaryZones::putKept(const SecondarySettings& settings, const KeptCopies& kept, ZoneSet& set) {
  for (const dns::Name& zone : settings.zones)
    set.put({zone, settings.fallthrough, kept.find(keysOf(zone, settings)).zone});
}

void SecondaryZones::onNotify(const dns::Name& zone, const IpAddress& from) {
  for (const auto& copy : copies_) {
    if (copy->name() == zone) copy->onNotify(from);
  }
}

void SecondaryZones::onTimer() {
  is_soon_ = false;
  const auto now = BootClock::now();
  std::vector<Copy*> due;
  for (const auto& copy : copies_) {
    copy->checkExpiry(now);
    if (copy->isDue(now)) due.push_back(copy.get());
  }
  std::ranges::sort(due, {}, &Copy::rank);
  for (Copy* copy : due) {
    auto primary_place = context_.places.enter(copy->choosePrimary());
    if (!primary_place) continue;
    auto transfer_place = copy->wantsTransfer() ? context_.places.enterTransfer() : nullptr;
    if (copy->wantsTransfer() && !transfer_place) continue;
    copy->begin(std::move(primary_place), std::move(transfer_place));
  }
}

void SecondaryZones::lookSoon() {
  if (!std::exchange(is_soon_, true)) timer_.start(kSoon, kTick);
}

}  // namespace idetcd::directive
