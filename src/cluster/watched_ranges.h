// Which part of etcd's key space a node watches: by default every key that can be a name (keyspace.h), with the option
// `watch` less. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/name_pattern.h"
#include "etcd/client.h"

namespace idetcd::cluster {

// PREFIX, all keys that begin so, or FROM:TO, those from FROM on and before TO: of the octets of names, which are lower
// case letters, digits, '-', '_' and '.', and beginning with a letter, a digit or '_'.
Result<etcd::KeyRange> parseWatchedRange(std::string_view text);

// The ranges of a node, in order and without an overlap, so that no change comes twice. `words`: `pattern`, or a range
// each; none: every name. The pattern's own names are always among them: a node owns a name only while its own watch
// shows the key. REQUIRES: parseWatchedRange() takes every word but `pattern`.
std::vector<etcd::KeyRange> watchedRanges(const std::vector<std::string>& words, const NamePattern& pattern);

}  // namespace idetcd::cluster
