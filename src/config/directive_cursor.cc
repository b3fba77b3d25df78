#include "config/directive_cursor.h"

#include <filesystem>

#include "base/file_watch.h"

namespace idetcd::config {

namespace {

std::vector<NamedFiles::Line> linesOf(const Directive& directive) {
  std::vector<NamedFiles::Line> lines{{.words = {directive.name}, .number = directive.line}};
  bool new_line = false;
  for (const Token& token : directive.tokens) {
    if (token.opens() || token.closes()) {
      new_line = true;
      continue;
    }
    if (new_line || token.starts_line) lines.push_back({.words = {}, .number = token.line});
    new_line = false;
    lines.back().words.push_back(token.text);
  }
  return lines;
}

}  // namespace

DirectiveCursor::DirectiveCursor(const Directive& directive)
    : directive_(directive.name),
      tokens_(directive.tokens),
      current_{.text = directive.name,
               .file = std::make_shared<const std::string>(directive.file),
               .line = directive.line,
               .kind = Token::Kind::kWord,
               .starts_line = true} {}

bool DirectiveCursor::nextArg() {
  if (!argumentFollows()) return false;
  advance();
  return true;
}

std::vector<std::string> DirectiveCursor::remainingArgs() {
  std::vector<std::string> values;
  while (nextArg()) values.push_back(value());
  return values;
}

Result<std::vector<std::string>> DirectiveCursor::args(size_t min, size_t max) {
  std::vector<std::string> values = remainingArgs();
  if (values.size() < min || values.size() > max) return argError();
  return values;
}

Result<std::vector<std::string>> DirectiveCursor::secretArgs(size_t min, size_t max) {
  std::vector<std::string> values = remainingArgs();
  if (values.size() < min || values.size() > max) return error("Wrong argument count");
  return values;
}

Result<std::string> DirectiveCursor::oneArg() {
  Result<std::vector<std::string>> values = args(1, 1);
  if (!values) return tl::unexpected(values.error());
  return std::move(values->front());
}

std::string DirectiveCursor::remainingText() {
  std::string first;
  std::string written;
  size_t count = 0;
  for (; nextArg(); ++count) {
    if (count == 0) first = value();
    if (count > 0) written.push_back(' ');
    const bool quoted = current_.kind == Token::Kind::kQuoted;
    if (quoted) written.push_back('"');
    for (const char c : value()) {
      if (quoted && c == '"') written.push_back('\\');
      written.push_back(c);
    }
    if (quoted) written.push_back('"');
  }
  return count > 1 ? written : first;
}

bool DirectiveCursor::nextBlock() {
  if (error_) return false;
  const Token* next = peek();
  if (!in_block_) {
    if (next == nullptr || !next->opens()) return false;
    in_block_ = true;
    advance();
  } else if (argumentFollows()) {
    advance();
    latch(argError());
    return false;
  }
  advance();  // the parser has seen to it that braces balance, so there is a token
  if (!current_.closes()) return true;
  in_block_ = false;
  return false;
}

Result<void> DirectiveCursor::finish() {
  if (!error_ && peek() != nullptr) {
    advance();
    latch(argError());
  }
  if (error_) return tl::unexpected(*error_);
  return {};
}

tl::unexpected<Error> DirectiveCursor::argError() const {
  if (current_.opens()) return error("Unexpected token '{', expecting argument");
  return error(fmt::format("Wrong argument count or unexpected line ending after '{}'", value()));
}

tl::unexpected<Error> DirectiveCursor::error(std::string_view text) const { return config::errorAt(current_, text); }

tl::unexpected<Error> DirectiveCursor::errorAt(int line, std::string_view text) const {
  return config::errorAt(*current_.file, line, text);
}

const Token* DirectiveCursor::peek() const { return next_ < tokens_.size() ? &tokens_[next_] : nullptr; }

void DirectiveCursor::advance() { current_ = tokens_[next_++]; }

bool DirectiveCursor::argumentFollows() const {
  const Token* next = peek();
  // The line behind an opening brace has begun even if the brace is its only neighbour: `{ limit 5`.
  return !error_ && next != nullptr && !next->starts_line && !next->opens() && !next->closes() && !current_.opens();
}

void DirectiveCursor::latch(tl::unexpected<Error> error) { error_ = std::move(error).value(); }

Result<std::vector<dns::Name>> parseZones(const DirectiveCursor& cursor, const std::vector<std::string>& arguments) {
  std::vector<dns::Name> zones;
  for (const std::string& argument : arguments) {
    const auto keys = parseServerKey(argument, 53);
    if (!keys) return cursor.error(keys.error().message);
    for (const ServerKey& key : *keys) zones.push_back(key.zone);
  }
  return zones;
}

std::vector<dns::Name> zonesOf(const std::vector<ServerKey>& keys) {
  std::vector<dns::Name> zones;
  zones.reserve(keys.size());
  for (const ServerKey& key : keys) {
    if (std::ranges::find(zones, key.zone) == zones.end()) zones.push_back(key.zone);
  }
  return zones;
}

NamedFiles::NamedFiles(const Directive& directive, std::vector<dns::Name> zones)
    : directive_(directive), zones_(std::move(zones)), lines_(linesOf(directive)) {}

void NamedFiles::add(int line, std::string_view text) {
  errors_.push_back(errorAt(directive_.file, line, text).value());
}

void NamedFiles::warn(int line, std::string_view text) {
  warnings_.push_back(fmt::format("{}:{}: {}", directive_.file, line, text));
}

std::optional<std::string> NamedFiles::read(const std::string& path, int line) {
  auto content = WatchedFile(path).readIfChanged();
  if (content) return std::move(*content);
  add(line, fmt::format("{}: {}; write: the path of a file that can be read", path, content.error().message));
  return std::nullopt;
}

void NamedFiles::checkDirectories(std::string_view option) {
  for (size_t i = 1; i < lines_.size(); ++i) {
    const Line& line = lines_[i];
    if (line.words[0] != option || line.words.size() < 2) continue;
    const std::string& path = line.words[1];
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    const bool is_other = std::filesystem::exists(status) && !std::filesystem::is_directory(status);
    if (is_other || error == std::errc::not_a_directory)
      add(line.number, fmt::format("{}: Not a directory; write: the path of a directory", path));
  }
}

void NamedFiles::checkTls(const std::function<Result<void>(std::span<const std::string> paths)>& check) {
  for (size_t i = 1; i < lines_.size(); ++i) {
    const Line& line = lines_[i];
    if (line.words[0] != "tls" || line.words.size() < 2 || line.words.size() > 4) continue;
    const std::span<const std::string> paths = std::span(line.words).subspan(1);
    bool readable = true;
    for (const std::string& path : paths) readable &= read(path, line.number).has_value();
    if (!readable) continue;
    if (const auto usable = check(paths); !usable) {
      add(line.number, fmt::format("{}; write: tls [CERT KEY] [CA], PEM files", usable.error().message));
    }
  }
}

}  // namespace idetcd::config
