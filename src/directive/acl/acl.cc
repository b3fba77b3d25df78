#include "directive/acl/acl.h"

#include "base/text.h"
#include "dns/response.h"
#include "dns/types.h"

namespace idetcd::directive {

using Action = Acl::Action;

namespace {

constexpr std::array<uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// The bytes of the IPv4 address that `address` is or maps; null: it is neither (RFC 4291 §2.5.5.2).
const uint8_t* v4Bytes(const IpAddress& address) {
  if (address.isV4()) return address.data();
  const bool mapped = std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), address.data());
  return mapped ? address.data() + kMappedPrefix.size() : nullptr;
}

uint64_t load64(const uint8_t* p) { return uint64_t{dns::load32(p)} << 32 | dns::load32(p + 4); }

std::optional<Action> parseAction(std::string_view text) {
  const std::string word = lowerCase(text);
  if (word == "allow") return Action::kAllow;
  if (word == "block") return Action::kBlock;
  if (word == "filter") return Action::kFilter;
  if (word == "drop") return Action::kDrop;
  return std::nullopt;
}

}  // namespace

// The addresses [first, last] of a network of the rule with this index.
template <typename Key>
struct Acl::Range {
  Key first;
  Key last;
  uint32_t rule;
};

namespace {

uint32_t following(uint32_t key) { return key + 1; }

template <typename Key>
Key following(Key key) {
  ++key.low;
  if (key.low == 0) ++key.high;
  return key;
}

template <typename Key>
bool isHighest(const Key& key) {
  if constexpr (std::is_same_v<Key, uint32_t>) {
    return key == std::numeric_limits<uint32_t>::max();
  } else {
    return (key.high & key.low) == std::numeric_limits<uint64_t>::max();
  }
}

// The bits of a 64-bit word behind its first `prefix`, 0 to 64.
uint64_t hostBits(unsigned prefix) { return prefix >= 64 ? 0 : std::numeric_limits<uint64_t>::max() >> prefix; }

}  // namespace

template <typename Key>
std::optional<Action> Acl::RangeMap<Key>::find(Key key) const {
  const auto next = std::upper_bound(starts.begin(), starts.end(), key);
  return actions[static_cast<size_t>(next - starts.begin()) - 1];  // the first start is the lowest address
}

// Networks lie within one another or apart, so a walk over them in the order of their first addresses, with those that
// are open on a stack, meets every address at which the first rule changes.
template <typename Key>
Acl::RangeMap<Key> Acl::compileRanges(std::vector<Range<Key>> ranges, const std::vector<Rule>& rules) {
  std::sort(ranges.begin(), ranges.end(), [](const Range<Key>& a, const Range<Key>& b) {
    if (a.first != b.first) return a.first < b.first;
    return a.last != b.last ? a.last > b.last : a.rule < b.rule;
  });
  RangeMap<Key> map{{Key{}}, {std::nullopt}};
  const auto change = [&map](Key start, std::optional<Action> action) {
    if (map.starts.back() == start) {
      map.starts.pop_back();
      map.actions.pop_back();
    }
    if (!map.actions.empty() && map.actions.back() == action) return;
    map.starts.push_back(start);
    map.actions.push_back(action);
  };
  std::vector<Range<Key>> open;  // `rule` is the first one of this range and those around it
  const auto close = [&] {
    const Key last = open.back().last;
    open.pop_back();
    if (isHighest(last)) return;
    change(following(last), open.empty() ? std::nullopt : std::optional(rules[open.back().rule].action));
  };
  for (Range<Key> range : ranges) {
    while (!open.empty() && open.back().last < range.first) close();
    if (!open.empty()) range.rule = std::min(range.rule, open.back().rule);
    open.push_back(range);
    change(range.first, rules[range.rule].action);
  }
  while (!open.empty()) close();
  return map;
}

Acl::TypeClass Acl::compileClass(const std::vector<Rule>& rules, const std::vector<uint32_t>& applicable) {
  std::vector<Range<uint32_t>> v4;
  std::vector<Range<Key128>> v6;
  for (const uint32_t rule : applicable) {
    if (rules[rule].networks.empty()) {
      constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
      v4.push_back({0, std::numeric_limits<uint32_t>::max(), rule});
      v6.push_back({{0, 0}, {kMax, kMax}, rule});
    }
    for (const Network& network : rules[rule].networks) {
      const unsigned bits = network.prefix_length;
      if (network.address.isV4()) {
        const auto host = static_cast<uint32_t>(hostBits(32 + std::min(bits, 32u)));
        const uint32_t key = dns::load32(network.address.data());
        v4.push_back({key & ~host, key | host, rule});
      } else {
        const Key128 host{hostBits(bits), hostBits(bits < 64 ? 0 : bits - 64)};
        const Key128 key{load64(network.address.data()), load64(network.address.data() + 8)};
        v6.push_back({{key.high & ~host.high, key.low & ~host.low}, {key.high | host.high, key.low | host.low}, rule});
      }
    }
  }
  return {compileRanges(std::move(v4), rules), compileRanges(std::move(v6), rules)};
}

