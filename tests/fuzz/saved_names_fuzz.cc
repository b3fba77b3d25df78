// The file of names as last known: any file is refused, or gives whole names. The input is a file without its hash,
// which would keep all but one in 2^64 of them from being looked at; as it is it is tried, too.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "fuzz/check.h"
#include "fuzz/memory_file.h"
#include "fuzz/whole_name.h"
#include "naming/saved_names.h"

namespace {

using namespace idetcd;
using fuzz::isWhole;

constexpr std::string_view kPattern = "worker{{.ID}}.tf.local.";

void load(std::string_view contents) {
  static const fuzz::MemoryFile file;
  file.assign(contents);
  size_t taken = 0;
  const auto loaded = naming::loadNames(file.path(), kPattern, [&taken](const naming::SavedName& saved) {
    ++taken;
    FUZZ_CHECK(isWhole(saved.name.wire()) && !saved.name.isRoot());
    FUZZ_CHECK(saved.mod_revision > 0);
    FUZZ_CHECK(!saved.addresses.ipv4 || saved.addresses.ipv4->isV4());
    FUZZ_CHECK(!saved.addresses.ipv6 || saved.addresses.ipv6->isV6());
  });
  if (!loaded) {
    FUZZ_CHECK(taken == 0 && !loaded.error().message.empty());
    return;
  }
  FUZZ_CHECK(loaded->has_value() && (*loaded)->count == taken);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string contents(reinterpret_cast<const char*>(data), size);
  load(contents);
  const uint64_t hash = XXH3_64bits(contents.data(), contents.size());
  contents.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
  load(contents);
  return 0;
}
