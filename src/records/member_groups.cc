#include "records/member_groups.h"

#include "records/member_data.h"

namespace idetcd::records {

namespace {

std::string label(std::string_view text) { return static_cast<char>(text.size()) + std::string(text); }

std::string wireOf(const dns::Name& name) { return {reinterpret_cast<const char*>(name.data()), name.size()}; }

// REQUIRES: no longer than a name may be.
dns::Name nameOf(const std::string& wire) {
  return dns::Name::fromWire({reinterpret_cast<const uint8_t*>(wire.data()), wire.size()});
}

size_t countOf(const Entry* entry, dns::RrType type) {
  return entry != nullptr && entry->find(code(type)).count > 0 ? 1 : 0;
}

// Null: it is in no group. One without an address does not serve now.
const Entry* serving(const Entry* entry) {
  const bool has_address = countOf(entry, dns::RrType::kA) + countOf(entry, dns::RrType::kAaaa) > 0;
  return has_address && entry->isHeld() ? entry : nullptr;
}

}  // namespace

const MemberGroup* MemberGroup::of(const Entry& entry) {
  if (entry.isHeld()) return nullptr;
  const Entry::Rrset rrset = entry.find(code(kMemberType));
  if (rrset.count == 0) return nullptr;
  uintptr_t pointer;
  std::memcpy(&pointer, rrset.wire.last(sizeof(pointer)).data(), sizeof(pointer));
  return reinterpret_cast<const MemberGroup*>(pointer);
}

std::array<uint8_t, sizeof(uintptr_t)> MemberGroup::pointer() const {
  return std::bit_cast<std::array<uint8_t, sizeof(uintptr_t)>>(reinterpret_cast<uintptr_t>(this));
}

MemberGroups::MemberGroups(EpochDomain& epochs, const dns::Name& zone, IsMember is_member, const RecordTable& table)
    : epochs_(epochs),
      zone_(wireOf(zone)),
      all_(label("all") + zone_),
      is_member_(std::move(is_member)),
      all_is_members_name_(is_member_ && all_.size() <= dns::kMaxNameLength && is_member_(nameOf(all_))),
      table_(table) {}

MemberGroups::~MemberGroups() { epochs_.drain(this); }

std::vector<MemberGroups::Change> MemberGroups::replace(const Entry* old, const Entry* fresh) {
  std::vector<Change> changes;
  const bool is_root = zone_.size() == 1;
  old = serving(old);
  fresh = serving(fresh);
  if (is_root || (old == nullptr && fresh == nullptr)) return changes;
  change(all_, old, fresh, changes);
  const Owners before = servicesOf(old);
  const Owners after = servicesOf(fresh);
  for (const std::string& owner : before) change(owner, old, after.contains(owner) ? fresh : nullptr, changes);
  for (const std::string& owner : after) {
    if (!before.contains(owner)) change(owner, nullptr, fresh, changes);
  }
  return changes;
}

MemberGroups::Owners MemberGroups::servicesOf(const Entry* member) const {
  Owners owners;
  if (member == nullptr) return owners;
  member->visitRecords([&](dns::RrType type, uint32_t, Rdata rdata) {
    if (type != kMemberType) return;
    MemberView(rdata).visitServices([&](const MemberView::ServiceView& service) {
      const bool tcp = service.protocol == static_cast<uint8_t>(Service::Protocol::kTcp);
      owners.insert(label("_" + std::string(service.name)) + label(tcp ? "_tcp" : "_udp") + zone_);
    });
  });
  return owners;
}

bool MemberGroups::belongs(const Entry& entry, const std::string& owner) const {
  if (serving(&entry) == nullptr || !is_member_(dns::Name::fromWire(entry.name()))) return false;
  return owner == all_ || servicesOf(&entry).contains(owner);
}

void MemberGroups::change(const std::string& owner, const Entry* old, const Entry* fresh,
                          std::vector<Change>& changes) {
  if (owner.size() > dns::kMaxNameLength || isMembersName(owner)) return;
  Counted& counted = counted_[owner];
  Shown shown;
  if (!update(owner, counted, old, fresh, shown)) return;
  const uint32_t turn = counted.group ? counted.group->turn() : 0;
  auto group = shown.empty() ? nullptr : std::make_unique<const MemberGroup>(std::move(shown), counted.families, turn);
  changes.push_back({nameOf(owner), counted.group.release(), group.get()});
  counted.group = std::move(group);
  if (counted.members == 0) counted_.erase(owner);
}

bool MemberGroups::isMembersName(const std::string& owner) const {
  return owner == all_ ? all_is_members_name_ : is_member_(nameOf(owner));
}

// False: the same are shown. Else `shown` are those from now on.
bool MemberGroups::update(const std::string& owner, Counted& counted, const Entry* old, const Entry* fresh,
                          Shown& shown) const {
  counted.members = counted.members + (fresh != nullptr ? 1 : 0) - (old != nullptr ? 1 : 0);
  const MemberGroup::Families families = counted.families;
  counted.families = {families.ipv4 + countOf(fresh, dns::RrType::kA) - countOf(old, dns::RrType::kA),
                      families.ipv6 + countOf(fresh, dns::RrType::kAaaa) - countOf(old, dns::RrType::kAaaa)};
  const auto before = counted.group ? counted.group->members() : std::span<const Entry* const>();
  const auto place = old != nullptr ? std::ranges::find(before, old) : before.end();
  const bool was_shown = place != before.end();
  const bool is_full = before.size() >= kMaxShown;
  if (!was_shown && (fresh == nullptr || is_full)) return false;
  shown.assign(before.begin(), before.end());
  if (was_shown) shown.erase(shown.begin() + (place - before.begin()));
  if (fresh != nullptr) shown.push_back(fresh);
  const size_t least = counted.members <= kMaxShown ? counted.members : kMaxShown / 2;
  if (shown.size() < least) refill(owner, old, shown);
  return true;
}

// Those that were not shown come in.
void MemberGroups::refill(const std::string& owner, const Entry* leaving, Shown& shown) const {
  const std::set<const Entry*> there(shown.begin(), shown.end());
  table_.forEach([&](const Entry& entry) {
    if (shown.size() >= kMaxShown || &entry == leaving || there.contains(&entry)) return;
    if (belongs(entry, owner)) shown.push_back(&entry);
  });
}

void MemberGroups::retire(const MemberGroup* group) {
  if (group == nullptr) return;
  epochs_.retire([](void*, void* object) { delete static_cast<const MemberGroup*>(object); }, this,
                 const_cast<MemberGroup*>(group));
}

}  // namespace idetcd::records
