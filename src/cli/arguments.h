// The options and words of one subcommand: `--name VALUE`, `--name=VALUE`, `--flag`; `--` ends the options. The last of
// two counts. Pure; any thread.
#pragma once

#include "base/result.h"

namespace idetcd::cli {

struct Option {
  enum class Kind : uint8_t { kFlag, kText, kCount, kRevision, kPort, kDuration };

  std::string_view name;  // without the dashes
  Kind kind;
  std::string_view value;  // what the usage calls it; empty for a flag
  std::string_view help;
};

// The options and words of a subcommand.
struct Grammar {
  std::vector<Option> options;
  size_t min_words = 0;
  size_t max_words = 0;
  bool has_command = false;  // the first word and all behind it belong to another program
};

class Arguments {
 public:
  // The error is one line for the user. A value that is not of its option's kind is one.
  static Result<Arguments> parse(const Grammar& grammar, std::span<const char* const> given);

  bool has(std::string_view option) const { return values_.contains(option); }
  std::optional<std::string> text(std::string_view option) const;
  // REQUIRES: an option of kind kCount or kPort.
  std::optional<uint64_t> number(std::string_view option) const;
  // REQUIRES: an option of kind kDuration.
  std::optional<std::chrono::nanoseconds> duration(std::string_view option) const;
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<std::string> words_;
};

}  // namespace idetcd::cli
