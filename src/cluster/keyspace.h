// Where things lie in etcd.
//
//   /idetcd/queue/<pattern>/<uuid>   tickets of nodes that claim a name
//   0…                               names: every key that can begin a host name, and none that begins with '/', so
//   that
//                                    the path-like keys of others in a shared etcd stay out
#pragma once

#include <string>
#include <string_view>

#include "etcd/client.h"

namespace idetcd::cluster {

// ["0", end of the key space): a range end of one NUL octet means "no end" to etcd.
inline etcd::KeyRange watchedRange() { return {"0", std::string(1, '\0')}; }

// The queue is named by the pattern as it is configured, which is the same on all nodes of a cluster. Two spellings of
// one pattern would queue apart, which costs collisions, not correctness.
inline std::string queuePrefix(std::string_view pattern_text) {
  return "/idetcd/queue/" + std::string(pattern_text) + "/";
}

}  // namespace idetcd::cluster
