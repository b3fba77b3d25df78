// Cuts the text of a master file (RFC 1035 §5.1) into entries and these into words: comments, parentheses, quotes and line
// ends are gone then, escapes are as they were written. One thread; borrows the text.
#pragma once

#include "base/result.h"

namespace idetcd::zones {

struct Word {
  std::string_view text;
  bool quoted = false;
};

class MasterScanner {
 public:
  explicit MasterScanner(std::string_view text) : text_(text) {}

  // Goes to the next entry that has words. False: there is none. An error is of line().
  Result<bool> next();

  std::span<const Word> words() const { return words_; }
  // Whether the entry begins with a blank: its owner is that of the entry before.
  bool isOwnerBlank() const { return owner_blank_; }
  // Of the entry's first word, counted from 1.
  uint32_t line() const { return entry_line_; }

 private:
  Result<void> readWord();
  Result<void> readQuoted();
  Result<void> skipQuoted();
  void skipComment();

  const std::string_view text_;
  size_t pos_ = 0;
  size_t line_start_ = 0;
  uint32_t line_ = 1;
  uint32_t entry_line_ = 1;
  bool owner_blank_ = false;
  std::vector<Word> words_;
};

}  // namespace idetcd::zones
