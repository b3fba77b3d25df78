// `--name value` and `--flag` arguments of the bench programs. What is not known ends the program with its usage.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace idetcd::bench {

class Arguments {
 public:
  Arguments(int argc, char** argv, const char* usage) : words_(argv + 1, argv + argc), usage_(usage) {}

  std::string text(const char* name, std::string fallback) {
    for (size_t i = 0; i + 1 < words_.size(); ++i) {
      if (words_[i] != name) continue;
      fallback = words_[i + 1];
      words_.erase(words_.begin() + static_cast<ptrdiff_t>(i), words_.begin() + static_cast<ptrdiff_t>(i) + 2);
      return fallback;
    }
    return fallback;
  }

  template <typename Number>
  Number number(const char* name, Number fallback) {
    const std::string word = text(name, "");
    if (word.empty()) return fallback;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), fallback);
    if (error != std::errc() || end != word.data() + word.size()) fail(word);
    return fallback;
  }

  bool flag(const char* name) {
    for (size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] != name) continue;
      words_.erase(words_.begin() + static_cast<ptrdiff_t>(i));
      return true;
    }
    return false;
  }

  // Call when all are taken.
  void finish() const {
    if (!words_.empty()) fail(words_.front());
  }

 private:
  [[noreturn]] void fail(const std::string& word) const {
    std::fprintf(stderr, "unexpected argument '%s'\n%s", word.c_str(), usage_);
    std::exit(2);
  }

  std::vector<std::string> words_;
  const char* usage_;
};

}  // namespace idetcd::bench
