#include "app/named_files.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "etcd/client.h"
#include "resolve/hosts_table.h"
#include "resolve/upstream.h"
#include "resolve/watched_file.h"

namespace idetcd::app {

namespace {

using config::Directive;
using config::Token;
using Errors = std::vector<Error>;

struct Line {
  std::vector<std::string> words;
  int number = 0;
};

// The directive's own line, which begins with its name, and the lines of its block.
std::vector<Line> linesOf(const Directive& directive) {
  std::vector<Line> lines{{.words = {directive.name}, .number = directive.line}};
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

class Checker {
 public:
  explicit Checker(const Directive& directive) : directive_(directive) {}

  Errors check() {
    const std::vector<Line> lines = linesOf(directive_);
    if (directive_.name == "hosts" && lines[0].words.size() > 1) checkHosts(lines[0].words[1], lines[0].number);
    if (directive_.name == "forward") {
      for (size_t i = 2; i < lines[0].words.size(); ++i) checkTarget(lines[0].words[i], lines[0].number);
    }
    if (directive_.name == "forward" || directive_.name == "idetcd") {
      for (size_t i = 1; i < lines.size(); ++i) {
        if (lines[i].words[0] == "tls") checkTls(lines[i]);
      }
    }
    return std::move(errors_);
  }

 private:
  void add(int line, const std::string& text) {
    errors_.push_back(config::errorAt(directive_.file, line, text).value());
  }

  std::optional<std::string> read(const std::string& path, int line) {
    auto content = resolve::WatchedFile(path).readIfChanged();
    if (content) return std::move(*content);
    add(line, fmt::format("{}: {}; write: the path of a file that can be read", path, content.error().message));
    return std::nullopt;
  }

  void checkHosts(const std::string& path, int line) {
    const auto content = read(path, line);
    if (!content) return;
    std::string_view rest = *content;
    for (int number = 1; !rest.empty(); ++number) {
      std::string_view text = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(text.size() + 1, rest.size()));
      text = text.substr(0, text.find('#'));
      const size_t begin = text.find_first_not_of(" \t\r");
      if (begin == text.npos) continue;
      const std::string_view address = text.substr(begin, text.find_first_of(" \t\r", begin) - begin);
      if (resolve::parseHostsAddress(address)) continue;
      add(line, fmt::format("{}:{}: not an IP address: '{}'; write: ADDRESS NAME...", path, number, address));
    }
  }

  // A TO that is neither an address nor a file that exists is refused where the directive is read.
  void checkTarget(const std::string& word, int line) {
    const auto target = resolve::parseUpstreamTarget(word);
    if (!target || target->server) return;
    const auto content = read(target->file, line);
    if (content && resolve::parseResolvConf(*content).empty())
      add(line, fmt::format("{}: there is no server in it; write: nameserver IP", target->file));
  }

  // `tls [CERT KEY] [CA]`. Each file by itself first, so that all that are missing are named.
  void checkTls(const Line& line) {
    const std::vector<std::string> paths(line.words.begin() + 1, line.words.end());
    if (paths.empty() || paths.size() > 3) return;
    bool readable = true;
    for (const std::string& path : paths) readable &= read(path, line.number).has_value();
    if (!readable) return;
    etcd::Client::Options options;
    options.endpoints = {"https://localhost:2379"};  // is not asked
    etcd::TlsFiles& files = options.tls.emplace();
    if (paths.size() % 2 == 1) files.ca_file = paths.back();
    if (paths.size() >= 2) {
      files.certificate_file = paths[0];
      files.key_file = paths[1];
    }
    if (const auto usable = etcd::Client::checkTlsFiles(options); !usable)
      add(line.number, fmt::format("{}; write: tls [CERT KEY] [CA], PEM files", usable.error().message));
  }

  const Directive& directive_;
  Errors errors_;
};

}  // namespace

std::vector<Error> checkNamedFiles(const Directive& directive) { return Checker(directive).check(); }

}  // namespace idetcd::app
