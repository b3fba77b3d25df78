#include "config/corefile.h"

#include "config/syntax.h"
#include "config/token_stream.h"

namespace idetcd::config {
namespace {

constexpr std::string_view kStrayBrace = "Unexpected '}' because no matching opening brace";

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
                   fmt::format("cannot serve dns://{}{} - it is already defined", key.text, on));
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

Result<Corefile> parseCorefile(std::string_view file_name, std::string_view text, const ParseOptions& options,
                               const Environment& environment) {
  return Parser(options, environment).run(file_name, text);
}

}  // namespace idetcd::config
