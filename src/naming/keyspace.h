// Where things lie in etcd.
//
//   /idetcd/queue/<pattern>/<limit>/<uuid>
//                                    tickets of nodes that claim a name up to this limit. Older nodes have no limit in
//                                    theirs
//   /idetcd/incarnation/<uuid>       which run of this node holds its lease (confirmation.h), bound to that lease
//   /idetcd/relay/<pattern>/<place>  where a relay serves all names (relayed_names.h), under a lease of its own
//   /idetcd/token/<name>             the highest fencing token of this name, while the store's revision is below it:
//                                    it was set back. Without a lease; the claim that finds it outgrown deletes it
//   /idetcd/reserved/<name>          the UUID of the node that this name waits for, while that node is away
//                                    (reservation.h), under a lease of its own
//   /idetcd/sick/<pattern>/<uuid>    a node whose `check` fails, under a lease of its own (health_gate.h)
//   /idetcd/generation/<pattern>     the last change of the membership that was noted (generation.h), without a lease
//   <begin of a watched range>/idetcd/beat
//                                    rewritten now and then, so that the watch of this range shows the present. No name
//                                    has a '/'. Older nodes and the Go plugin take it for a key of others
//   0…                               names: every key that can begin a host name, and none that begins with '/', so
//                                    that the path-like keys of others in a shared etcd stay out
#pragma once

#include "base/text.h"
#include "slots/name_pattern.h"
#include "store/store.h"

namespace idetcd::naming {

// ["0", end of the key space): a range end of one NUL byte means "no end" to etcd.
inline store::KeyRange watchedRange() { return {"0", std::string(1, '\0')}; }

// Where the names of a pattern are.
inline store::KeyRange slotRange(const slots::NamePattern& pattern) {
  return pattern.literalPrefix().empty() ? watchedRange() : store::KeyRange::prefix(pattern.literalPrefix());
}

// The queue is named by the pattern as it is configured, which is the same on all nodes of a cluster. Two spellings of
// one pattern would queue apart, which costs collisions, not correctness.
inline std::string queuePrefix(std::string_view pattern_text) {
  return "/idetcd/queue/" + std::string(pattern_text) + "/";
}

inline std::string ticketPrefix(const slots::NamePattern& pattern) {
  return queuePrefix(pattern.text()) + std::to_string(pattern.limit()) + "/";
}

// Of the node whose ticket this is. None: an older node's. REQUIRES: the ticket is in the queue of this prefix.
inline std::optional<int64_t> limitOf(std::string_view ticket, std::string_view queue_prefix) {
  ticket.remove_prefix(queue_prefix.size());
  const size_t end = ticket.find('/');
  return end == std::string_view::npos ? std::nullopt : parseNumber<int64_t>(ticket.substr(0, end));
}

inline std::string relayPrefix(std::string_view pattern_text) {
  return "/idetcd/relay/" + std::string(pattern_text) + "/";
}

inline std::string sickPrefix(std::string_view pattern_text) {
  return "/idetcd/sick/" + std::string(pattern_text) + "/";
}

inline std::string generationKey(std::string_view pattern_text) {
  return "/idetcd/generation/" + std::string(pattern_text);
}

inline std::string incarnationKey(std::string_view uuid) { return "/idetcd/incarnation/" + std::string(uuid); }

inline std::string tokenFloorKey(std::string_view name) { return "/idetcd/token/" + std::string(name); }

inline constexpr std::string_view kReservationPrefix = "/idetcd/reserved/";

// `name`: or the beginning of names.
inline std::string reservationKey(std::string_view name) { return std::string(kReservationPrefix) + std::string(name); }

// REQUIRES: the key is one of reservationKey().
inline std::string_view reservedName(std::string_view key) {
  assert(key.starts_with(kReservationPrefix));
  return key.substr(kReservationPrefix.size());
}

inline constexpr std::string_view kBeatSuffix = "/idetcd/beat";

// REQUIRES: the range is large enough for it, as a prefix, watchedRange() and what parseWatchedRange() takes are.
inline std::string beatKey(const store::KeyRange& range) {
  assert(!range.end.empty());
  return range.begin + std::string(kBeatSuffix);
}
inline bool isBeatKey(std::string_view key) { return key.ends_with(kBeatSuffix); }

}  // namespace idetcd::naming
