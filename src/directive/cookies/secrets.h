// The secrets of DNS cookies as text. What is wrong with one is said without it. Any thread.
#pragma once

#include "base/hash.h"
#include "base/result.h"

namespace idetcd::directive {

struct CookieSettings {
  bool off = false;
  bool require = false;
  std::vector<SipHashKey> secrets;
  std::string secret_file;
};

inline constexpr size_t kMaxSecrets = 4;  // each is tried for a cookie that none of them has made

// 32 hexadecimal digits.
std::optional<SipHashKey> parseSecret(std::string_view text);

// One secret a line; empty lines and those that begin with # are skipped. The error does not name the file.
Result<std::vector<SipHashKey>> parseSecrets(std::string_view content);

// As above, of a file that its owner and group alone can read. The error begins with the path. Blocks.
Result<std::vector<SipHashKey>> readSecrets(const std::string& path);

}  // namespace idetcd::directive
