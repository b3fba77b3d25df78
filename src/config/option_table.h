// The options of a directive as a table: each row binds a name to a field of a plain struct and to a parser, with range
// and default. Reads the block of a directive by it, and collects all errors. Any thread.
//
//   struct TcpSettings { size_t max_per_client = 512; std::chrono::milliseconds idle{10'000}; };
//   const Options<TcpSettings> kOptions{{
//       {"max_per_client", "max_per_client N, from 1 to 1000000", number(&TcpSettings::max_per_client, 1, 1'000'000)},
//       {"idle", "idle DURATION, from 1s to 1h", duration(&TcpSettings::idle, {.least = 1s, .most = 1h})},
//   }};
//   if (auto read = kOptions.read(cursor, settings_); !read) return read;
//
// A field may be a std::optional, which stays empty if the option is not there. A row may have a function of its own
// instead of a parser: `Result<void> read(DirectiveCursor&, TcpSettings&)`.
//
// The text of an error may contain {word}, {least} and {most}.
#pragma once

#include <concepts>
#include <initializer_list>
#include <type_traits>

#include "base/result.h"
#include "config/directive_cursor.h"
#include "dns/name.h"

namespace idetcd::config {

// Errors of which each is complete, one a line. Each is said once (a snippet may be imported often), and at most kMost.
// One thread.
class Problems {
 public:
  void add(const tl::unexpected<Error>& error) { add(error.value().message); }
  void add(const std::string& message);
  bool empty() const { return messages_.empty(); }
  Result<void> result() const;

 private:
  static constexpr size_t kMost = 100;
  std::vector<std::string> messages_;
};

// Readers of the rest of a line; the errors are complete.

inline constexpr std::string_view kNoSuchNumber = "'{word}' is no number from {least} to {most}";

struct DurationRange {
  std::chrono::nanoseconds least{0};
  std::chrono::nanoseconds most = std::chrono::nanoseconds::max();
  std::string_view wrong = "'{word}' is not from {least} to {most}";
  std::string_view invalid{};  // for what is no duration; empty: as Go says it
  bool bare_seconds = false;   // a number without unit is seconds
};

Result<int64_t> readNumber(DirectiveCursor& cursor, int64_t least, int64_t most,
                           std::string_view wrong = kNoSuchNumber);
Result<std::chrono::nanoseconds> readDuration(DirectiveCursor& cursor, const DurationRange& range);
// Where a duration counts seconds: DNS TTLs and etcd leases know nothing finer.
Result<int64_t> readWholeSeconds(DirectiveCursor& cursor, int64_t least, int64_t most);
// The index of the word among `words`.
Result<size_t> readChoice(DirectiveCursor& cursor, std::span<const std::string_view> words, std::string_view wrong);
// Behind those before; at least one, or `least`.
Result<void> readNetworks(DirectiveCursor& cursor, std::vector<IpNetwork>& networks);
Result<void> readZones(DirectiveCursor& cursor, size_t least, std::vector<dns::Name>& zones);

// As a Corefile writes it, in the largest unit that it is a whole number of: "10s", "1h".
std::string durationText(std::chrono::nanoseconds duration);

// Reads a field, and shows its value; of settings whose type the table knows.
struct FieldReader {
  std::function<Result<void>(DirectiveCursor& cursor, void* settings)> read;
  std::function<std::string(const void* settings)> text{};  // none: there is no default to be shown
  std::string_view argument{};  // of a directive's own line, as its README.md names it
};

struct OptionRow {
  std::string_view name;
  std::string_view syntax;  // the line to write instead of a wrong one
  FieldReader reader;
};

// Reads the block to its end, and with it the directive. `other`, if there is one, reads a line that begins with none of
// the options. All errors of the block are in the one that is returned, a line each, with what to write instead; before
// them those of `head`, which is what the directive's own line came to. Without rows there is no block.
Result<void> readBlock(DirectiveCursor& cursor, std::span<const OptionRow> rows, const FieldReader& other,
                       void* settings, const Result<void>& head);

template <typename O>
struct Field : FieldReader {
  Field() = default;
  explicit Field(FieldReader reader) : FieldReader(std::move(reader)) {}
  template <typename Read>
  requires std::is_invocable_r_v<Result<void>, Read, DirectiveCursor&, O&> Field(
      Read read_settings)  // NOLINT(google-explicit-constructor): a function stands in a row as it is
      : FieldReader{[read_settings](DirectiveCursor& cursor, void* settings) {
          return read_settings(cursor, *static_cast<O*>(settings));
        }} {}

