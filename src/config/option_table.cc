#include "config/option_table.h"

#include <fmt/args.h>
#include <fmt/ranges.h>

#include "base/text.h"
#include "config/duration.h"

namespace idetcd::config {

namespace {

std::string wrongText(std::string_view wrong, std::string_view word, const std::string& least,
                      const std::string& most) {
  return fmt::format(fmt::runtime(wrong), fmt::arg("word", word), fmt::arg("least", least), fmt::arg("most", most));
}

tl::unexpected<Error> unknownOption(const DirectiveCursor& cursor, std::span<const OptionRow> rows) {
  std::vector<std::string_view> names;
  for (const OptionRow& row : rows) names.push_back(row.name);
  return cursor.error(fmt::format("unknown property '{}'{}", cursor.value(), suggestion(cursor.value(), names)));
}

// Of one line; false: the rest of the block cannot be told apart.
bool readLine(DirectiveCursor& cursor, std::span<const OptionRow> rows, const FieldReader& other, void* settings,
              Problems& problems) {
  const auto row = std::ranges::find(rows, cursor.value(), &OptionRow::name);
  const FieldReader& reader = row != rows.end() ? row->reader : other;
  if (!reader.read) {
    problems.add(unknownOption(cursor, rows));
    if (cursor.value() == "{") return false;  // what belongs to which block is a guess from here
  } else {
    const std::string_view syntax = row != rows.end() ? row->syntax : std::string_view{};
    const auto read = reader.read(cursor, settings);
    if (!read) problems.add(withSyntax(read.error().message, syntax));
    if (read && cursor.nextArg()) problems.add(withSyntax(cursor.argError().value().message, syntax));
  }
  cursor.remainingArgs();
  return true;
}

}  // namespace

void Problems::add(const std::string& message) {
  if (std::ranges::find(messages_, message) != messages_.end()) return;
  if (messages_.size() < kMost) messages_.push_back(message);
}

Result<void> Problems::result() const {
  return empty() ? Result<void>() : fail(fmt::format("{}", fmt::join(messages_, "\n")));
}

Result<int64_t> readNumber(DirectiveCursor& cursor, int64_t least, int64_t most, std::string_view wrong) {
  const auto word = cursor.oneArg();
  if (!word) return tl::unexpected(word.error());
  const auto number = parseNumber<int64_t>(*word);
  if (number && *number >= least && *number <= most) return *number;
  return cursor.error(wrongText(wrong, *word, std::to_string(least), std::to_string(most)));
}

Result<std::chrono::nanoseconds> readDuration(DirectiveCursor& cursor, const DurationRange& range) {
  const auto word = cursor.oneArg();
  if (!word) return tl::unexpected(word.error());
  const auto duration = range.bare_seconds ? parseDurationOrSeconds(*word) : parseDuration(*word);
  if (duration && *duration >= range.least && *duration <= range.most) return *duration;
  const std::string_view wrong = duration ? range.wrong : range.invalid;
  if (wrong.empty()) return cursor.error(duration.error().message);
  return cursor.error(wrongText(wrong, *word, durationText(range.least), durationText(range.most)));
}

Result<int64_t> readWholeSeconds(DirectiveCursor& cursor, int64_t least, int64_t most) {
  const std::string option = cursor.value();
  const auto word = cursor.oneArg();
  if (!word) return tl::unexpected(word.error());
  const auto duration = parseDuration(*word);
  if (!duration) return cursor.error(duration.error().message);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*duration);
  if (seconds == *duration && seconds.count() >= least && seconds.count() <= most) return seconds.count();
  return cursor.error(fmt::format("{} must be whole seconds from {}s to {}s: '{}'", option, least, most, *word));
}

Result<size_t> readChoice(DirectiveCursor& cursor, std::span<const std::string_view> words, std::string_view wrong) {
  const auto word = cursor.oneArg();
  if (!word) return tl::unexpected(word.error());
  const auto found = std::ranges::find(words, *word);
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  return cursor.error(wrongText(wrong, *word, {}, {}));
}

Result<void> readNetworks(DirectiveCursor& cursor, std::vector<IpNetwork>& networks) {
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  for (const std::string& word : *words) {
    const auto network = IpNetwork::parse(word);
    if (!network) return cursor.error(network.error().message);
    networks.push_back(*network);
  }
  return {};
}

Result<void> readZones(DirectiveCursor& cursor, size_t least, std::vector<dns::Name>& zones) {
  const auto words = cursor.args(least);
  if (!words) return tl::unexpected(words.error());
  const auto read = parseZones(cursor, *words);
  if (!read) return tl::unexpected(read.error());
  zones.insert(zones.end(), read->begin(), read->end());
  return {};
}

std::string durationText(std::chrono::nanoseconds duration) {
  static constexpr std::array<std::pair<std::string_view, int64_t>, 5> kUnits{
      {{"h", 3'600'000'000'000}, {"m", 60'000'000'000}, {"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}}};
  if (duration.count() == 0) return "0s";
  for (const auto& [unit, size] : kUnits) {
    if (duration.count() % size == 0) return fmt::format("{}{}", duration.count() / size, unit);
  }
  return fmt::format("{}ns", duration.count());
}

Result<void> readBlock(DirectiveCursor& cursor, std::span<const OptionRow> rows, const FieldReader& other,
                       void* settings, const Result<void>& head) {
  Problems problems;
  if (!head) problems.add(head.error().message);
  const bool has_block = !rows.empty() || other.read;
  while (has_block && cursor.nextBlock()) {
    if (!readLine(cursor, rows, other, settings, problems)) return problems.result();
  }
  if (!has_block && !head) return head;
  if (const auto finished = cursor.finish(); !finished) problems.add(finished.error().message);
  return problems.result();
}

}  // namespace idetcd::config
