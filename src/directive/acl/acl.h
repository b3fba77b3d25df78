// `acl`: which clients may ask what. Rules are compiled into sorted ranges of addresses: one binary search a query.
// Immutable; any thread; no allocation but in constructor and parsers. The first rule, in the order of the file, that
// matches the client's address and the query's type decides; without one the next rule set does; in the end the query
// is allowed. An unreadable message has no type: rules that name types do not match it.
#pragma once

#include <compare>

#include "base/ip_address.h"
#include "base/result.h"
#include "dns/name.h"
#include "dns/query.h"
#include "resolve/handler.h"

namespace idetcd::directive {

class Acl final : public resolve::Gate {
 public:
  using Action = AclVerdict;

  using Network = IpNetwork;

  struct Rule {
    Action action = Action::kAllow;
    std::vector<uint16_t> types;    // empty: every type
    std::vector<Network> networks;  // empty: every address
  };

  // One `acl` directive.
  struct RuleSet {
    std::vector<dns::Name> zones;  // the server block's where the directive names none
    std::vector<Rule> rules;
  };

  explicit Acl(const std::vector<RuleSet>& rule_sets);

  // An IPv4-mapped IPv6 address counts as the IPv4 address, and no address at all is blocked.
  AclVerdict judge(const std::optional<IpAddress>& source, std::span<const uint8_t> name,
                std::optional<uint16_t> type) const override;

 private:
  // An address as a number.
  struct Key128 {
    uint64_t high = 0;
    uint64_t low = 0;
    auto operator<=>(const Key128&) const = default;
  };
  // From each start up to the next: what to do; nullopt: no rule matches.
  template <typename Key>
  struct RangeMap {
    std::vector<Key> starts;
    std::vector<std::optional<Action>> actions;
    std::optional<Action> find(Key key) const;
  };
  // For all types that the same rules speak of.
  struct TypeClass {
    RangeMap<uint32_t> v4;
    RangeMap<Key128> v6;
  };
  struct TypeEntry {
    uint16_t type;
    uint32_t type_class;
  };
  struct Compiled {
    std::vector<dns::Name> zones;
    std::vector<TypeEntry> types;  // sorted
    uint32_t other_types = 0;      // the class of all other types
    std::vector<TypeClass> classes;
    bool isAbout(std::span<const uint8_t> name) const {
      return std::ranges::any_of(zones, [name](const dns::Name& zone) { return dns::isNameWithin(name, zone); });
    }
  };

  template <typename Key>
  struct Range;
  template <typename Key>
  static RangeMap<Key> compileRanges(std::vector<Range<Key>> ranges, const std::vector<Rule>& rules);
  static TypeClass compileClass(const std::vector<Rule>& rules, const std::vector<uint32_t>& applicable);
  static Compiled compile(const RuleSet& rule_set);
  static const TypeClass& classOf(const Compiled& compiled, std::optional<uint16_t> type);

  std::vector<Compiled> rule_sets_;
};

// --- for the Corefile; error messages are fragments without a place ---
// The words of one rule: allow|block|filter|drop [type T…|*] [net NETWORK…|*].
Result<Acl::Rule> parseAclRule(std::span<const std::string> words);

}  // namespace idetcd::directive