  // Says what counts where the option is not there, if the field does not.
  Field orElse(std::string unsaid) && {
    text = [unsaid = std::move(unsaid)](const void*) { return unsaid; };
    return std::move(*this);
  }
  // The argument of a directive's own line whose default it shows.
  Field named(std::string_view name) && {
    argument = name;
    return std::move(*this);
  }
};

template <typename O>
struct Option {
  std::string_view name;
  std::string_view syntax;  // as OptionRow's
  Field<O> field;
};

template <typename O>
class Options {
 public:
  // Of a directive whose own line has no arguments.
  Options(std::initializer_list<Option<O>> options) : Options(noArguments(), options) {}
  // `head` reads the directive's own line.
  Options(Field<O> head, std::initializer_list<Option<O>> options, Field<O> other = {})
      : head_(std::move(head)), other_(std::move(other)) {
    for (const Option<O>& option : options) rows_.push_back({option.name, option.syntax, option.field});
  }

  // Options that are not given leave `settings` as they are.
  Result<void> read(DirectiveCursor& cursor, O& settings) const {
    const Result<void> head = head_.read(cursor, &settings);
    return readBlock(cursor, rows_, other_, &settings, head);
  }

  std::vector<OptionDefault> defaults() const {
    const O unsaid{};
    std::vector<OptionDefault> all;
    if (!head_.argument.empty()) all.push_back({head_.argument, head_.text(&unsaid)});
    for (const OptionRow& row : rows_) {
      if (row.reader.text) all.push_back({row.name, row.reader.text(&unsaid)});
    }
    return all;
  }

 private:
  static Field<O> noArguments() {
    return [](DirectiveCursor& cursor, O&) -> Result<void> {
      if (cursor.args(0, 0)) return {};
      return cursor.argError();
    };
  }

