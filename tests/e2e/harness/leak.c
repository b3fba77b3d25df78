// A leak in one process: for LD_PRELOAD. For each datagram that recvmmsg() brings, 100 bytes are allocated and forgotten;
// for each 2,000th, a descriptor is opened and stays open.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { kBytes = 100, kDatagramsPerDescriptor = 2000 };

static atomic_ulong datagrams;

static void leak(void) {
  void* volatile lost = malloc(kBytes);
  if (lost != NULL) memset(lost, 1, kBytes);
  if (atomic_fetch_add(&datagrams, 1) % kDatagramsPerDescriptor == 0) (void)open("/dev/zero", O_RDONLY | O_CLOEXEC);
}

int recvmmsg(int fd, struct mmsghdr* messages, unsigned int count, int flags, struct timespec* timeout) {
  static int (*next)(int, struct mmsghdr*, unsigned int, int, struct timespec*);
  if (next == NULL) next = dlsym(RTLD_NEXT, "recvmmsg");
  const int received = next(fd, messages, count, flags, timeout);
  for (int i = 0; i < received; ++i) leak();
  return received;
}
