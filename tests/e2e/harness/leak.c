// A leak in one process: for LD_PRELOAD. For each datagram that recvmmsg() brings, 200 bytes are used and never again; for
// each 2,000th, a descriptor is opened and stays open.
//
// They do not come from malloc(): a burst leaves it with free memory, which such a leak fills first, for as long as a short
// run lasts, and unseen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { kBytes = 200, kBlock = 1 << 20, kDatagramsPerDescriptor = 2000 };

static atomic_ulong datagrams;

// Each thread has its own.
static _Thread_local char* block;
static _Thread_local size_t used = kBlock;

static void leak(void) {
  if (used + kBytes > kBlock) {
    block = mmap(NULL, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) abort();
    used = 0;
  }
  memset(block + used, 1, kBytes);
  used += kBytes;
  if (atomic_fetch_add(&datagrams, 1) % kDatagramsPerDescriptor == 0) (void)open("/dev/zero", O_RDONLY | O_CLOEXEC);
}

int recvmmsg(int fd, struct mmsghdr* messages, unsigned int count, int flags, struct timespec* timeout) {
  static int (*next)(int, struct mmsghdr*, unsigned int, int, struct timespec*);
  if (next == NULL) next = dlsym(RTLD_NEXT, "recvmmsg");
  const int received = next(fd, messages, count, flags, timeout);
  for (int i = 0; i < received; ++i) leak();
  return received;
}
