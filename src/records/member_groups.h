// The members of a cluster together: `all.ZONE`, and `_NAME._tcp.ZONE` of those that offer a service. Derived from the
// table's entries, as reverse_index.h is: the entry of such a name, which no source holds, leads to its group. The name
// exists while a member with an address is in it. One writer; readers inside a ReadSection.
#pragma once

#include <map>
#include <set>

#include "dns/name.h"
#include "records/epoch.h"
#include "records/record_table.h"

namespace idetcd::records {

// Immutable; at least one member.
class MemberGroup {
 public:
  struct Families {
    size_t ipv4 = 0;  // how many of the members, also those that are not shown, have an address of it
    size_t ipv6 = 0;
  };
  // `turn`: where the first answer begins.
  MemberGroup(std::vector<const Entry*> members, Families families, uint32_t turn)
      : members_(std::move(members)), families_(families), turn_(turn) {}

  std::span<const Entry* const> members() const { return members_; }
  const Families& families() const { return families_; }
  // A place among them, another one at each call.
  size_t nextTurn() const { return turn_.fetch_add(1, std::memory_order_relaxed) % members_.size(); }
  uint32_t turn() const { return turn_.load(std::memory_order_relaxed); }

  // Null: the entry leads to none.
  static const MemberGroup* of(const Entry& entry);
  // The RDATA of kMemberType by which an entry does so.
  std::array<uint8_t, sizeof(uintptr_t)> pointer() const;

 private:
  const std::vector<const Entry*> members_;
  const Families families_;
  mutable std::atomic<uint32_t> turn_;
};

// The writer's side.
class MemberGroups {
 public:
  // No more fit one answer; of a larger group as many are shown, and others when these go.
  static constexpr size_t kMaxShown = 4096;

  using IsMember = std::function<bool(const dns::Name&)>;
  // `is_member`: of the names in the table; `table` outlives the groups. Of the root as zone there are none, and a
  // member's own name is no group's.
  MemberGroups(EpochDomain& epochs, const dns::Name& zone, IsMember is_member, const RecordTable& table);
  // REQUIRES: no reader looks at the groups.
  ~MemberGroups();
  MemberGroups(const MemberGroups&) = delete;
  MemberGroups& operator=(const MemberGroups&) = delete;

  struct Change {
    dns::Name owner;
    const MemberGroup* old;    // null: the name comes
    const MemberGroup* fresh;  // null: the name goes
  };
  // `fresh` is going to take the place of `old` in the table, an entry of the same name. Either may be null. First, the
  // owners' entries have to lead to what this returns; then the groups of before are given to retire().
  // REQUIRES: the name is a member's.
  std::vector<Change> replace(const Entry* old, const Entry* fresh);
  void retire(const MemberGroup* group);

 private:
  using Owners = std::set<std::string>;  // wire form
  struct Counted {
    std::unique_ptr<const MemberGroup> group;
    size_t members = 0;  // also those that are not shown
    MemberGroup::Families families;
  };
  using Shown = std::vector<const Entry*>;

  Owners servicesOf(const Entry* member) const;
  bool belongs(const Entry& entry, const std::string& owner) const;
  bool isMembersName(const std::string& owner) const;
  void change(const std::string& owner, const Entry* old, const Entry* fresh, std::vector<Change>& changes);
  bool update(const std::string& owner, Counted& counted, const Entry* old, const Entry* fresh, Shown& shown) const;
  void refill(const std::string& owner, const Entry* leaving, Shown& shown) const;

  EpochDomain& epochs_;
  const std::string zone_;  // wire form; so are the next and the keys of `counted_`
  const std::string all_;
  const IsMember is_member_;
  const bool all_is_members_name_;
  const RecordTable& table_;
  std::map<std::string, Counted> counted_;
};

}  // namespace idetcd::records
