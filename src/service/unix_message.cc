#include <sys/types.h>

#include "service/unix_message_internal.h"

namespace idetcd::service {
namespace {

constexpr size_t kMaxText = 255;

struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(sizeof(int))> bytes{};
};

msghdr headerOf(iovec& data) {
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  return header;
}

void setControl(msghdr& header, Control& control) {
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
}

}  // namespace

UnixAddress unixAddress(std::string_view text) {
  UnixAddress name;
  if (text.empty() || text.size() >= sizeof name.address.sun_path) return name;
  const bool is_abstract = text.starts_with('@');
  name.address.sun_family = AF_UNIX;
  std::ranges::copy(text, name.address.sun_path);
  if (is_abstract) name.address.sun_path[0] = '\0';
  // The name of an abstract socket ends with the address, that of a file with a NUL.
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (is_abstract ? 0 : 1));
  return name;
}

bool sendMessage(int socket, std::string_view text, int attached, const UnixAddress* to, int flags) {
  std::string copy(text);
  iovec data{.iov_base = copy.data(), .iov_len = copy.size()};
  msghdr header = headerOf(data);
  UnixAddress target;
  if (to != nullptr) {
    target = *to;
    header.msg_name = &target.address;
    header.msg_namelen = target.size;
  }
  Control control;
  if (attached >= 0) {
    setControl(header, control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof attached);
    std::memcpy(CMSG_DATA(rights), &attached, sizeof attached);
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &header, flags | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

bool receiveMessage(int socket, UnixMessage* message) {
  std::array<char, kMaxText> text;
  iovec data{.iov_base = text.data(), .iov_len = text.size()};
  msghdr header = headerOf(data);
  Control control;
  setControl(header, control);
  const ssize_t size = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size < 0) return false;
  message->text.assign(text.data(), static_cast<size_t>(size));
  const cmsghdr* rights = CMSG_FIRSTHDR(&header);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return true;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
  message->attached = FileDescriptor(fd);
  return true;
}

}  // namespace idetcd::service
