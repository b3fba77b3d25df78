#include "config/lexer.h"

namespace idetcd::config {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// How many bytes of white space begin `text`: 0 if none. ASCII and the other characters with the Unicode property
// White_Space: pasted text often has a no-break space where the eye sees a blank.
size_t whiteSpaceAt(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first == ' ' || (first >= '\t' && first <= '\r')) return 1;
  if (first == 0xc2) return byte(1) == 0x85 || byte(1) == 0xa0 ? 2 : 0;  // U+0085, U+00A0
  if (first == 0xe1) return byte(1) == 0x9a && byte(2) == 0x80 ? 3 : 0;  // U+1680
  if (first == 0xe3) return byte(1) == 0x80 && byte(2) == 0x80 ? 3 : 0;  // U+3000
  if (first != 0xe2) return 0;
  if (byte(1) == 0x81) return byte(2) == 0x9f ? 3 : 0;  // U+205F
  if (byte(1) != 0x80) return 0;
  const unsigned third = byte(2);
  return (third >= 0x80 && third <= 0x8a) || third == 0xa8 || third == 0xa9 || third == 0xaf ? 3 : 0;  // U+2000…202F
}

class Lexer {
 public:
  Lexer(std::string_view file, std::string_view text) : file_(std::make_shared<const std::string>(file)), text_(text) {
    if (text_.starts_with(kByteOrderMark)) pos_ = kByteOrderMark.size();
  }

  Result<std::vector<Token>> run() {
    while (skipToToken()) {
      Token token{.text = {}, .file = file_, .line = line_, .kind = Token::Kind::kWord, .starts_line = starts_line_};
      starts_line_ = false;
      if (text_[pos_] == '"') {
        if (!readQuoted(&token)) return errorAt(token, "Unexpected EOF, the quote that opens here is not closed");
      } else {
        readWord(&token);
      }
      if (token.text.find('\0') != std::string::npos)
        return errorAt(token, "Unexpected NUL byte, is this a text file?");
      tokens_.push_back(std::move(token));
    }
    return std::move(tokens_);
  }

 private:
  // Passes white space and comments. False at the end of the text.
  bool skipToToken() {
    bool in_comment = false;
    while (pos_ < text_.size()) {
      if (text_[pos_] == '\n') {
        ++line_;
        starts_line_ = true;
        in_comment = false;
        ++pos_;
      } else if (in_comment || text_[pos_] == '#') {
        in_comment = true;
        ++pos_;
      } else if (const size_t blank = whiteSpaceAt(text_.substr(pos_))) {
        pos_ += blank;
      } else {
        return true;
      }
    }
    return false;
  }

  void readWord(Token* token) {
    while (pos_ < text_.size() && text_[pos_] != '#') {
      if (text_[pos_] == '\r') {
        ++pos_;
        continue;
      }
      if (whiteSpaceAt(text_.substr(pos_)) > 0) break;
      token->text.push_back(text_[pos_++]);
    }
    if (token->text == "{") token->kind = Token::Kind::kOpenBrace;
    if (token->text == "}") token->kind = Token::Kind::kCloseBrace;
  }

  // False if the text ends before the quote does.
  bool readQuoted(Token* token) {
    token->kind = Token::Kind::kQuoted;
    for (++pos_; pos_ < text_.size(); ++pos_) {
      const char c = text_[pos_];
      if (c == '"') {
        ++pos_;
        return true;
      }
      if (c == '\r' && pos_ + 1 < text_.size() && text_[pos_ + 1] == '\n') continue;
      if (c == '\n') ++line_;
      if (c != '\\' || pos_ + 1 == text_.size()) {
        token->text.push_back(c);
        continue;
      }
      // Every other backslash is text, and so is the character behind it: "a\\" ends at its last quote.
      const char escaped = text_[++pos_];
      if (escaped == '\n') ++line_;
      if (escaped != '"') token->text.push_back('\\');
      token->text.push_back(escaped);
    }
    return false;
  }

  const std::shared_ptr<const std::string> file_;
  const std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
  bool starts_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

tl::unexpected<Error> errorAt(std::string_view file, int line, std::string_view text) {
  std::string message = fmt::format("{}:{} - Error during parsing: {}", file, line, text);
  // One line, whatever it quotes: several errors are separated by their lines.
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return fail(std::move(message));
}

Result<std::vector<Token>> tokenize(std::string_view file, std::string_view text) { return Lexer(file, text).run(); }

}  // namespace idetcd::config
