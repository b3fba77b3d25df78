#include "config/named_files.h"

#include "base/watched_file.h"

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

NamedFiles::NamedFiles(const Directive& directive) : directive_(directive), lines_(linesOf(directive)) {}

void NamedFiles::add(int line, std::string_view text) {
  errors_.push_back(errorAt(directive_.file, line, text).value());
}

std::optional<std::string> NamedFiles::read(const std::string& path, int line) {
  auto content = WatchedFile(path).readIfChanged();
  if (content) return std::move(*content);
  add(line, fmt::format("{}: {}; write: the path of a file that can be read", path, content.error().message));
  return std::nullopt;
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
