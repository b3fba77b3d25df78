// Calls bpf(2) without a library, for a process that may load no program. Any thread.
#pragma once

#include <linux/bpf.h>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace idetcd::kernel {

// The attributes of a call, zero where nothing is said.
inline bpf_attr emptyAttributes() {
  bpf_attr attributes;
  __builtin_memset(&attributes, 0, sizeof(attributes));
  return attributes;
}
inline uint64_t pointerOf(const void* object) { return reinterpret_cast<uint64_t>(object); }

// -1 and errno on failure.
long callBpf(bpf_cmd command, bpf_attr& attributes);

// The object pinned at `path`. The error is errno's, with the path.
Result<FileDescriptor> openPinned(const std::string& path);

// REQUIRES: `fd` is a map's or a link's.
template <typename Info>
Result<Info> infoOf(int fd);

}  // namespace idetcd::kernel
