#include "records/record_store.h"

#include <algorithm>

#include "records/entry_builder.h"

namespace idetcd::records {

namespace {

std::string keyOf(const dns::Name& name) { return {reinterpret_cast<const char*>(name.data()), name.size()}; }

HostAddresses nameServerAddresses(const std::vector<IpAddress>& addresses) {
  HostAddresses result;
  for (const IpAddress& address : addresses) {
    auto& slot = address.isV4() ? result.ipv4 : result.ipv6;
    if (!slot) slot = address;
  }
  return result;
}

// Whether the record of this type holds the address, or is missing as it is. An RRset of ours is one record, and ends
// with its data.
bool says(const Entry& entry, dns::RrType type, const std::optional<IpAddress>& address) {
  const Entry::Rrset rrset = entry.find(dns::code(type));
  if (rrset.count == 0 || !address) return (rrset.count == 0) == !address;
  return std::ranges::equal(rrset.wire.last(address->size()), std::span(address->data(), address->size()));
}

bool says(const Entry& entry, const HostAddresses& addresses) {
  return says(entry, dns::RrType::kA, addresses.ipv4) && says(entry, dns::RrType::kAaaa, addresses.ipv6);
}

}  // namespace

RecordStore::RecordStore(EpochDomain& epochs, Options options)
    : options_(std::move(options)), apex_(options_.zone, options_.ttl_seconds), table_(epochs, options_.hash_seed) {
  if (options_.zone.isRoot() || apex_.nameServer() == options_.zone) return;
  const HostAddresses addresses = nameServerAddresses(options_.addresses);
  publish(apex_.nameServer(), addresses, 0);
  fixtures_.emplace(keyOf(apex_.nameServer()), Fixture{.name_server = true, .addresses = addresses});
  addBelow(apex_.nameServer());
}

void RecordStore::setAddresses(const std::vector<IpAddress>& addresses) {
  const auto fixture = fixtures_.find(keyOf(apex_.nameServer()));
  if (fixture == fixtures_.end() || !fixture->second.name_server) return;
  fixture->second.addresses = nameServerAddresses(addresses);
  const Entry* shown = table_.findForWrite(apex_.nameServer().wire());
  if (shown == nullptr || shown->mod_revision_ == 0) publish(apex_.nameServer(), fixture->second.addresses, 0);
}

RecordStore::Change RecordStore::put(const dns::Name& owner, const HostAddresses& addresses, int64_t mod_revision) {
  Entry* old = table_.findForWrite(owner.wire());
  const bool from_etcd = old != nullptr && old->mod_revision_ > 0;
  if (from_etcd) {
    const bool seen = old->snapshot_mark_ == snapshot_;
    old->snapshot_mark_ = snapshot_;
    const bool from_other_history = revisions_restarted_ && !seen;  // its revision says nothing
    if (mod_revision <= old->mod_revision_ && !from_other_history) {
      if (mod_revision < old->mod_revision_) return Change::kOlder;
      return says(*old, addresses) ? Change::kUnchanged : Change::kContradiction;
    }
  }
  publish(owner, addresses, mod_revision);
  setRevision(std::max(mod_revision, newest_revision_));  // a snapshot comes in the order of its keys
  if (from_etcd) return Change::kReplaced;
  ++size_;
  addBelow(owner);
  return Change::kAdded;
}

bool RecordStore::holds(const dns::Name& owner) { return revisionOf(owner) > 0; }

int64_t RecordStore::revisionOf(const dns::Name& owner) {
  const Entry* entry = table_.findForWrite(owner.wire());
  return entry != nullptr ? entry->mod_revision_ : 0;
}

int64_t RecordStore::see(const dns::Name& owner) {
  Entry* entry = table_.findForWrite(owner.wire());
  if (entry == nullptr || entry->mod_revision_ == 0) return 0;
  entry->snapshot_mark_ = snapshot_;
  return entry->mod_revision_;
}

bool RecordStore::remove(const dns::Name& owner, int64_t mod_revision) {
  const Entry* old = table_.findForWrite(owner.wire());
  if (old == nullptr || old->mod_revision_ == 0 || old->mod_revision_ > mod_revision) return false;
  withdraw(owner);
  setRevision(std::max(mod_revision, newest_revision_));
  --size_;
  removeBelow(owner);
  return true;
}

void RecordStore::beginSnapshot(bool revisions_restarted) {
  ++snapshot_;
  revisions_restarted_ = revisions_restarted_ || revisions_restarted;
}

RecordStore::Removed RecordStore::endSnapshot(int64_t revision, size_t max_names) {
  std::vector<const Entry*> unseen;  // each is only withdrawn by its own removal below
  table_.forEach([&](const Entry& entry) {
    if (entry.mod_revision_ == 0 || entry.snapshot_mark_ == snapshot_) return;
    if (entry.mod_revision_ > revision && !revisions_restarted_) return;
    unseen.push_back(&entry);
  });
  Removed removed;
  for (const Entry* entry : unseen) {
    const dns::Name name = dns::Name::fromWire(entry->name());
    remove(name, entry->mod_revision_);
    if (removed.names.size() < max_names) removed.names.push_back(name.toString());
  }
  removed.count = unseen.size();
  setRevision(revisions_restarted_ ? revision : std::max(revision, newest_revision_));
  revisions_restarted_ = false;
  return removed;
}

void RecordStore::publish(const dns::Name& owner, const HostAddresses& addresses, int64_t mod_revision) {
  EntryBuilder builder(owner.wire(), mod_revision);
  if (addresses.ipv4) {
    builder.add(dns::RrType::kA, options_.ttl_seconds, {addresses.ipv4->data(), addresses.ipv4->size()});
  }
  if (addresses.ipv6) {
    builder.add(dns::RrType::kAaaa, options_.ttl_seconds, {addresses.ipv6->data(), addresses.ipv6->size()});
  }
  table_.put(builder.build(table_.arena(), snapshot_));
}

// What etcd said of the name goes; what is there besides stays.
void RecordStore::withdraw(const dns::Name& owner) {
  const auto fixture = fixtures_.find(keyOf(owner));
  if (fixture == fixtures_.end()) {
    table_.erase(owner.wire());
  } else {
    publish(owner, fixture->second.addresses, 0);
  }
}

void RecordStore::setRevision(int64_t revision) {
  newest_revision_ = revision;
  serial_.store(static_cast<uint32_t>(revision), std::memory_order_relaxed);
}

// The names strictly between `owner` and the apex.
template <typename Visit>
void RecordStore::visitNonTerminals(const dns::Name& owner, Visit visit) const {
  if (options_.zone.isRoot() || !owner.isWithin(options_.zone) || owner == options_.zone) return;
  for (dns::Name name = owner.parent(); !(name == options_.zone); name = name.parent()) visit(name);
}

void RecordStore::addBelow(const dns::Name& owner) {
  visitNonTerminals(owner, [this](const dns::Name& name) {
    ++fixtures_[keyOf(name)].names_below;
    if (table_.findForWrite(name.wire()) == nullptr) publish(name, {}, 0);
  });
}

void RecordStore::removeBelow(const dns::Name& owner) {
  visitNonTerminals(owner, [this](const dns::Name& name) {
    const auto fixture = fixtures_.find(keyOf(name));
    if (--fixture->second.names_below > 0 || fixture->second.name_server) return;
    fixtures_.erase(fixture);
    if (table_.findForWrite(name.wire())->mod_revision_ == 0) table_.erase(name.wire());
  });
}

}  // namespace idetcd::records
