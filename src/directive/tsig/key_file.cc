#include "directive/tsig/key_file.h"

#include "base/file.h"
#include "zones/text_data.h"

namespace idetcd::directive {

namespace {

constexpr std::string_view kDefaultAlgorithm = "hmac-sha256";

// The words of named.conf: names, quoted texts, and each brace and semicolon.
class KeyFileWords {
 public:
  explicit KeyFileWords(std::string_view text) : text_(text) {}

  int line() const { return line_; }
  // Empty: the end.
  std::string_view next() {
    skipSpace();
    if (text_.empty()) return {};
    const char first = text_.front();
    if (first == '{' || first == '}' || first == ';') return take(1);
    if (first != '"') return take(std::min(text_.find_first_of(" \t\r\n{};\"#"), text_.size()));
    const std::string_view word = take(std::min(text_.find('"', 1), text_.size() - 1) + 1);
    return word.size() < 2 ? word : word.substr(1, word.size() - 2);
  }

 private:
  std::string_view take(size_t size) {
    const std::string_view taken = text_.substr(0, size);
    text_.remove_prefix(size);
    line_ += static_cast<int>(std::ranges::count(taken, '\n'));
    return taken;
  }
  void skipSpace() {
    for (;;) {
      const size_t space = std::min(text_.find_first_not_of(" \t\r\n"), text_.size());
      take(space);
      if (text_.starts_with('#') || text_.starts_with("//")) {
        take(std::min(text_.find('\n'), text_.size()));
      } else if (text_.starts_with("/*")) {
        const size_t end = text_.find("*/", 2);
        take(end == text_.npos ? text_.size() : end + 2);
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  int line_ = 1;
};

}  // namespace

Result<tsig::Key> makeKey(std::string_view name, std::string_view secret, std::string_view algorithm) {
  tsig::Key key;
  const auto parsed = dns::Name::parse(name);
  if (!parsed || parsed->isRoot()) return fail(fmt::format("'{}' is no name of a key", name));
  key.name = *parsed;
  const auto known = tsig::parseAlgorithm(algorithm);
  if (!known)
    return fail(fmt::format("'{}' is none of hmac-sha1, hmac-sha224, hmac-sha256, hmac-sha384 and hmac-sha512", algorithm));
  key.algorithm = *known;
  if (!zones::decodeBase64(secret, key.secret) || key.secret.empty())
    return fail(fmt::format("the secret of key '{}' is not in base64", name));
  return key;
}

Result<std::vector<tsig::Key>> parseKeyFile(std::string_view content) {
  std::vector<tsig::Key> keys;
  KeyFileWords words(content);
  const auto wrong = [&words](std::string_view what) { return fail(fmt::format("line {}: {}", words.line(), what)); };
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word == ";") continue;
    if (word != "key") return wrong(R"(a key is written as: key "NAME" { algorithm ALGORITHM; secret "KEY"; };)");
    const std::string_view name = words.next();
    if (words.next() != "{") return wrong("the name of a key is followed by {");
    std::string_view secret;
    std::string_view algorithm = kDefaultAlgorithm;
    for (word = words.next(); word != "}"; word = words.next()) {
      if (word == "secret")
        secret = words.next();
      else if (word == "algorithm")
        algorithm = words.next();
      else
        return wrong("a key has a secret and maybe an algorithm, and }");
      if (words.next() != ";") return wrong("a semicolon is missing");
    }
    auto key = makeKey(name, secret, algorithm);
    if (!key) return wrong(key.error().message);
    keys.push_back(std::move(*key));
  }
  if (keys.empty()) return fail("there is no key in it");
  return keys;
}

Result<std::vector<tsig::Key>> readKeyFile(const std::string& path) {
  const auto content = readFile(path, kMaxKeyFileSize);
  if (!content) return fail(fmt::format("{}: {}", path, content.error().message));
  auto keys = parseKeyFile(*content);
  if (!keys) return fail(fmt::format("{}: {}", path, keys.error().message));
  return keys;
}

}  // namespace idetcd::directive
