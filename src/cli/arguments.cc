#include "cli/arguments.h"

#include "base/text.h"
#include "config/duration.h"

namespace idetcd::cli {
namespace {

constexpr uint64_t kMaxCount = 1'000'000;
constexpr uint64_t kMaxRevision = std::numeric_limits<int64_t>::max();

Result<void> check(const Option& option, std::string_view value) {
  const auto wrong = [&](std::string_view what) {
    return fail(fmt::format("--{} {}: {}", option.name, printable(value), what));
  };
  switch (option.kind) {
    case Option::Kind::kFlag:
      break;
    case Option::Kind::kText:
      if (value.empty()) return wrong("must not be empty");
      break;
    case Option::Kind::kCount: {
      const auto number = parseNumber<uint64_t>(value);
      if (!number || *number == 0 || *number > kMaxCount) return wrong("must be a whole number, 1 or more");
      break;
    }
    case Option::Kind::kRevision: {
      const auto number = parseNumber<uint64_t>(value);
      if (!number || *number > kMaxRevision) return wrong("must be a whole number");
      break;
    }
    case Option::Kind::kPort: {
      const auto number = parseNumber<uint16_t>(value);
      if (!number || *number == 0) return wrong("must be a port, 1 to 65535");
      break;
    }
    case Option::Kind::kDuration: {
      const auto duration = config::parseDurationOrSeconds(value);
      if (!duration || duration->count() < 0) return wrong("must be a duration such as 30s or 2m");
      break;
    }
  }
  return {};
}

}  // namespace

Result<Arguments> Arguments::parse(const Grammar& grammar, std::span<const char* const> given) {
  Arguments arguments;
  size_t next = 0;
  bool ended = false;
  while (next < given.size()) {
    const std::string_view word = given[next];
    if (ended || word.size() < 2 || word.front() != '-') {
      if (grammar.has_command) ended = true;
      arguments.words_.emplace_back(word);
      ++next;
      continue;
    }
    ++next;
    if (word == "--") {
      ended = true;
      continue;
    }
    const std::string_view body = word.substr(word.starts_with("--") ? 2 : 1);
    const size_t equals = body.find('=');
    const std::string_view name = body.substr(0, equals);
    const auto option = std::find_if(grammar.options.begin(), grammar.options.end(),
                                     [&](const Option& each) { return each.name == name; });
    if (option == grammar.options.end()) return fail(fmt::format("there is no option {}", printable(word)));
    std::string_view value;
    if (equals != std::string_view::npos) {
      if (option->kind == Option::Kind::kFlag) return fail(fmt::format("--{} takes no value", name));
      value = body.substr(equals + 1);
    } else if (option->kind != Option::Kind::kFlag) {
      if (next == given.size()) return fail(fmt::format("--{} needs a value: {}", name, option->value));
      value = given[next++];
    }
    if (auto checked = check(*option, value); !checked) return tl::unexpected(checked.error());
    arguments.values_.insert_or_assign(std::string(name), std::string(value));
  }
  if (arguments.words_.size() > grammar.max_words && !grammar.has_command)
    return fail(fmt::format("one word too many: {}", printable(arguments.words_[grammar.max_words])));
  if (arguments.words_.size() < grammar.min_words) return fail("a word is missing", ErrorCode::kNotFound);
  return arguments;
}

std::optional<std::string> Arguments::text(std::string_view option) const {
  const auto found = values_.find(option);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::optional<uint64_t> Arguments::number(std::string_view option) const {
  const auto value = text(option);
  return value ? parseNumber<uint64_t>(*value) : std::nullopt;
}

std::optional<std::chrono::nanoseconds> Arguments::duration(std::string_view option) const {
  const auto value = text(option);
  if (!value) return std::nullopt;
  return config::parseDurationOrSeconds(*value).value_or(std::chrono::nanoseconds(0));
}

}  // namespace idetcd::cli
