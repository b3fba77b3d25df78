#include "slots/name_pattern.h"

#include "base/text.h"
#include "slots/pattern_parser.h"

// Why every pattern can be inverted. A number is never shorter in the name of a greater ID, so neither is the name; and
// where two names are equally long, so is each of their numbers, and all parts stand at the same places. So the length
// of a name says where its first number begins and ends, whatever digits the text around it has, and that number says
// the ID. The other numbers have to agree: the name of this ID is compared with the whole.
//
// IDs with names of one length are a range, here called a shape. It ends where a number gets one digit more: there are
// no more shapes than powers of the bases below the limit. Names of one shape differ in nothing but digits, which every
// host name may have, so one of them shows whether all are host names.

namespace idetcd::slots {
namespace {

constexpr size_t kMaxPatternLength = 1024;

bool isHostCharacter(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

// REQUIRES: `name` ends with a dot.
Result<void> checkName(std::string_view name, int64_t id) {
  const auto wrong = [&](std::string_view what) {
    return fail(fmt::format("the name of ID {}, \"{}\", {}", id, printable(name), what));
  };
  size_t label_start = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '.') {
      if (isHostCharacter(name[i])) continue;
      return wrong(fmt::format("has '{}', but a host name has only letters, digits, '-', '_' and '.'",
                               printable(name.substr(i, 1))));
    }
    const std::string_view label = name.substr(label_start, i - label_start);
    if (label.empty()) return wrong("has an empty label");
    if (label.size() > dns::kMaxLabelLength) {
      return wrong(fmt::format("has a label of {} bytes, more than {}", label.size(), dns::kMaxLabelLength));
    }
    if (label.starts_with('-')) return wrong("has a label that begins with '-'");
    if (label.ends_with('-')) return wrong("has a label that ends with '-'");
    label_start = i + 1;
  }
  // On the wire each dot is the length of the label behind it, and the length of the first label comes on top.
  if (name.size() + 1 > dns::kMaxNameLength) {
    return wrong(fmt::format("has {} bytes, more than {}", name.size() + 1, dns::kMaxNameLength));
  }
  return {};
}

// The IDs, from 1 on, at which a number gets longer; in order.
std::vector<int64_t> firstIds(const std::vector<NumberFormat>& numbers, int64_t limit) {
  std::vector<int64_t> ids{1};
  for (const NumberFormat& number : numbers) {
    int64_t power = 1;
    for (int digits = 1; power <= limit / number.base; ++digits) {
      power *= number.base;
      if (digits >= number.width) ids.push_back(power);
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

struct NamePattern::Parts {
  // The IDs from here to the next shape, or to the limit.
  struct Shape {
    size_t name_length = 0;
    int64_t first_id = 0;
  };

  std::string text;
  PatternParts parts;
  int64_t limit = 0;
  std::vector<Shape> shapes;  // by length, and so by ID
  dns::Name zone;

  // Calls take(std::string_view) for each part of the name.
  template <typename Take>
  void spell(int64_t id, Take take) const {
    for (size_t i = 0; i < parts.numbers.size(); ++i) {
      take(std::string_view(parts.texts[i]));
      take(parts.numbers[i].write(id).view());
    }
    take(std::string_view(parts.texts.back()));
  }

  std::string render(int64_t id) const {
    std::string name;
    spell(id, [&name](std::string_view part) { name += part; });
    return name;
  }

  bool isName(std::string_view name, int64_t id) const {
    bool same = true;
    spell(id, [&](std::string_view part) {
      same = same && name.starts_with(part);
      if (same) name.remove_prefix(part.size());
    });
    return same && name.empty();
  }
};

Result<NamePattern> NamePattern::parse(std::string_view text, int64_t limit) {
  if (limit < 1) return fail(fmt::format("the limit must be at least 1 and is {}", limit));
  if (text.empty()) return fail("the pattern is empty");
  if (text.size() > kMaxPatternLength) {
    return fail(fmt::format("the pattern is longer than {} bytes", kMaxPatternLength));
  }
  Result<PatternParts> read = parsePattern(text);
  if (!read) return tl::unexpected(read.error());
  if (read->numbers.empty()) return fail("the pattern does not use {{.ID}}, so all nodes would have the same name");
  for (std::string& part : read->texts) part = lowerCase(part);
  std::string& end = read->texts.back();
  if (!end.ends_with('.')) end.push_back('.');

  auto parts = std::make_shared<Parts>();
  parts->text = text;
  parts->parts = *std::move(read);
  parts->limit = limit;
  for (const int64_t id : firstIds(parts->parts.numbers, limit)) {
    const std::string name = parts->render(id);
    if (auto checked = checkName(name, id); !checked) return tl::unexpected(checked.error());
    parts->shapes.push_back({name.size(), id});
  }

  // The label that the last number stands in does not belong to the zone.
  const std::string_view behind = parts->parts.texts.back();
  const std::string_view zone_text = behind.substr(behind.find('.') + 1);
  const Result<dns::Name> zone = dns::Name::parse(zone_text.empty() ? "." : zone_text);
  if (!zone) return tl::unexpected(zone.error());
  parts->zone = *zone;

  NamePattern pattern;
  pattern.parts_ = std::move(parts);
  return pattern;
}

std::string NamePattern::render(int64_t id) const {
  assert(id >= 1 && id <= limit());
  return parts_->render(id);
}

std::optional<int64_t> NamePattern::recognise(std::string_view name) const {
  const auto& shapes = parts_->shapes;
  const auto shape = std::lower_bound(shapes.begin(), shapes.end(), name.size(),
                                      [](const Parts::Shape& each, size_t size) { return each.name_length < size; });
  if (shape == shapes.end() || shape->name_length != name.size()) return std::nullopt;
  const NumberFormat& number = parts_->parts.numbers.front();
  const size_t begin = parts_->parts.texts.front().size();
  const std::optional<int64_t> id = number.read(name.substr(begin, number.length(shape->first_id)));
  if (!id || *id > parts_->limit || !parts_->isName(name, *id)) return std::nullopt;
  return id;
}

int64_t NamePattern::limit() const { return parts_->limit; }

const dns::Name& NamePattern::zone() const { return parts_->zone; }

std::string_view NamePattern::literalPrefix() const { return parts_->parts.texts.front(); }

const std::string& NamePattern::text() const { return parts_->text; }

}  // namespace idetcd::slots
