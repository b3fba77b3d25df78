#include "records/record_store.h"

#include "records/member_data.h"

namespace idetcd::records {

namespace {

using dns::kQuestionPointer;
using dns::put16;
using dns::put32;
using dns::putBytes;
using dns::putRecordHead;

std::string keyOf(const dns::Name& name) { return {reinterpret_cast<const char*>(name.data()), name.size()}; }

dns::Name nameOfKey(const std::string& key) {
  return dns::Name::fromWire({reinterpret_cast<const uint8_t*>(key.data()), key.size()});
}

HostAddresses nameServerAddresses(const std::vector<IpAddress>& addresses) {
  HostAddresses result;
  for (const IpAddress& address : addresses) {
    auto& slot = address.isV4() ? result.ipv4 : result.ipv6;
    if (!slot) slot = address;
  }
  return result;
}

// Names with PTR records: not those that the store itself has at the apex.
const Entry* indexed(const Entry* entry) { return entry != nullptr && entry->isHeld() ? entry : nullptr; }

// In octal: a hexadecimal escape would swallow the 'd' of "dns".
constexpr std::string_view kNameServer = "\2ns\3dns";
constexpr std::string_view kMailbox = "\12hostmaster";
static_assert(kNameServer.size() == 7 && kMailbox.size() == 11);

// Refresh, retry and expire speak to secondaries, which this zone has none of: every server reads the same etcd.
constexpr uint32_t kRefreshSeconds = 7200;
constexpr uint32_t kRetrySeconds = 1800;
constexpr uint32_t kExpireSeconds = 86400;

}  // namespace

ZoneApex::ZoneApex(const dns::Name& zone, uint32_t ttl_seconds) : name_server_(zone) {
  const bool room = zone.size() + kMailbox.size() <= dns::kMaxNameLength;
  const std::string_view name_server = room ? kNameServer : std::string_view();
  const std::string_view mailbox = room ? kMailbox : std::string_view();
  if (room) {
    std::array<uint8_t, dns::kMaxNameLength> wire;
    uint8_t* end = putBytes(wire.data(), kNameServer);
    end = putBytes(end, zone.wire());
    name_server_ = dns::Name::fromWire({wire.data(), end});
  }

  uint8_t* const soa = soa_.wire.data();
  uint8_t* p = putRecordHead(soa, kQuestionPointer, dns::RrType::kSoa, ttl_seconds,
                             name_server.size() + 2 + mailbox.size() + 2 + 20);
  p = putBytes(p, name_server);
  mname_pointer_ = static_cast<uint8_t>(p - soa);
  p = put16(p, kQuestionPointer);
  p = putBytes(p, mailbox);
  rname_pointer_ = static_cast<uint8_t>(p - soa);
  p = put16(p, kQuestionPointer);
  p = put32(p, 0);  // the serial
  p = put32(p, kRefreshSeconds);
  p = put32(p, kRetrySeconds);
  p = put32(p, kExpireSeconds);
  p = put32(p, ttl_seconds);  // of negative answers (RFC 2308 §4)
  soa_.size = static_cast<uint8_t>(p - soa);

  p = putRecordHead(ns_.data(), kQuestionPointer, dns::RrType::kNs, ttl_seconds, name_server.size() + 2);
  p = putBytes(p, name_server);
  p = put16(p, kQuestionPointer);
  ns_size_ = static_cast<uint8_t>(p - ns_.data());
}

RecordStore::RecordStore(EpochDomain& epochs, Options options)
    : options_(std::move(options)),
      apex_(options_.zone, options_.ttl_seconds),
      addresses_(options_.addresses),
      table_(epochs, options_.hash_seed),
      reverse_(epochs, options_.hash_seed, options_.is_member),
      groups_(epochs, options_.zone, options_.is_member, table_) {
  if (options_.zone.isRoot()) return;
  addBelow(options_.zone);
  if (apex_.nameServer() == options_.zone) return;
  SyntheticName& server = synthetic_[keyOf(apex_.nameServer())];
  server.name_server = true;
  server.addresses = nameServerAddresses(options_.addresses);
  publishSynthetic(apex_.nameServer(), server, nullptr);
  addBelow(apex_.nameServer());
}

void RecordStore::setAddresses(const std::vector<IpAddress>& addresses) {
  addresses_ = addresses;
  for (const auto& observer : observers_) observer->onAddresses(addresses);
  const auto synthetic = synthetic_.find(keyOf(apex_.nameServer()));
  if (synthetic == synthetic_.end() || !synthetic->second.name_server) return;
  synthetic->second.addresses = nameServerAddresses(addresses);
  const Entry* shown = table_.findForWrite(apex_.nameServer().wire());
  if (shown == nullptr || !shown->isHeld()) publishSynthetic(apex_.nameServer(), synthetic->second, shown);
}

RecordStore::Change RecordStore::put(const dns::Name& owner, Source source, RrsetSet rrsets, int64_t revision) {
  builder_.begin(owner.wire(), revision, source);
  for (const Rrset& rrset : rrsets) {
    assert(rrset.type != dns::RrType::kCname && rrset.type != dns::RrType::kDname);
    builder_.merge(rrset);
  }
  Entry* old = table_.findForWrite(owner.wire());
  const bool spoke = speaks(owner, old, source);
  using Order = SourceHistory::Order;
  const Order order = spoke ? historyOf(source).compare(*old, revision) : Order::kNewer;
  if (order == Order::kOlder) return Change::kOlder;
  if (order != Order::kNewer && saysTheSame(owner, old, source)) return Change::kUnchanged;
  if (order == Order::kSame) return Change::kContradiction;
  const bool was_held = old != nullptr && old->isHeld();
  const Networks networks = networksOf(old);
  const SourceHistory::Stamp stamp = historyOf(source).stamp(old, revision);
  if (!was_held || old->source() == source) {
    publish(old, stamp);
  } else {
    Parts& parts = partsOf(owner, *old);
    const auto after = std::find_if(parts.begin(), parts.end(), [source](const Part& p) { return p.source >= source; });
    const auto at = spoke ? after : parts.insert(after, Part{source, {}});
    at->rrsets.assign(builder_.rrsets().begin(), builder_.rrsets().end());
    publishSum(owner, *old, stamp);
  }
  setRevision(std::max(revision, newest_revision_));  // a snapshot comes in the order of its keys
  if (!was_held) addBelow(owner);
  publishNetworks(networks, table_.findForWrite(owner.wire()));
  return spoke ? Change::kReplaced : Change::kAdded;
}

bool RecordStore::isMember(const Entry& entry) const {
  return options_.is_member && entry.isHeld() && options_.is_member(dns::Name::fromWire(entry.name()));
}

// The records of a name come or go.
void RecordStore::count(const Entry* old, const Entry* fresh) {
  const auto inEtcd = [](const Entry* entry) { return entry != nullptr && entry->mod_revision_ != 0; };
  size_ = size_ + (inEtcd(fresh) ? 1 : 0) - (inEtcd(old) ? 1 : 0);
  const bool is_there = indexed(fresh) != nullptr;
  if (is_there == (indexed(old) != nullptr) || !isMember(is_there ? *fresh : *old)) return;
  member_count_.store(memberCount() + (is_there ? 1 : size_t{0} - 1), std::memory_order_relaxed);
}

bool RecordStore::holds(const dns::Name& owner) { return revisionOf(owner) > 0; }

int64_t RecordStore::revisionOf(const dns::Name& owner) {
  const Entry* entry = table_.findForWrite(owner.wire());
  return entry != nullptr ? entry->mod_revision_ : 0;
}

int64_t RecordStore::see(const dns::Name& owner) {
  Entry* entry = table_.findForWrite(owner.wire());
  if (entry == nullptr || entry->mod_revision_ == 0) return 0;
  etcd_.see(*entry);
  return entry->mod_revision_;
}

bool RecordStore::remove(const dns::Name& owner, Source source, int64_t revision) {
  const Entry* old = table_.findForWrite(owner.wire());
  if (!speaks(owner, old, source) || historyOf(source).isOlder(*old, revision)) return false;
  const Networks networks = networksOf(old);
  const bool goes = old->source() != Source::kSeveral;
  if (goes) {
    withdraw(owner, old);
  } else {
    std::erase_if(partsOf(owner, *old), [source](const Part& part) { return part.source == source; });
    publishSum(owner, *old, historyOf(source).stamp(old, 0));
  }
  setRevision(std::max(revision, newest_revision_));
  if (goes) removeBelow(owner);
  publishNetworks(networks, table_.findForWrite(owner.wire()));
  return true;
}

std::vector<std::string> RecordStore::endSnapshot(int64_t revision) {
  std::vector<std::pair<std::string, int64_t>> unseen;  // an entry may be replaced by the removal of another
  table_.forEach([&](const Entry& entry) {
    if (!etcd_.hasGone(entry, revision)) return;
    unseen.emplace_back(std::string(entry.name().begin(), entry.name().end()), entry.mod_revision_);
  });
  std::vector<std::string> removed;
  removed.reserve(unseen.size());
  for (const auto& [wire, mod_revision] : unseen) {
    const dns::Name name = nameOfKey(wire);
    remove(name, mod_revision);
    removed.push_back(name.toString());
  }
  const bool restarted = etcd_.endSnapshot() == SourceHistory::Revisions::kRestarted;
  setRevision(restarted ? revision : std::max(revision, newest_revision_));
  return removed;
}

// The part of `source` in a name with several; null if it has none, or is the only one.
const RecordStore::Part* RecordStore::partOf(const dns::Name& owner, const Entry* entry, Source source) const {
  if (entry == nullptr || entry->source() != Source::kSeveral) return nullptr;
  const Parts& parts = parts_.at(keyOf(owner));
  const auto part = std::find_if(parts.begin(), parts.end(), [source](const Part& p) { return p.source == source; });
  return part != parts.end() ? &*part : nullptr;
}

bool RecordStore::speaks(const dns::Name& owner, const Entry* entry, Source source) const {
  return entry != nullptr && (entry->source() == source || partOf(owner, entry, source) != nullptr);
}

// As what is being built. REQUIRES: it speaks of the name.
bool RecordStore::saysTheSame(const dns::Name& owner, const Entry* entry, Source source) const {
  const Part* part = partOf(owner, entry, source);
  return std::ranges::equal(part != nullptr ? std::span<const uint8_t>(part->rrsets) : entry->rrsetBytes(),
                            builder_.rrsets());
}

// Of a name with several sources, or of one that is to have several.
RecordStore::Parts& RecordStore::partsOf(const dns::Name& owner, const Entry& entry) {
  Parts& parts = parts_[keyOf(owner)];
  if (entry.source() != Source::kSeveral) {
    const auto rrsets = entry.rrsetBytes();
    parts.push_back({entry.source(), {rrsets.begin(), rrsets.end()}});
  }
  return parts;
}

// Publishes the sum of a name's parts. Of a single one nothing is remembered but the entry.
void RecordStore::publishSum(const dns::Name& owner, const Entry& old, SourceHistory::Stamp stamp) {
  const auto found = parts_.find(keyOf(owner));
  const Parts& parts = found->second;
  const bool single = parts.size() == 1;
  builder_.begin(owner.wire(), stamp.revision, single ? parts.front().source : Source::kSeveral);
  for (const Part& part : parts) builder_.mergeAll(part.rrsets);
  publish(&old, stamp);
  if (single) parts_.erase(found);
}

// Publishes what was built, in place of `old` (may be null). Groups and index first: the table retires the old entry.
void RecordStore::publish(const Entry* old, SourceHistory::Stamp stamp) {
  Entry* fresh = builder_.build(table_.arena(), stamp.snapshot);
  publishGroups(old, fresh);
  count(old, fresh);
  for (const auto& observer : observers_) observer->onChange(old, fresh);
  reverse_.replace(indexed(old), indexed(fresh));
  table_.put(fresh);
  for (const auto& observer : observers_) observer->onChanged();
}

// The name is not there any more.
void RecordStore::erase(const dns::Name& owner, const Entry* old) {
  publishGroups(old, nullptr);
  count(old, nullptr);
  for (const auto& observer : observers_) observer->onChange(old, nullptr);
  reverse_.replace(indexed(old), nullptr);
  table_.erase(owner.wire());
  for (const auto& observer : observers_) observer->onChanged();
}

// Those that the entry is in, from now on.
void RecordStore::publishGroups(const Entry* old, const Entry* fresh) {
  const bool is_member = (old != nullptr && isMember(*old)) || (fresh != nullptr && isMember(*fresh));
  if (!is_member) return;
  for (const MemberGroups::Change& change : groups_.replace(indexed(old), indexed(fresh))) {
    SyntheticName& name = synthetic_[keyOf(change.owner)];
    name.group = change.fresh;
    const Entry* shown = table_.findForWrite(change.owner.wire());
    if (shown == nullptr || !shown->isHeld()) publishSynthetic(change.owner, name, shown);
    groups_.retire(change.old);
    if (change.old == nullptr) addBelow(change.owner);
    if (change.fresh != nullptr) continue;
    dropUnneeded(change.owner);
    removeBelow(change.owner);
  }
}

void RecordStore::publishSynthetic(const dns::Name& owner, const SyntheticName& name, const Entry* old) {
  builder_.begin(owner.wire(), 0, Source::kNone);
  const auto pointer = name.group != nullptr ? name.group->pointer() : std::array<uint8_t, sizeof(uintptr_t)>{};
  const Rdata group = name.group != nullptr ? Rdata(pointer) : Rdata();
  const HostRrsets rrsets(name.addresses, options_.ttl_seconds, group);
  for (const Rrset& rrset : rrsets.set()) builder_.merge(rrset);
  publish(old, {});
}

// Removes the sources' parts of the name; other data stays.
void RecordStore::withdraw(const dns::Name& owner, const Entry* old) {
  const auto synthetic = synthetic_.find(keyOf(owner));
  if (synthetic != synthetic_.end()) return publishSynthetic(owner, synthetic->second, old);
  erase(owner, old);
}

// A member's names in further networks.
RecordStore::Networks RecordStore::networksOf(const Entry* entry) const {
  if (entry == nullptr) return {};
  std::vector<MemberView::NetworkView> said;
  entry->visitRecords([&said](dns::RrType type, uint32_t, Rdata rdata) {
    const auto add = [&said](const MemberView::NetworkView& network) { said.push_back(network); };
    if (type == kMemberType) MemberView(rdata).visitNetworks(add);
  });
  if (said.empty() || !isMember(*entry)) return {};
  Networks networks;
  for (const MemberView::NetworkView& network : said) {
    const auto name = nameInNetwork(dns::Name::fromWire(entry->name()), options_.zone, network.name);
    if (name) networks.emplace(keyOf(*name), network.addresses);
  }
  return networks;
}

// They follow the entry of its own name: `before` are those of the one that it replaces; null: the name is not there.
void RecordStore::publishNetworks(const Networks& before, const Entry* fresh) {
  const Networks after = networksOf(fresh);
  for (const auto& [wire, addresses] : before) {
    if (!after.contains(wire)) remove(nameOfKey(wire), Source::kNetwork);
  }
  for (const auto& [wire, addresses] : after) {
    put(nameOfKey(wire), Source::kNetwork, HostRrsets(addresses, options_.ttl_seconds).set());
  }
}

void RecordStore::setRevision(int64_t revision) {
  newest_revision_ = revision;
  if (static_cast<uint32_t>(revision) != serial()) {
    for (const auto& observer : observers_) observer->onSerial(static_cast<uint32_t>(revision));
  }
  serial_.store(static_cast<uint32_t>(revision), std::memory_order_relaxed);
}

void RecordStore::addObserver(std::shared_ptr<RecordObserver> observer) {
  observer->onAddresses(addresses_);
  observer->onFreshness(freshness_.load(std::memory_order_relaxed), freshUntil());
  observers_.push_back(std::move(observer));
}

void RecordStore::removeObserver(const RecordObserver* observer) {
  std::erase_if(observers_, [observer](const auto& one) { return one.get() == observer; });
}

// The names strictly between `owner` and the apex, or the root if it is not below the apex.
template <typename Visit>
void RecordStore::visitNonTerminals(const dns::Name& owner, Visit visit) const {
  if (owner.isRoot()) return;
  const dns::Name end = owner.isWithin(options_.zone) && !(owner == options_.zone) ? options_.zone : dns::Name();
  for (dns::Name name = owner.parent(); !(name == end); name = name.parent()) visit(name);
}

void RecordStore::addBelow(const dns::Name& owner) {
  visitNonTerminals(owner, [this](const dns::Name& name) {
    SyntheticName& synthetic = synthetic_[keyOf(name)];
    if (synthetic.names_below++ > 0) return;  // it is there
    if (table_.findForWrite(name.wire()) == nullptr) publishSynthetic(name, synthetic, nullptr);
  });
}

void RecordStore::removeBelow(const dns::Name& owner) {
  visitNonTerminals(owner, [this](const dns::Name& name) {
    --synthetic_.at(keyOf(name)).names_below;
    dropUnneeded(name);
  });
}

void RecordStore::dropUnneeded(const dns::Name& owner) {
  const auto synthetic = synthetic_.find(keyOf(owner));
  if (synthetic->second.isNeeded()) return;
  synthetic_.erase(synthetic);
  const Entry* entry = table_.findForWrite(owner.wire());
  if (!entry->isHeld()) erase(owner, entry);
}

}  // namespace idetcd::records
