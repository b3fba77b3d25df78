// Result<T>: a value, or an Error: a code for callers that act on it, and one English sentence fragment that says what
// is wrong (lower case, no full stop, no prefix; the caller adds where). A function that can fail returns a Result; only
// lack of memory throws. Not for: a bad packet (dns/message_reader.h), a look-up that finds nothing (std::optional), and
// what the kernel says of one datagram (its errno, net/udp_query_socket.h).
#pragma once

#include <tl/expected.hpp>

#include "base/std.h"

namespace idetcd {

// The kinds of errors that callers act on.
enum class ErrorCode : uint8_t {
  kOther,             // for people to read
  kNoResources,       // just now there is no descriptor, memory, buffer or thread left
  kNotFound,          // a file that is named, or a member of a store, is not there
  kAddressInUse,      // a port is another socket's
  kPermissionDenied,  // the system, or a store, refuses
  // Of a store (store/store.h).
  kCancelled,         // by stop() or cancel()
  kUnavailable,       // no connection, no leader, GOAWAY
  kDeadlineExceeded,  // no answer in time
  kLeaseNotFound,     // the lease does not exist (any more)
  kCompacted,         // the revision asked for is gone
  kDisordered,        // a watch has delivered a change after a later one: see WatchStream::next()
  kNoSpace,           // NOSPACE alarm: reads work, writes do not
  kTooLarge,          // the answer is larger than 64 MiB: ask for less at a time
  kUnauthenticated,   // the credentials are refused
  kStaleToken,        // the call's token is, or it had none: a new one may do better
  kAuthenticationOff,
  kOtherCluster,  // the answer is another cluster's: see RangeOptions::cluster_id
};

struct Error {
  std::string message;
  ErrorCode code = ErrorCode::kOther;
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(std::string message, ErrorCode code = ErrorCode::kOther) {
  return tl::unexpected<Error>(Error{.message = std::move(message), .code = code});
}

// Whether `error`, an errno, means kNoResources.
bool isWantOfResources(int error);
// The error of an errno, in the words of the system: "Permission denied", "epoll_create1: Too many open files".
tl::unexpected<Error> failWith(int error, std::string_view doing = {});

}  // namespace idetcd
