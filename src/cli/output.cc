#include "cli/output.h"

#include <poll.h>
#include <unistd.h>

namespace idetcd::cli {

Result<void> print(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {  // another program has made it so
      pollfd one{fd, POLLOUT, 0};
      ::poll(&one, 1, -1);
    } else if (errno != EINTR) {
      return failWith(errno);
    }
  }
  return {};
}

}  // namespace idetcd::cli
