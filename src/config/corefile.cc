#include "config/corefile.h"

#include <filesystem>

#include "base/text.h"

namespace idetcd::config {

namespace {

constexpr std::string_view kWrite = "; write: ";

// Letters to insert, delete, replace or swap with their neighbour; the words are short.
size_t editDistance(std::string_view a, std::string_view b) {
  constexpr size_t kLongest = 40;
  if (a.size() > kLongest || b.size() > kLongest) return kLongest;
  std::array<std::array<size_t, kLongest + 1>, kLongest + 1> cost{};
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lowerCase(a[i - 1]) == lowerCase(b[j - 1]);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (same ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && lowerCase(a[i - 1]) == lowerCase(b[j - 2]) && lowerCase(a[i - 2]) == lowerCase(b[j - 1]);
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

constexpr std::string_view kStrayBrace = "Unexpected '}' because no matching opening brace";

// The tokens of a Corefile with its imports spliced in: a stack of the files and snippets that are being read. One
// thread.
class TokenStream {
 public:
  explicit TokenStream(const Environment& environment) : environment_(environment) {}

  // Reads on in `text` until its end, then where it was before.
  Result<void> push(std::string_view file, std::string_view text) {
    last_.file = std::make_shared<const std::string>(file);
    last_.line = 1;
    Result<Tokens> tokens = readTokens(std::string(file), text);
    if (!tokens) return tl::unexpected(tokens.error());
    return pushSource(environment_.absolutePath(std::string(file)), std::move(*tokens));
  }

  // The next token, or nullptr at the end of everything. Valid until the next call of any function.
  const Token* peek() {
    // A source is left only when something behind it is asked for: until then an import at its very end still counts as
    // inside it, and a cycle through it is seen.
    while (!sources_.empty() && sources_.back().next == sources_.back().tokens->size()) sources_.pop_back();
    return sources_.empty() ? nullptr : &(*sources_.back().tokens)[sources_.back().next];
  }
  // REQUIRES: peek() != nullptr.
  Token take() {
    const Token* next = peek();
    assert(next != nullptr);
    last_ = *next;
    ++sources_.back().next;
    return last_;
  }
  // The token that was taken last: where an unexpected end is reported. Before the first, an empty one in line 1.
  const Token& last() const { return last_; }

  // Keeps the body of a snippet for later imports.
  Result<void> defineSnippet(const Token& place, std::string name, std::vector<Token> body) {
    if (!body.empty()) body.front().starts_line = true;
    auto tokens = std::make_shared<const std::vector<Token>>(std::move(body));
    if (!snippets_.emplace(name, std::move(tokens)).second) {
      return errorAt(place, fmt::format("redeclaration of previously declared snippet {}", name));
    }
    return {};
  }
  // REQUIRES: `import` was just taken. Takes its argument and goes on in what that names: a snippet, a file, or the
  // files that a pattern matches.
  Result<void> import() {
    const Result<std::string> argument = importArgument();
    if (!argument) return tl::unexpected(argument.error());
    const auto snippet = snippets_.find(*argument);
    if (snippet == snippets_.end()) return importFiles(*argument);
    return pushSource(fmt::format("({})", *argument), snippet->second);
  }

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  using Tokens = std::shared_ptr<const std::vector<Token>>;
  struct Source {
    std::string name;  // the snippet's or the file's, to detect cycles
    Tokens tokens;
    size_t next = 0;
  };

  Result<std::string> importArgument() {
    assert(!sources_.empty());
    const Source& source = sources_.back();
    const std::vector<Token>& tokens = *source.tokens;
    // The text after the argument must begin a new line, so that the imported text is a sequence of whole lines.
    const auto argument_at = [&](size_t i) { return i < tokens.size() && !tokens[i].starts_line; };
    if (!argument_at(source.next)) {
      return errorAt(last_, "Wrong argument count or unexpected line ending after 'import'");
    }
    const std::string argument = expandVariables(take().text, environment_);
    if (argument.empty()) return errorAt(last_, "Import requires a non-empty filepath");
    if (argument_at(source.next)) {
      return errorAt(last_, "Import takes only one argument (glob pattern or file)");
    }
    return argument;
  }
  Result<void> importFiles(const std::string& pattern) {
    const std::filesystem::path directory = std::filesystem::path(environment_.absolutePath(*last_.file)).parent_path();
    const std::string path = (directory / pattern).lexically_normal().string();
    // Each wild card multiplies the work of matching.
    const bool has_class = path.find('[') != std::string::npos && path.find(']') != std::string::npos;
    if (has_class || std::count(path.begin(), path.end(), '*') > 1 || std::count(path.begin(), path.end(), '?') > 1) {
      return errorAt(last_, fmt::format("Glob pattern may only contain one wildcard (*), but has others: {}", path));
    }
    const std::vector<std::string> matches = environment_.glob(path);
    if (matches.empty()) {
      if (path.find_first_of("*?[]") == std::string::npos) {
        auto error = errorAt(last_, fmt::format("File to import not found: {}", pattern));
        error.value().code = ErrorCode::kNotFound;
        return error;
      }
      warnings_.push_back(fmt::format("No files matching import glob pattern: {}", pattern));
    }

    auto together = std::make_shared<std::vector<Token>>();
    const Token place = last_;
    for (const std::string& match : matches) {
      auto file = files_.find(match);
      if (file == files_.end()) {
        const Result<std::string> text = environment_.readFile(match, kMaxInputBytes);
        if (!text) return errorAt(place, fmt::format("Could not import {}: {}", match, text.error().message));
        Result<Tokens> tokens = readTokens(match, *text);
        if (!tokens) return tl::unexpected(tokens.error());
        file = files_.emplace(match, std::move(*tokens)).first;
      }
      if (matches.size() == 1) return pushSource(match, file->second);
      together->insert(together->end(), file->second->begin(), file->second->end());
    }
    return pushSource(path, std::move(together));
  }
  Result<void> pushSource(std::string name, Tokens tokens) {
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (sources_[i].name != name) continue;
      std::string cycle;
      for (; i < sources_.size(); ++i) cycle += sources_[i].name + " -> ";
      return errorAt(last_, fmt::format("Import cycle: {}{}", cycle, name));
    }
    if (sources_.size() > kMaxImportDepth) {
      return errorAt(last_, fmt::format("maximum import depth ({}) exceeded", kMaxImportDepth));
    }
    if (imports_++ > kMaxImports) {  // the first source is no import
      return errorAt(last_, fmt::format("more than {} imports", kMaxImports));
    }
    if (tokens->size() > kMaxTokens - tokens_) return errorAt(last_, fmt::format("more than {} tokens", kMaxTokens));
    tokens_ += tokens->size();
    sources_.push_back(Source{std::move(name), std::move(tokens), 0});
    return {};
  }
  Result<Tokens> readTokens(const std::string& shown_file, std::string_view text) {
    if (text.size() > kMaxInputBytes - bytes_read_) {
      return errorAt(last_, fmt::format("{}: more than {} bytes in all", shown_file, kMaxInputBytes));
    }
    bytes_read_ += text.size();
    Result<std::vector<Token>> tokens = tokenize(shown_file, text);
    if (!tokens) return tl::unexpected(tokens.error());
    return std::make_shared<const std::vector<Token>>(std::move(*tokens));
  }

  const Environment& environment_;
  std::vector<Source> sources_;
  std::map<std::string, Tokens, std::less<>> snippets_;
  std::map<std::string, Tokens, std::less<>> files_;  // imported before: one reading serves all imports
  std::vector<std::string> warnings_;
  Token last_;
  size_t bytes_read_ = 0;
  size_t tokens_ = 0;
  size_t imports_ = 0;
};

class Parser {
 public:
  Parser(const ParseOptions& options, const Environment& environment)
      : options_(options), environment_(environment), stream_(environment) {}

  Result<Corefile> run(std::string_view file_name, std::string_view text) {
    if (auto pushed = stream_.push(file_name, text); !pushed) return tl::unexpected(pushed.error());
    while (stream_.peek() != nullptr) {
      if (auto parsed = parseBlock(); !parsed) return tl::unexpected(parsed.error());
    }
    corefile_.warnings = stream_.warnings();
    return std::move(corefile_);
  }

 private:
  // One word in front of a server block, or the name of a snippet.
  struct Key {
    std::string text;
    Token token;
  };

  // A snippet or a server block. A text that only imports ends here with no keys.
  Result<void> parseBlock() {
    Result<std::vector<Key>> keys = parseKeys();
    if (!keys) return tl::unexpected(keys.error());
    const Token* next = stream_.peek();
    if (keys->empty()) {
      return next == nullptr ? Result<void>() : errorAt(*next, "Server block without a zone");
    }
    const std::string& first = keys->front().text;
    if (keys->size() == 1 && first.size() > 2 && first.front() == '(' && first.back() == ')') {
      return parseSnippet(keys->front().token, first.substr(1, first.size() - 2));
    }
    return parseServerBlock(*keys);
  }

  // Keys end with the line, unless a comma promises another, or at the brace.
  Result<std::vector<Key>> parseKeys() {
    std::vector<Key> keys;
    bool any_token = false;
    bool expecting_another = false;
    while (const Token* next = stream_.peek()) {
      if (any_token && !expecting_another && next->starts_line) break;
      if (next->opens()) {
        if (expecting_another) {
          return errorAt(*next, "Expected another address but had '{' - check for extra comma");
        }
        break;
      }
      if (next->closes()) return errorAt(*next, kStrayBrace);
      const Token token = stream_.take();
      if (token.starts_line && isImport(token)) {
        if (auto imported = import(); !imported) return tl::unexpected(imported.error());
        continue;
      }
      any_token = true;
      expecting_another = splitKeys(token, &keys);
    }
    if (expecting_another) return errorAt(stream_.last(), "Unexpected EOF");
    return keys;
  }

  // Adds the keys of one token, which commas may separate; true if it ends with one. Commas are looked for in what was
  // written, so that a variable's value stays one key; only at its very end may a value have a comma.
  bool splitKeys(const Token& token, std::vector<Key>* keys) {
    const auto add = [&](std::string_view written) {
      std::string text = expandVariables(written, environment_);
      const bool comma = token.kind == Token::Kind::kWord && text.ends_with(',') && !text.ends_with("\\,");
      if (comma) text.pop_back();
      if (!text.empty()) keys->push_back(Key{std::move(text), token});
      return comma;
    };
    if (token.kind == Token::Kind::kQuoted) return add(token.text);
    std::string_view rest = token.text;
    for (size_t i = 0; i < rest.size(); ++i) {
      if (rest[i] == '\\') {
        ++i;
      } else if (rest[i] == ',') {
        add(rest.substr(0, i));
        rest.remove_prefix(i + 1);
        if (rest.empty()) return true;
        i = static_cast<size_t>(-1);
      }
    }
    return add(rest);
  }

  bool isImport(const Token& token) const { return expandVariables(token.text, environment_) == "import"; }

  Result<void> parseSnippet(const Token& place, std::string name) {
    const Token* open = stream_.peek();
    if (open == nullptr || !open->opens()) {
      return errorAt(open != nullptr ? *open : stream_.last(),
                     fmt::format("Expected '{{' after the snippet ({})", name));
    }
    const int open_line = stream_.take().line;
    std::vector<Token> body;
    for (int depth = 1; stream_.peek() != nullptr;) {
      Token token = stream_.take();
      if (token.opens()) ++depth;
      if (token.closes() && --depth == 0) return stream_.defineSnippet(place, std::move(name), std::move(body));
      body.push_back(std::move(token));
    }
    return unclosed(open_line);
  }

  Result<void> parseServerBlock(const std::vector<Key>& keys) {
    const Token& place = keys.front().token;
    ServerBlock block{.file = *place.file, .line = place.line, .keys = {}, .directives = {}};
    for (const Key& key : keys) {
      Result<std::vector<ServerKey>> parsed = parseServerKey(key.text, options_.default_port);
      if (!parsed) {
        const auto noted = note(errorAt(key.token, parsed.error().message), "ZONE[:PORT]... { DIRECTIVES }");
        if (!noted) return noted;
        continue;
      }
      block.keys.insert(block.keys.end(), parsed->begin(), parsed->end());
    }
    if (auto parsed = parseDirectives(&block); !parsed) return parsed;
    if (auto unique = checkUnique(block); !unique) {
      const auto noted = note(tl::unexpected(unique.error()), "a zone and port in one block only");
      if (!noted) return noted;
    }
    corefile_.blocks.push_back(std::move(block));
    return {};
  }

  // An error after which the rest can be read. `syntax`: what to write instead.
  Result<void> note(tl::unexpected<Error> error, std::string_view syntax) const {
    if (options_.errors == nullptr) return error;
    options_.errors->push_back(Error{.message = withSyntax(error.value().message, syntax)});
    return {};
  }

  // Without what is not there, the rest can be read.
  Result<void> import() {
    auto imported = stream_.import();
    if (imported || imported.error().code != ErrorCode::kNotFound) return imported;
    return note(tl::unexpected(imported.error()), "import NAME|FILE|GLOB, NAME being of a snippet further up");
  }

  // To the closing brace; to the end of everything if no brace opens: then the block is the only one, or the last.
  Result<void> parseDirectives(ServerBlock* block) {
    std::optional<int> open_line;
    if (const Token* next = stream_.peek(); next != nullptr && next->opens()) open_line = stream_.take().line;
    while (const Token* next = stream_.peek()) {
      if (next->closes() && !open_line) return errorAt(*next, kStrayBrace);
      const Token token = stream_.take();
      if (token.closes()) return {};
      if (isImport(token)) {
        if (auto imported = import(); !imported) return imported;
      } else {
        Result<Directive> directive = parseDirective(token);
        if (!directive) return tl::unexpected(directive.error());
        block->directives.push_back(std::move(*directive));
      }
    }
    return open_line ? unclosed(*open_line) : Result<void>();
  }

  Result<Directive> parseDirective(const Token& name) {
    Directive directive{expandVariables(name.text, environment_), *name.file, name.line, {}};
    const std::vector<std::string>& known = options_.known_directives;
    if (name.opens() || (!known.empty() && std::find(known.begin(), known.end(), directive.name) == known.end())) {
      const std::vector<std::string>& foreign = options_.foreign_directives;
      const bool is_foreign = std::find(foreign.begin(), foreign.end(), directive.name) != foreign.end();
      return errorAt(name, fmt::format("Unknown directive '{}'{}", directive.name,
                                       is_foreign ? ": CoreDNS has it, it is not supported here" : ""));
    }
    int depth = 0;
    int open_line = 0;
    bool block_closed = false;
    while (const Token* next = stream_.peek()) {
      if (depth == 0 && next->starts_line) return directive;
      if (depth == 0 && next->closes())
        return errorAt(*next, fmt::format("{}; what ends a server block stands on a line of its own", kStrayBrace));
      if (block_closed) return errorAt(*next, fmt::format("Unexpected token '{}' after the closing brace", next->text));
      Token token = stream_.take();
      if (token.opens() && ++depth == 1) open_line = token.line;
      if (token.closes()) block_closed = --depth == 0;
      if (depth > 0 && token.starts_line && isImport(token)) {
        if (auto imported = import(); !imported) return tl::unexpected(imported.error());
        continue;
      }
      token.text = expandVariables(token.text, environment_);
      directive.tokens.push_back(std::move(token));
    }
    if (depth > 0) return unclosed(open_line);
    return directive;
  }

  // A zone and a port belong to one block only, unless the blocks listen on different addresses.
  Result<void> checkUnique(const ServerBlock& block) const {
    const std::vector<std::string_view> own_hosts = listenHosts(block);
    for (auto key = block.keys.begin(); key != block.keys.end(); ++key) {
      if (std::find(block.keys.begin(), key, *key) != key) return alreadyDefined(block, *key, own_hosts);
      if (auto one = checkScheme(block, *key); !one) return one;
      for (const ServerBlock& other : corefile_.blocks) {
        if (std::find(other.keys.begin(), other.keys.end(), *key) == other.keys.end()) continue;
        const std::vector<std::string_view> hosts = listenHosts(other);
        const bool disjoint =
            !own_hosts.empty() && !hosts.empty() &&
            std::find_first_of(hosts.begin(), hosts.end(), own_hosts.begin(), own_hosts.end()) == hosts.end();
        if (!disjoint) return alreadyDefined(block, *key, own_hosts);
      }
    }
    return {};
  }

  // A port is for one scheme, whatever the addresses: a client knows the scheme by the port.
  Result<void> checkScheme(const ServerBlock& block, const ServerKey& key) const {
    const auto check = [&](const ServerBlock& other) -> Result<void> {
      const auto rival = std::ranges::find_if(other.keys, [&key](const ServerKey& one) {
        return one.port == key.port && key.port != 0 && one.scheme != key.scheme;
      });
      if (rival == other.keys.end()) return {};
      return errorAt(
          block.file, block.line,
          fmt::format("cannot serve {}://{}:{} - port {} is for {}://{}", schemeName(key.scheme), key.zone.toString(),
                      key.port, key.port, schemeName(rival->scheme), rival->zone.toString()));
    };
    for (const ServerBlock& other : corefile_.blocks) {
      if (auto checked = check(other); !checked) return checked;
    }
    return check(block);
  }

  // The arguments of the directive that names addresses; they live as long as the block.
  std::vector<std::string_view> listenHosts(const ServerBlock& block) const {
    std::vector<std::string_view> hosts;
    for (const Directive& directive : block.directives) {
      if (directive.name != options_.listen_directive) continue;
      for (const Token& token : directive.tokens) {
        if (token.opens()) break;
        hosts.push_back(token.text);
      }
    }
    return hosts;
  }

  static tl::unexpected<Error> alreadyDefined(const ServerBlock& block, const ServerKey& key,
                                              const std::vector<std::string_view>& hosts) {
    const std::string on = hosts.empty() ? "" : fmt::format(" on {}", fmt::join(hosts, ", "));
    return errorAt(block.file, block.line,
                   fmt::format("cannot serve {}{}{} - it is already defined",
                               key.scheme == Scheme::kDns ? "dns://" : "", key.text, on));
  }

  tl::unexpected<Error> unclosed(int open_line) const {
    return errorAt(stream_.last(), fmt::format("Unexpected EOF, the '{{' of line {} is not closed", open_line));
  }

  const ParseOptions& options_;
  const Environment& environment_;
  TokenStream stream_;
  Corefile corefile_;
};

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  std::string_view best;
  size_t least = word.size() <= 4 ? 2 : 3;  // fewer edits than this
  for (const std::string_view candidate : known) {
    const size_t distance = editDistance(word, candidate);
    if (distance >= least || distance >= candidate.size()) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  if (const auto meant = nearest(word, known); !meant.empty()) return fmt::format(", did you mean '{}'?", meant);
  return fmt::format("{}one of {}", kWrite, fmt::join(known, ", "));
}

std::string withSyntax(std::string_view messages, std::string_view syntax) {
  std::string text;
  while (!messages.empty()) {
    const std::string_view line = messages.substr(0, messages.find('\n'));
    messages.remove_prefix(std::min(line.size() + 1, messages.size()));
    if (!text.empty()) text += '\n';
    text += line;
    const bool says = line.find(kWrite) != line.npos || line.find("did you mean") != line.npos;
    if (!says && !syntax.empty()) text += fmt::format("{}{}", kWrite, syntax);
  }
  return text;
}

Result<Corefile> parseCorefile(std::string_view file_name, std::string_view text, const ParseOptions& options,
                               const Environment& environment) {
  return Parser(options, environment).run(file_name, text);
}

}  // namespace idetcd::config
