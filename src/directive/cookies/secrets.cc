#include "directive/cookies/secrets.h"

#include <charconv>
#include <sys/stat.h>

#include "base/file.h"

namespace idetcd::directive {

namespace {

constexpr size_t kMaxFileBytes = 4096;

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

}  // namespace idetcd::directive
