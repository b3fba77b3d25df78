// The directive `cookies`: DNS cookies of clients and of upstreams.
#include <charconv>
#include <sys/stat.h>

#include "base/file.h"
#include "config/option_table.h"
#include "directive/cookies/secrets.h"
#include "dns/server_cookies.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

namespace {

constexpr size_t kMaxFileBytes = 4096;

// `cookies [off]`
Result<void> readOff(config::DirectiveCursor& cursor, CookieSettings& settings) {
  const auto arguments = cursor.args(0, 1);
  if (!arguments) return tl::unexpected(arguments.error());
  settings.off = !arguments->empty();
  if (!settings.off || arguments->front() == "off") return {};
  return cursor.error("the argument is neither off nor a block");  // it may be a secret
}

Result<void> readSecret(config::DirectiveCursor& cursor, CookieSettings& settings) {
  const auto words = cursor.secretArgs(1, kMaxSecrets);
  if (!words) return tl::unexpected(words.error());
  settings.secrets.clear();
  for (const std::string& word : *words) {
    const auto secret = parseSecret(word);
    if (!secret) return cursor.error("a secret is not 32 hexadecimal digits");
    settings.secrets.push_back(*secret);
  }
  return {};
}

void checkFiles(config::NamedFiles& files) {
  for (const auto& line : files.lines()) {
    if (line.words.size() != 2 || line.words.front() != "secret_file") continue;
    if (const auto read = readSecrets(line.words[1]); !read) files.add(line.number, read.error().message);
  }
}

class CookiesDirective final : public resolve::Configured<CookieSettings>, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    using Settings = CookieSettings;
    static const config::Options<Settings> kOptions{
        readOff,
        {{"secret", "secret HEX..., each of 32 digits", readSecret},
         {"secret_file", "secret_file FILE", config::text(&Settings::secret_file)},
         {"require", "require", config::flag(&Settings::require)}}};
    if (auto read = kOptions.read(cursor, settings_); !read) return read;
    const bool has_secrets = !settings_.secrets.empty();
    const bool has_file = !settings_.secret_file.empty();
    if (has_secrets && has_file) return cursor.error("secret and secret_file exclude each other");
    if (settings_.off && (settings_.require || has_secrets || has_file)) {
      return cursor.error("cookies that are off have no options");
    }
    return {};
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
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
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext&) override {
    chain.parts.cookies = cookies_;
    chain.parts.requires_cookie = settings_.require;
    return {};
  }
  void fill(resolver::ResolverSettings& to) const override { to.cookies = !settings_.off; }

 private:
  std::shared_ptr<const dns::ServerCookies> cookies_;
};

}  // namespace

std::optional<SipHashKey> parseSecret(std::string_view text) {
  SipHashKey key{};
  if (text.size() != 2 * key.size()) return std::nullopt;
  for (uint8_t& byte : key) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + 2, byte, 16);
    if (error != std::errc{} || end != text.data() + 2) return std::nullopt;
    text.remove_prefix(2);
  }
  return key;
}

Result<std::vector<SipHashKey>> parseSecrets(std::string_view content) {
  std::vector<SipHashKey> secrets;
  for (size_t number = 1; !content.empty(); ++number) {
    const size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    const auto secret = parseSecret(line);
    if (!secret) return fail(fmt::format("line {} is not 32 hexadecimal digits", number));
    if (secrets.size() == kMaxSecrets) return fail(fmt::format("there are more than {} secrets in it", kMaxSecrets));
    secrets.push_back(*secret);
  }
  if (secrets.empty()) return fail("there is no secret in it; write 32 hexadecimal digits");
  return secrets;
}

Result<std::vector<SipHashKey>> readSecrets(const std::string& path) {
  const auto wrong = [&path](std::string_view what) { return fail(fmt::format("{}: {}", path, what)); };
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return wrong(std::strerror(errno));
  if ((status.st_mode & S_IRWXO) != 0) return wrong("everybody may use it; a secret needs: chmod o= FILE");
  const auto content = readFile(path, kMaxFileBytes);
  if (!content) return wrong(content.error().message);
  auto secrets = parseSecrets(*content);
  if (!secrets) return wrong(secrets.error().message);
  return secrets;
}

extern const resolve::DirectiveType kCookiesDirective{.name = "cookies",
                                                      .syntax = "cookies [off] [{ ... }]",
                                                      .make = resolve::makeDirective<CookiesDirective>,
                                                      .check_files = checkFiles,
                                                      .once = true};

}  // namespace idetcd::directive
