// Where things lie in etcd.
//
//   /idetcd/queue/<pattern>/<uuid>   tickets of nodes that claim a name
//   /idetcd/incarnation/<uuid>       which run of this node holds its lease (confirmation.h), bound to that lease
//   /idetcd/token/<name>             the highest fencing token of this name, while the store's revision is below it:
//                                    it was set back. Without a lease; the claim that finds it outgrown deletes it
//   <begin of a watched range>/idetcd/beat
//                                    rewritten now and then, so that the watch of this range shows the present. No name
//                                    has a '/'. Older nodes and the Go plugin take it for a key of others
//   0…                               names: every key that can begin a host name, and none that begins with '/', so
//                                    that the path-like keys of others in a shared etcd stay out
#pragma once

#include "store/store.h"

namespace idetcd::naming {

// ["0", end of the key space): a range end of one NUL byte means "no end" to etcd.
inline store::KeyRange watchedRange() { return {"0", std::string(1, '\0')}; }

// The queue is named by the pattern as it is configured, which is the same on all nodes of a cluster. Two spellings of
// one pattern would queue apart, which costs collisions, not correctness.
inline std::string queuePrefix(std::string_view pattern_text) {
  return "/idetcd/queue/" + std::string(pattern_text) + "/";
}

inline std::string incarnationKey(std::string_view uuid) { return "/idetcd/incarnation/" + std::string(uuid); }

inline std::string tokenFloorKey(std::string_view name) { return "/idetcd/token/" + std::string(name); }

inline constexpr std::string_view kBeatSuffix = "/idetcd/beat";

// REQUIRES: the range is large enough for it, as a prefix, watchedRange() and what parseWatchedRange() takes are.
inline std::string beatKey(const store::KeyRange& range) { return range.begin + std::string(kBeatSuffix); }
inline bool isBeatKey(std::string_view key) { return key.ends_with(kBeatSuffix); }

}  // namespace idetcd::naming
