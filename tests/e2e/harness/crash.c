// A crash over a query: for LD_PRELOAD. The process ends by SIGILL as soon as it has read, or was shown, a batch of datagrams of
// which one asks for a name that begins with the label "crash"; it has answered none of them by then.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>

static const char kLabel[] = "\5crash";

int recvmmsg(int fd, struct mmsghdr* messages, unsigned int count, int flags, struct timespec* timeout) {
  static int (*next)(int, struct mmsghdr*, unsigned int, int, struct timespec*);
  if (next == NULL) next = dlsym(RTLD_NEXT, "recvmmsg");
  const int received = next(fd, messages, count, flags, timeout);
  for (int i = 0; i < received; ++i) {
    const struct msghdr* header = &messages[i].msg_hdr;
    if (header->msg_iovlen == 0) continue;
    if (memmem(header->msg_iov->iov_base, messages[i].msg_len, kLabel, sizeof kLabel - 1) != NULL) __builtin_trap();
  }
  return received;
}
