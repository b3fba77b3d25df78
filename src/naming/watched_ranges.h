// Which part of etcd's key space a node watches: by default every key that can be a name (keyspace.h), with the option
// `watch` less. Pure; any thread.
#pragma once

#include "base/result.h"
#include "slots/name_pattern.h"
#include "store/store.h"

namespace idetcd::naming {

// More would not fit into one transaction of etcd, which takes 128 operations by default: a confirmation writes and
// reads a beat in each range (confirmation.h).
inline constexpr size_t kMaxWatchedRanges = 60;

// PREFIX, all keys that begin so, or FROM:TO, those from FROM on and before TO: of the bytes of names, which are lower
// case letters, digits, '-', '_' and '.', and beginning with a letter, a digit or '_'.
Result<store::KeyRange> parseWatchedRange(std::string_view text);

// The ranges of a node, in order and without an overlap, so that no change comes twice. `words`: `pattern`, or a range
// each; none: every name. The pattern's own names are always among them: a node owns a name only while its own watch
// shows the key. REQUIRES: parseWatchedRange() takes every word but `pattern`.
std::vector<store::KeyRange> watchedRanges(const std::vector<std::string>& words, const slots::NamePattern& pattern);

bool isWatched(const std::vector<store::KeyRange>& ranges, std::string_view key);

}  // namespace idetcd::naming
