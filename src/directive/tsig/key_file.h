// Keys of transaction signatures, as a Corefile and named.conf write them. Any thread.
#pragma once

#include "base/result.h"
#include "tsig/key.h"

namespace idetcd::directive {

inline constexpr size_t kMaxKeyFileSize = size_t{1} << 20;

// `secret` in base64. Errors do not quote it.
Result<tsig::Key> makeKey(std::string_view name, std::string_view secret, std::string_view algorithm);

// `key "NAME" { algorithm ALGORITHM; secret "KEY"; };`, as often as there are keys, with comments as in C and shells. The
// algorithm may be missing. Errors are without the file's name.
Result<std::vector<tsig::Key>> parseKeyFile(std::string_view content);
// Blocks on the file system. Errors begin with the file's name.
Result<std::vector<tsig::Key>> readKeyFile(const std::string& path);

}  // namespace idetcd::directive
