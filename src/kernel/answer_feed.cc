#include "kernel/answer_feed.h"

#include <arpa/inet.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "base/hash.h"
#include "dns/name.h"

namespace idetcd::kernel {

using dns::RrType;
using records::Entry;

namespace {

template <typename T>
void publish(T& field, T value) {
  std::atomic_ref(field).store(value, std::memory_order_release);
}

// Nanoseconds of the kernel's boot clock, with which the program compares.
int64_t kernelTime(BootClock::time_point when) { return (when.time_since_epoch() - bootClockOffset()).count(); }

// 0: no address.
uint8_t flagOf(RrType type, records::Rdata rdata) {
  if (type == RrType::kA && rdata.size() == 4) return kHasA;
  return type == RrType::kAaaa && rdata.size() == 16 ? kHasAaaa : 0;
}

// While it lives, what is not found in the zone may be there all the same (Zone::changes). A process that was killed
// meanwhile leaves an odd number, which the next one takes over. One at a time.
class Writing {
 public:
  explicit Writing(Zone& zone) : zone_(zone), begun_(zone.changes | 1) {
    std::atomic_ref(zone_.changes).store(begun_, std::memory_order_seq_cst);
  }
  ~Writing() { std::atomic_ref(zone_.changes).store(begun_ + 1, std::memory_order_release); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  Zone& zone_;
  const __u32 begun_;
};

// The value of an entry, but for its check. What is more than an A and an AAAA record is for the process to answer.
Name valueOf(const Entry& entry, size_t zone, uint16_t generation) {
  Name name{};
  name.generation = generation;
  name.zone = static_cast<uint8_t>(zone);
  if (entry.isHeld()) name.flags |= kHeld;
  entry.visitRecords([&](RrType type, uint32_t ttl_seconds, records::Rdata rdata) {
    if (type == records::kMemberType && entry.isHeld()) {
      name.flags |= kHasText;
      return;
    }
    const uint8_t flag = flagOf(type, rdata);
    const bool is_first = (name.flags & (kHasA | kHasAaaa)) == 0;
    const bool fits = flag != 0 && (name.flags & flag) == 0 && (is_first || name.ttl == htonl(ttl_seconds));
    if (!fits) {
      name.flags |= kElsewhere;
      return;
    }
    name.flags |= flag;
    name.ttl = htonl(ttl_seconds);
    std::memcpy(flag == kHasA ? name.ipv4 : name.ipv6, rdata.data(), rdata.size());
  });
  return name;
}

}  // namespace

bool AnswerFeed::isServable(const records::RecordStore& store) {
  return !store.zone().isRoot() && store.zone().size() <= kZoneName && store.apex().soa(0, 0).size == kSoaSize;
}

size_t ZoneIdentity::matches(const Zone& zone) const {
  if (zone.identity != names) return 0;
  const auto is_shared = [&zone](uint32_t endpoint) {
    return endpoint != 0 && std::ranges::find(zone.endpoints, endpoint) != std::end(zone.endpoints);
  };
  const auto shared = static_cast<size_t>(std::ranges::count_if(endpoints, is_shared));
  const bool has_none = std::ranges::all_of(endpoints, [](uint32_t endpoint) { return endpoint == 0; });
  return has_none ? 1 : shared;
}

AnswerFeed::AnswerFeed(std::shared_ptr<Maps> maps, size_t zone, const ZoneIdentity& identity,
                       const records::RecordStore& store)
    : maps_(std::move(maps)), zone_(zone), identity_(identity), store_(store) {
  is_prepared_ = prepare();
}

// Empties the place, unless it is to continue. False: that could not be done now. What is no longer true is never
// continued with: it answers nothing, and may have been left by any process.
bool AnswerFeed::prepare() {
  if (!maps_->isFeeding()) return true;
  Zone& place = this->place();
  const auto now = static_cast<__u64>(kernelTime(BootClock::now()));
  const bool continues =
      identity_.matches(place) > 0 && place.name_size == store_.zone().size() && place.fresh_until > now;
  if (continues) return true;
  if (!maps_->clear(zone_)) return false;
  const auto soa = store_.apex().soa(0, 0);
  std::memcpy(place.soa, soa.wire.data(), sizeof(place.soa));
  std::ranges::copy(store_.zone().wire(), place.name);
  std::ranges::copy(identity_.endpoints, place.endpoints);
  place.name_size = static_cast<uint16_t>(store_.zone().size());
  publish<__u64>(place.identity, identity_.names);
  return true;
}

AnswerFeed::~AnswerFeed() = default;

bool AnswerFeed::isBelowZone(const Entry& entry) const {
  return entry.name().size() > store_.zone().size() && dns::isNameWithin(entry.name(), store_.zone());
}

// REQUIRES: isBelowZone(entry).
std::span<const uint8_t> AnswerFeed::labelsOf(const Entry& entry) const {
  assert(isBelowZone(entry));
  return entry.name().first(entry.name().size() - store_.zone().size());
}

NameKey AnswerFeed::keyOf(const Entry& entry) const { return maps_->keyOf(zone_, labelsOf(entry)); }

NameKey AnswerFeed::keyOf(const IpAddress& address) const {
  return maps_->keyOf(zone_, dns::reverseName(address).wire());
}

// Pointers to what changes are passed until the change is there, since they may be several names'.
void AnswerFeed::onChange(const Entry* old, const Entry* fresh) {
  const std::lock_guard lock(mutex_);
  const bool had_no_room = left_out_names_.erase(old) > 0;
  if (!follows()) return;
  const Writing writing(place());
  for (const Entry* entry : {old, fresh}) {
    if (entry != nullptr && entry->isHeld()) noteAddresses(*entry);
  }
  // A name that an address has in the tree of reverse names is answered in place of the pointer.
  if (const auto address = dns::addressOfReverseName((fresh != nullptr ? fresh : old)->name())) noteAddress(*address);
  for (const IpAddress& address : changed_) erasePointer(address);
  if (fresh != nullptr && isBelowZone(*fresh)) {
    put(*fresh, old != nullptr && !had_no_room);
  } else if (old != nullptr && isBelowZone(*old) && !had_no_room) {
    erase(*old);
  }
  if (had_no_room) noteWhetherWhole();
}

void AnswerFeed::onChanged() {
  const std::lock_guard lock(mutex_);
  if (follows()) {
    for (const IpAddress& address : changed_) putPointer(address);
  }
  changed_.clear();
}

void AnswerFeed::noteAddresses(const Entry& entry) {
  records::visitAddresses(entry, [this](const IpAddress& address, uint32_t) { noteAddress(address); });
}

void AnswerFeed::noteAddress(const IpAddress& address) {
  if (std::ranges::find(changed_, address) == changed_.end()) changed_.push_back(address);
}

// `replaces`: this process has put the name before.
void AnswerFeed::put(const Entry& entry, bool replaces) {
  if (putName(entry)) {
    if (!replaces) names_.store(names() + 1, std::memory_order_relaxed);
    return;
  }
  // First of all: what is not there must not seem not to exist.
  publish<__u32>(place().is_whole, 0);
  maps_->names().erase(keyOf(entry));  // of a process before
  if (replaces) names_.store(names() - 1, std::memory_order_relaxed);
  left_out_names_.insert(&entry);
  noteLeftOut();
}

// False: it has no room.
bool AnswerFeed::putName(const Entry& entry) {
  const NameKey key = keyOf(entry);
  return maps_->names().put(key, sealed(key, valueOf(entry, zone_, maps_->generation()))) == PutOutcome::kDone;
}

// REQUIRES: this process has put the name.
void AnswerFeed::erase(const Entry& entry) {
  names_.store(names() - 1, std::memory_order_relaxed);
  if (maps_->names().erase(keyOf(entry))) maps_->noteDeparture();
}

void AnswerFeed::erasePointer(const IpAddress& address) {
  if (maps_->pointers().erase(keyOf(address))) maps_->noteDeparture();
}

// What had no room, as long as there is some.
void AnswerFeed::takeIn() {
  departures_ = maps_->departures();
  while (!left_out_names_.empty() && putName(**left_out_names_.begin())) {
    left_out_names_.erase(left_out_names_.begin());
    names_.store(names() + 1, std::memory_order_relaxed);
  }
  noteWhetherWhole();
  while (!left_out_pointers_.empty()) {
    const IpAddress address = *left_out_pointers_.begin();
    putPointer(address);
    if (left_out_pointers_.contains(address)) return;
  }
}

void AnswerFeed::putPointers(const Entry& entry) {
  if (!entry.isHeld()) return;
  records::visitAddresses(entry, [this](const IpAddress& address, uint32_t) { putPointer(address); });
}

void AnswerFeed::putPointer(const IpAddress& address) {
  const auto pointer = pointerOf(address);
  const NameKey key = keyOf(address);
  if (!pointer || maps_->pointers().put(key, sealed(key, *pointer)) != PutOutcome::kFull) {
    left_out_pointers_.erase(address);
  } else if (left_out_pointers_.insert(address).second) {
    noteLeftOut();
  }
}

// The kernel answers one name of an address; the process answers several, this node's own, and names with own records.
std::optional<Pointer> AnswerFeed::pointerOf(const IpAddress& address) const {
  if (hasReverseName(address)) return std::nullopt;
  const auto found = store_.reverse().find(address);
  if (found.entries().size() != 1 || std::ranges::find(own_, address) != own_.end()) return std::nullopt;
  const Entry& entry = *found.entries().front();
  if (!hasPointer(entry)) return std::nullopt;
  uint32_t lowest = std::numeric_limits<uint32_t>::max();
  records::visitAddresses(entry, [&](const IpAddress& other, uint32_t ttl_seconds) {
    if (other == address) lowest = std::min(lowest, ttl_seconds);
  });
  if (lowest != store_.ttlSeconds()) return std::nullopt;
  const auto labels = labelsOf(entry);
  Pointer pointer{};
  std::ranges::copy(labels, pointer.labels);
  pointer.generation = maps_->generation();
  pointer.zone = static_cast<uint8_t>(zone_);
  pointer.labels_size = static_cast<uint8_t>(labels.size());
  return pointer;
}

bool AnswerFeed::hasReverseName(const IpAddress& address) const {
  const dns::Name name = dns::reverseName(address);
  const auto& table = store_.table();
  return table.find(hashBytes(name.wire().data(), name.size(), table.seed()), name.wire()) != nullptr;
}

// Whether a PTR record with this name has the form that the map has room for.
bool AnswerFeed::hasPointer(const Entry& entry) const {
  return isBelowZone(entry) && labelsOf(entry).size() <= kPointerLabels;
}

void AnswerFeed::onSerial(uint32_t serial) {
  const std::lock_guard lock(mutex_);
  if (follows()) publish<__u32>(place().serial, serial);
}

void AnswerFeed::onFreshness(records::Freshness, BootClock::time_point deadline) {
  const std::lock_guard lock(mutex_);
  if (!mayWrite()) return;
  if (!is_prepared_) is_prepared_ = prepare();
  if (!is_prepared_) return;
  if (!follows_ && deadline > BootClock::time_point()) beginToFollow();
  if (!follows_) return;
  if (!(left_out_names_.empty() && left_out_pointers_.empty()) && departures_ != maps_->departures()) {
    const Writing writing(place());
    takeIn();
  }
  // 0 is that of a store that is not fresh, in each namespace.
  const bool is_fresh = deadline > BootClock::time_point();
  publish<__u64>(place().fresh_until, is_fresh ? static_cast<__u64>(kernelTime(deadline)) : 0);
}

// Old entries may fill the maps, so what did not fit is tried again after the sweep. If old ones may be left, the
// zone stays as it is until its deadline, and the next one tries again.
void AnswerFeed::beginToFollow() {
  const Writing writing(place());
  names_.store(0, std::memory_order_relaxed);
  left_out_names_.clear();
  left_out_pointers_.clear();
  publish<__u32>(place().pointer_ttl, htonl(store_.ttlSeconds()));
  store_.table().forEach([this](const Entry& entry) {
    if (isBelowZone(entry)) put(entry, false);
    putPointers(entry);
  });
  if (!maps_->sweep(zone_, maps_->generation()).is_complete) return;
  takeIn();
  publish<__u32>(place().serial, store_.serial());
  replaceSoa();
  for (size_t i = 0; i < identity_.endpoints.size(); ++i) publish<__u32>(place().endpoints[i], identity_.endpoints[i]);
  follows_ = true;
  noteWhetherWhole();
}

// That of the process before has another TTL. It cannot be written at once, so nothing is answered meanwhile, and
// programs that are reading it have ended before it changes.
void AnswerFeed::replaceSoa() {
  const auto soa = store_.apex().soa(0, 0);
  if (std::memcmp(place().soa, soa.wire.data(), sizeof(place().soa)) == 0) return;
  publish<__u16>(place().name_size, 0);
  // Waits as synchronize_rcu() does; where the kernel has it not, a program takes some microseconds at most.
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::memcpy(place().soa, soa.wire.data(), sizeof(place().soa));
  publish<__u16>(place().name_size, static_cast<__u16>(store_.zone().size()));
}

void AnswerFeed::noteWhetherWhole() {
  if (follows_) publish<__u32>(place().is_whole, left_out_names_.empty() ? 1 : 0);
}

void AnswerFeed::onAddresses(const std::vector<IpAddress>& addresses) {
  const std::lock_guard lock(mutex_);
  const std::vector<IpAddress> before = std::exchange(own_, addresses);
  if (!follows()) return;
  for (const IpAddress& address : own_) erasePointer(address);
  for (const IpAddress& address : before) putPointer(address);
}

void AnswerFeed::close() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(closed_, true) || !maps_->isFeeding()) return;
  maps_->clear(zone_);
}

}  // namespace idetcd::kernel
