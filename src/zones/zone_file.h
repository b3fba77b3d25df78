// Reads master files (RFC 1035 §5): records with owner, TTL and class in any order or left out, `$ORIGIN`, `$TTL`,
// `$INCLUDE` of files in the folder of the first one or below it, `$GENERATE` as BIND has it. The only class is IN. A record
// without a TTL has that of `$TTL`, else that of the record before, else the SOA's minimum. Blocks on the file system; any
// thread.
#pragma once

#include "base/file.h"
#include "zones/zone_builder.h"

namespace idetcd::zones {

inline constexpr size_t kMaxZoneFileSize = size_t{2} << 30;
inline constexpr size_t kMaxGenerated = 1'000'000;  // records of one `$GENERATE`
inline constexpr size_t kMaxIncludes = 64;          // files within each other, and 16 times as many in all

// A file that was read, or tried. No stamp: it could not be looked at.
struct ReadFile {
  std::string path;
  std::optional<FileStamp> stamp;
  uint64_t content_hash = 0;
  bool was_read = false;
};

// Adds the file's records to `builder`. Errors begin with FILE:LINE, or FILE if it cannot be read (kNotFound: there is none).
// `files`: gets those that were read, or tried.
Result<void> readZoneFile(const std::string& path, ZoneBuilder& builder, std::vector<ReadFile>& files);

}  // namespace idetcd::zones
