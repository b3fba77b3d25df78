// One datagram back to where another came from, at once.
#pragma once

#include <cstdint>
#include <span>
#include <sys/socket.h>

#include "net/udp_socket.h"

namespace idetcd::test_support {

// False if the kernel does not take it now.
inline bool sendReply(const net::UdpSocket& socket, net::UdpPeer peer, std::span<const uint8_t> message) {
  iovec vector{const_cast<uint8_t*>(message.data()), message.size()};
  mmsghdr sent{};
  sent.msg_hdr = {.msg_name = &peer.source,
                  .msg_namelen = peer.source_size,
                  .msg_iov = &vector,
                  .msg_iovlen = 1,
                  .msg_control = peer.control_size > 0 ? peer.control.data() : nullptr,
                  .msg_controllen = peer.control_size,
                  .msg_flags = 0};
  return socket.sendAll({&sent, 1}) == 0;
}

}  // namespace idetcd::test_support
