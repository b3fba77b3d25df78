#include "cluster/name_pattern.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "cluster/pattern_template.h"

namespace idetcd::cluster {
namespace {

constexpr size_t kMaxPatternLength = 1024;
// Every ID up to here is checked. Names of later IDs differ from those by more digits only, so that the numbers around
// each power of the bases a number can be written in, and the limit, stand for the rest.
constexpr int64_t kCheckedIds = 100'000;
constexpr size_t kShownCharacters = 80;

bool isHostCharacter(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

std::string lowerCase(std::string_view text) {
  std::string folded(text);
  std::transform(folded.begin(), folded.end(), folded.begin(),
                 [](char c) { return static_cast<char>(dns::toLower(static_cast<uint8_t>(c))); });
  return folded;
}

// Printable and short.
std::string shown(std::string_view text) {
  std::string escaped;
  for (const char c : text.substr(0, kShownCharacters)) {
    if (c >= ' ' && c <= '~') {
      escaped.push_back(c);
    } else {
      escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text.size() > kShownCharacters ? escaped + "…" : escaped;
}

// REQUIRES: `name` ends with a dot.
Result<void> checkName(std::string_view name, int64_t id) {
  if (name == ".") return fail(fmt::format("the name of ID {} is empty", id));
  const auto wrong = [&](std::string_view what) {
    return fail(fmt::format("the name of ID {}, \"{}\", {}", id, shown(name), what));
  };
  size_t label_start = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '.') {
      if (isHostCharacter(name[i])) continue;
      return wrong(fmt::format("has '{}', but a host name has only letters, digits, '-', '_' and '.'",
                               shown(name.substr(i, 1))));
    }
    const size_t length = i - label_start;
    if (length == 0) return wrong("has an empty label");
    if (length > dns::kMaxLabelLength) {
      return wrong(fmt::format("has a label of {} octets, more than {}", length, dns::kMaxLabelLength));
    }
    label_start = i + 1;
  }
  // In wire format: each dot stands where the next length octet does, and the first length octet comes on top.
  if (name.size() + 1 > dns::kMaxNameLength) {
    return wrong(fmt::format("has {} octets, more than {}", name.size() + 1, dns::kMaxNameLength));
  }
  // RFC 952 and 1123: no host name begins so, and in etcd such a key lies in front of all that are read as host names.
  if (name.front() == '-') return wrong("begins with '-'");
  return {};
}

std::vector<int64_t> idsToCheck(int64_t limit) {
  std::vector<int64_t> ids;
  for (int64_t id = 1; id <= std::min(limit, kCheckedIds); ++id) ids.push_back(id);
  for (const int64_t base : {2, 8, 10, 16}) {
    int64_t power = 1;
    while (power <= limit / base) {
      power *= base;
      for (const int64_t id : {power - 1, power, power + 1}) {
        if (id > kCheckedIds && id <= limit) ids.push_back(id);
      }
    }
  }
  ids.push_back(limit);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string finish(std::string name) {
  name = lowerCase(name);
  if (!name.ends_with('.')) name.push_back('.');
  return name;
}

}  // namespace

struct NamePattern::Template {
  std::string text;
  PatternTemplate parsed;
  std::string literal_prefix;
  dns::Name zone;
};

Result<NamePattern> NamePattern::parse(std::string_view text, int64_t limit) {
  if (limit < 1) return fail(fmt::format("the limit must be at least 1 and is {}", limit));
  if (text.empty()) return fail("the pattern is empty");
  if (text.size() > kMaxPatternLength)
    return fail(fmt::format("the pattern is longer than {} octets", kMaxPatternLength));
  Result<PatternTemplate> parsed = PatternTemplate::parse(text);
  if (!parsed) return tl::unexpected(parsed.error());
  if (!parsed->usesId()) return fail("the pattern does not use {{.ID}}, so all nodes would have the same name");

  const std::string suffix = parsed->suffix().empty() ? "" : finish(std::string(parsed->suffix()));
  bool suffix_begins_a_label = true;  // for every ID
  std::unordered_map<std::string, int64_t> names;
  for (const int64_t id : idsToCheck(limit)) {
    const Result<std::string> rendered = parsed->render(id);
    if (!rendered) return tl::unexpected(rendered.error());
    std::string name = finish(*rendered);
    if (auto checked = checkName(name, id); !checked) return tl::unexpected(checked.error());
    suffix_begins_a_label &= name.size() > suffix.size() && name[name.size() - suffix.size() - 1] == '.';
    const auto [other, is_new] = names.try_emplace(std::move(name), id);
    if (!is_new) return fail(fmt::format("IDs {} and {} have the same name, \"{}\"", other->second, id, other->first));
  }

  // The label that the last output ends in does not belong to the zone, whatever text it ends with.
  std::string_view zone_text = suffix;
  if (!suffix_begins_a_label && !suffix.empty()) zone_text.remove_prefix(zone_text.find('.') + 1);
  Result<dns::Name> zone = dns::Name::parse(zone_text.empty() ? "." : zone_text);
  if (!zone) return tl::unexpected(zone.error());

  NamePattern pattern;
  std::string prefix = lowerCase(parsed->prefix());
  pattern.template_ =
      std::make_shared<const Template>(Template{std::string(text), std::move(*parsed), std::move(prefix), *zone});
  return pattern;
}

std::string NamePattern::render(int64_t id) const {
  Result<std::string> rendered = template_->parsed.render(id);
  if (!rendered) std::abort();  // parse() has seen to it that no ID up to the limit fails
  return finish(std::move(*rendered));
}

const dns::Name& NamePattern::zone() const { return template_->zone; }

std::string_view NamePattern::literalPrefix() const { return template_->literal_prefix; }

const std::string& NamePattern::text() const { return template_->text; }

}  // namespace idetcd::cluster