  FieldReader head_;
  FieldReader other_;
  std::vector<OptionRow> rows_;
};

template <typename T>
struct WithoutOptional {
  using type = T;
};
template <typename T>
struct WithoutOptional<std::optional<T>> {
  using type = T;
};

// A row's third column: `read` makes the value from the cursor, `show` its text.
template <typename O, typename T, typename Read, typename Show>
Field<O> bindField(T O::*field, Read read, Show show) {
  Field<O> bound([field, read](DirectiveCursor& cursor, O& settings) -> Result<void> {
    auto value = read(cursor);
    if (!value) return tl::unexpected(value.error());
    settings.*field = std::move(*value);
    return {};
  });
  if constexpr (std::is_same_v<typename WithoutOptional<T>::type, T> && !std::is_null_pointer_v<Show>) {
    bound.text = [field, show](const void* settings) { return show(static_cast<const O*>(settings)->*field); };
  }
  return bound;
}
// The value as the field's own type.
template <typename T, typename Value>
Result<T> convert(const Result<Value>& value) {
  if (!value) return tl::unexpected(value.error());
  return static_cast<T>(*value);
}

// There without arguments, or not.
template <typename O>
Field<O> flag(bool O::*field) {
  return [field](DirectiveCursor&, O& settings) -> Result<void> {
    settings.*field = true;
    return {};
  };
}

// Of CoreDNS, and means nothing here; without arguments.
template <typename O>
Field<O> ignored() {
  return [](DirectiveCursor&, O&) { return Result<void>(); };
}

template <typename O, typename T>
Field<O> number(T O::*field, int64_t least, int64_t most, std::string_view wrong = kNoSuchNumber) {
  using Plain = typename WithoutOptional<T>::type;
  return bindField(
      field, [=](DirectiveCursor& cursor) { return convert<Plain>(readNumber(cursor, least, most, wrong)); },
      [](const auto& value) {
        if constexpr (requires { value.count(); })
          return fmt::to_string(value.count());
        else
          return fmt::to_string(static_cast<int64_t>(value));
      });
}

// Rounded up to what the field counts.
template <typename O, typename T>
Field<O> duration(T O::*field, DurationRange range = {}) {
  using Plain = typename WithoutOptional<T>::type;
  return bindField(
      field,
      [range](DirectiveCursor& cursor) -> Result<Plain> {
        const auto value = readDuration(cursor, range);
        if (!value) return tl::unexpected(value.error());
        return std::chrono::ceil<Plain>(*value);
      },
      [](const auto& value) { return durationText(value); });
}

template <typename O, typename T>
Field<O> wholeSeconds(T O::*field, int64_t least, int64_t most) {
  return bindField(
      field, [=](DirectiveCursor& cursor) { return convert<T>(readWholeSeconds(cursor, least, most)); },
      [](const T& value) { return fmt::format("{}s", std::chrono::seconds(value).count()); });
}

// One of some words, each of which stands for a value.
template <typename O, typename T>
Field<O> choice(T O::*field, std::initializer_list<std::pair<std::string_view, T>> of, std::string_view wrong) {
  std::vector<std::string_view> words;
  std::vector<T> values;
  for (const auto& [word, value] : of) {
    words.push_back(word);
    values.push_back(value);
  }
  return bindField(
      field,
      [=](DirectiveCursor& cursor) -> Result<T> {
        const auto which = readChoice(cursor, words, wrong);
        if (!which) return tl::unexpected(which.error());
        return values[*which];
      },
      [=](const T& value) {
        return std::string(words[static_cast<size_t>(std::ranges::find(values, value) - values.begin())]);
      });
}

// One word, whatever it is: a path, a name.
template <typename O>
Field<O> text(std::string O::*field) {
  return bindField(
      field, [](DirectiveCursor& cursor) { return cursor.oneArg(); }, nullptr);
}

// One network or more, behind those before.
template <typename O>
Field<O> networks(std::vector<IpNetwork> O::*field) {
  return [field](DirectiveCursor& cursor, O& settings) { return readNetworks(cursor, settings.*field); };
}

// One zone or more, behind those before.
template <typename O>
Field<O> zones(std::vector<dns::Name> O::*field) {
  return [field](DirectiveCursor& cursor, O& settings) { return readZones(cursor, 1, settings.*field); };
}

// Zones in place of those before; without any these stay. Of a directive's own line, where they are the block's.
template <typename O>
Field<O> zonesIfAny(std::vector<dns::Name> O::*field) {
  return [field](DirectiveCursor& cursor, O& settings) -> Result<void> {
    if (cursor.argumentFollows()) (settings.*field).clear();
    return readZones(cursor, 0, settings.*field);
  };
}

// Zones in place of those before; without any, every name.
template <typename O>
Field<O> zonesOrAll(std::vector<dns::Name> O::*field) {
  return [field](DirectiveCursor& cursor, O& settings) -> Result<void> {
    (settings.*field).clear();
    if (cursor.argumentFollows()) return readZones(cursor, 1, settings.*field);
    (settings.*field).emplace_back();
    return {};
  };
}

// A field of a struct in the settings.
template <typename O, typename Inner>
Field<O> within(Inner O::*inner, Field<Inner> field) {
  Field<O> outer(
      [inner, read = field.read](DirectiveCursor& cursor, O& settings) { return read(cursor, &(settings.*inner)); });
  if (field.text) {
    outer.text = [inner, text = field.text](const void* settings) {
      return text(&(static_cast<const O*>(settings)->*inner));
    };
  }
  return outer;
}

}  // namespace idetcd::config
