#include "directive/cookies/setup.h"

#include <utility>

#include <fmt/format.h>

#include "config/arguments.h"
#include "config/named_files.h"
#include "config/option_table.h"
#include "directive/cookies/secrets.h"

namespace idetcd::directive {

namespace {

class CookiesParser {
 public:
  explicit CookiesParser(config::DirectiveCursor& cursor) : cursor_(cursor) {}

  // `cookies [off] { … }`
  Result<CookieSettings> parse() {
    const auto head = readHead();
    static constexpr config::OptionTable<CookiesParser, 3> kOptions{{
        {"secret", "secret HEX..., each of 32 digits", &CookiesParser::readSecret},
        {"secret_file", "secret_file FILE", &CookiesParser::readSecretFile},
        {"require", "require", &CookiesParser::readRequire},
    }};
    if (auto read = config::readBlock(cursor_, *this, kOptions, nullptr, head); !read) {
      return tl::unexpected(read.error());
    }
    if (!settings_.secrets.empty() && !settings_.secret_file.empty()) {
      return cursor_.error("secret and secret_file exclude each other");
    }
    if (settings_.off && (settings_.require || !settings_.secrets.empty() || !settings_.secret_file.empty())) {
      return cursor_.error("cookies that are off have no options");
    }
    return std::move(settings_);
  }

 private:
  Result<void> readHead() {
    const auto arguments = cursor_.args(0, 1);
    if (!arguments) return tl::unexpected(arguments.error());
    settings_.off = !arguments->empty();
    if (settings_.off && arguments->front() != "off") {
      return cursor_.error("the argument is neither off nor a block");  // it may be a secret
    }
    return {};
  }

  Result<void> readSecret() {
    const auto words = cursor_.secretArgs(1, kMaxSecrets);
    if (!words) return tl::unexpected(words.error());
    settings_.secrets.clear();
    for (const std::string& word : *words) {
      const auto secret = parseSecret(word);
      if (!secret) return cursor_.error("a secret is not 32 hexadecimal digits");
      settings_.secrets.push_back(*secret);
    }
    return {};
  }

  Result<void> readSecretFile() {
    auto path = cursor_.oneArg();
    if (!path) return tl::unexpected(path.error());
    settings_.secret_file = std::move(*path);
    return {};
  }

  Result<void> readRequire() { return config::readFlag(cursor_, settings_.require); }

  config::DirectiveCursor& cursor_;
  CookieSettings settings_;
};

std::vector<Error> checkFiles(const config::Directive& directive) {
  config::NamedFiles files(directive);
  for (const auto& line : files.lines()) {
    if (line.words.size() != 2 || line.words.front() != "secret_file") continue;
    if (const auto read = readSecrets(line.words[1]); !read) files.add(line.number, read.error().message);
  }
  return std::move(files).errors();
}

}  // namespace

Result<void> CookiesDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  auto settings = CookiesParser(cursor).parse();
  if (!settings) return tl::unexpected(settings.error());
  settings_ = std::move(*settings);
  return {};
}

Result<void> CookiesDirective::prepare(resolve::Process& process, const resolve::Block&) {
  if (settings_.off) return {};
  if (!settings_.secret_file.empty()) {
    auto secrets = readSecrets(settings_.secret_file);
    if (!secrets) return fail(fmt::format("plugin/cookies: {}", secrets.error().message));
    settings_.secrets = std::move(*secrets);
  }
  cookies_ =
      settings_.secrets.empty() ? process.cookies : std::make_shared<const dns::ServerCookies>(settings_.secrets);
  return {};
}

Result<void> CookiesDirective::addTo(resolve::Chain& chain, const resolve::LoopContext&) {
  chain.parts.cookies = cookies_;
  chain.parts.requires_cookie = settings_.require;
  return {};
}

const resolve::DirectiveType kCookiesDirective{.name = "cookies",
                                               .syntax = "cookies [off] [{ ... }]",
                                               .make = resolve::makeDirective<CookiesDirective>,
                                               .check_files = checkFiles,
                                               .once = true};

}  // namespace idetcd::directive