Acl::Compiled Acl::compile(const RuleSet& rule_set) {
  Compiled compiled;
  compiled.zones = rule_set.zones;
  // Types that the same rules speak of share their ranges.
  std::map<std::vector<uint32_t>, uint32_t> classes;
  const auto class_of = [&](std::optional<uint16_t> type) {
    std::vector<uint32_t> applicable;
    for (uint32_t i = 0; i < rule_set.rules.size(); ++i) {
      const auto& types = rule_set.rules[i].types;
      if (types.empty() || (type && std::find(types.begin(), types.end(), *type) != types.end())) {
        applicable.push_back(i);
      }
    }
    const auto [position, is_new] = classes.emplace(applicable, static_cast<uint32_t>(compiled.classes.size()));
    if (is_new) compiled.classes.push_back(compileClass(rule_set.rules, applicable));
    return position->second;
  };
  compiled.other_types = class_of(std::nullopt);
  std::vector<uint16_t> types;
  for (const Rule& rule : rule_set.rules) types.insert(types.end(), rule.types.begin(), rule.types.end());
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  for (const uint16_t type : types) compiled.types.push_back({type, class_of(type)});
  return compiled;
}

Acl::Acl(const std::vector<RuleSet>& rule_sets) {
  for (const RuleSet& rule_set : rule_sets) rule_sets_.push_back(compile(rule_set));
}

const Acl::TypeClass& Acl::classOf(const Compiled& compiled, std::optional<uint16_t> type) {
  if (!type) return compiled.classes[compiled.other_types];
  const auto found = std::lower_bound(compiled.types.begin(), compiled.types.end(), *type,
                                      [](const TypeEntry& entry, uint16_t wanted) { return entry.type < wanted; });
  const bool named = found != compiled.types.end() && found->type == *type;
  return compiled.classes[named ? found->type_class : compiled.other_types];
}

resolve::Gate::AclVerdict Acl::judge(const std::optional<IpAddress>& source, std::span<const uint8_t> name,
                                  std::optional<uint16_t> type) const {
  if (!source) return Action::kBlock;
  const uint8_t* v4 = v4Bytes(*source);
  for (const Compiled& rule_set : rule_sets_) {
    if (!rule_set.isAbout(name)) continue;
    const TypeClass& type_class = classOf(rule_set, type);
    const auto action = v4 != nullptr ? type_class.v4.find(dns::load32(v4))
                                      : type_class.v6.find(Key128{load64(source->data()), load64(source->data() + 8)});
    if (action) return *action;
  }
  return Action::kAllow;
}

Result<Acl::Rule> parseAclRule(std::span<const std::string> words) {
  const auto action = words.empty() ? std::nullopt : parseAction(words.front());
  if (!action) {
    return fail(fmt::format("unexpected token '{}'; expect 'allow', 'block', 'filter' or 'drop'",
                            words.empty() ? "" : words.front()));
  }
  Acl::Rule rule{.action = *action, .types = {}, .networks = {}};
  bool all_types = false;
  bool all_networks = false;
  for (size_t i = 1; i < words.size();) {
    const std::string section = lowerCase(words[i]);
    const bool is_type = section == "type";
    if (!is_type && section != "net") return fail(fmt::format("unexpected token '{}'; expect 'type | net'", words[i]));
    const size_t first = ++i;
    for (; i < words.size() && lowerCase(words[i]) != "type" && lowerCase(words[i]) != "net"; ++i) {
      const std::string& word = words[i];
      if (word == "*") {
        (is_type ? all_types : all_networks) = true;
      } else if (is_type) {
        const auto type = dns::kTypeNames.parse(word);
        if (!type) return fail(fmt::format("unexpected token '{}'; expect legal QTYPE", word));
        rule.types.push_back(*type);
      } else {
        const auto network = IpNetwork::parse(word);
        if (!network) return tl::unexpected(network.error());
        rule.networks.push_back(*network);
      }
    }
    if (i == first) return fail(fmt::format("no token specified in '{}' section", section));
  }
  if (all_types) rule.types.clear();
  if (all_networks) rule.networks.clear();
  return rule;
}

}  // namespace idetcd::directive
