#include "zones/master_scanner.h"

namespace idetcd::zones {

namespace {

constexpr std::array<bool, 256> makeEnds() {
  std::array<bool, 256> ends{};
  for (const char c : std::string_view(" \t\r\n;()\"\\")) ends[static_cast<uint8_t>(c)] = true;
  return ends;
}
// The characters at which a word may end, and the backslash.
constexpr auto kEnds = makeEnds();

}  // namespace

Result<bool> MasterScanner::next() {
  words_.clear();
  entry_line_ = line_;
  unsigned depth = 0;
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (c == '\n') {
      line_start_ = ++pos_;
      ++line_;
      if (depth == 0 && !words_.empty()) return true;
      if (words_.empty()) entry_line_ = line_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++pos_;
    } else if (c == ';') {
      skipComment();
    } else if (c == '(') {
      ++depth;
      ++pos_;
    } else if (c == ')') {
      if (depth-- == 0) return fail("a ')' without a '('");
      ++pos_;
    } else {
      if (words_.empty()) owner_blank_ = pos_ != line_start_;
      if (auto read = c == '"' ? readQuoted() : readWord(); !read) return tl::unexpected(read.error());
    }
  }
  if (depth > 0) return fail("a '(' without a ')'");
  return !words_.empty();
}

void MasterScanner::skipComment() { pos_ = std::min(text_.find('\n', pos_), text_.size()); }

Result<void> MasterScanner::readWord() {
  const size_t begin = pos_;
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (!kEnds[static_cast<uint8_t>(c)]) {
      ++pos_;
    } else if (c == '\\') {
      if (text_.size() - pos_ < 2 || text_[pos_ + 1] == '\n') return fail("a '\\' at the end of a line");
      pos_ += 2;
    } else if (c == '"' && text_[pos_ - 1] == '=') {  // key="value" of SVCB
      if (auto skipped = skipQuoted(); !skipped) return skipped;
    } else {
      break;
    }
  }
  words_.push_back({text_.substr(begin, pos_ - begin), false});
  return {};
}

Result<void> MasterScanner::readQuoted() {
  const size_t begin = pos_;
  if (auto skipped = skipQuoted(); !skipped) return skipped;
  words_.push_back({text_.substr(begin + 1, pos_ - begin - 2), true});
  return {};
}

Result<void> MasterScanner::skipQuoted() {
  for (++pos_; pos_ < text_.size() && text_[pos_] != '\n'; ++pos_) {
    if (text_[pos_] == '\\') {
      ++pos_;
      if (pos_ < text_.size() && text_[pos_] == '\n') break;
    } else if (text_[pos_] == '"') {
      ++pos_;
      return {};
    }
  }
  return fail("a quotation mark is not closed");
}

}  // namespace idetcd::zones
