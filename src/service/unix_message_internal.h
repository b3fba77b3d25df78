// For service/*.cc only: datagrams and messages on Unix sockets, each with at most one descriptor (SCM_RIGHTS).
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include "base/file_descriptor.h"

namespace idetcd::service {

// The name of a Unix socket.
struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;  // 0: there is no such name

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// "/path", a relative one too, or "@abstract". No name: `text` is empty or too long.
UnixAddress unixAddress(std::string_view text);

// Sends `text` with a duplicate of `attached` (negative: none) to `to` (null: the connected peer). False: errno.
bool sendMessage(int socket, std::string_view text, int attached, const UnixAddress* to, int flags);

struct UnixMessage {
  std::string text;  // empty: the connection has ended
  FileDescriptor attached;
};

// The next message, of at most 255 bytes, without waiting for it. False: there is none, errno says why.
bool receiveMessage(int socket, UnixMessage* message);

}  // namespace idetcd::service
