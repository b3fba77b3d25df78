// The wall clock of one process, set on or back while it runs: for LD_PRELOAD. CLOCK_REALTIME is what the kernel says
// plus the seconds (a double) in the file $IDETCD_TEST_CLOCK; every other clock runs on, as when an operator or a bad
// NTP server sets the clock. The second double in the file is added to CLOCK_BOOTTIME, which stands still while a
// virtual machine is paused. Waits until a moment of CLOCK_REALTIME end when that clock shows it, however it is set
// meanwhile: the kernel does the same.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile double* offset_seconds;
static long (*next_syscall)(long, ...);
static int (*next_clock_gettime)(clockid_t, struct timespec*);
static int (*next_timedwait)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*);
static int (*next_clockwait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

static void* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == NULL) abort();
  return found;
}

__attribute__((constructor)) static void begin(void) {
  next_syscall = next("syscall");
  next_clock_gettime = next("clock_gettime");
  next_timedwait = next("pthread_cond_timedwait");
  next_clockwait = next("pthread_cond_clockwait");
  if (getenv("IDETCD_TEST_CLOCK") == NULL) {  // a program that the node has started
    static const double none[2];
    offset_seconds = none;
    return;
  }
  const int fd = open(getenv("IDETCD_TEST_CLOCK"), O_RDONLY | O_CLOEXEC);
  void* page = mmap(NULL, 2 * sizeof(double), PROT_READ, MAP_SHARED, fd, 0);
  if (fd < 0 || page == MAP_FAILED) abort();
  offset_seconds = page;
}

static struct timespec plus(struct timespec t, double seconds) {
  const int64_t nanoseconds = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + (int64_t)(seconds * 1e9);
  return (struct timespec){nanoseconds / 1000000000, nanoseconds % 1000000000};
}

static int later(struct timespec a, struct timespec b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  if (next_clock_gettime == NULL) return (int)syscall(SYS_clock_gettime, clock, now);  // before the constructor
  const int result = next_clock_gettime(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) *now = plus(*now, *offset_seconds);
  if (result == 0 && clock == CLOCK_BOOTTIME) *now = plus(*now, offset_seconds[1]);
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  *now = (struct timeval){precise.tv_sec, precise.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}

// The end of the next slice of a wait until `moment`, by the kernel's clock; *last: `moment` itself.
static struct timespec slice(struct timespec moment, int* last) {
  struct timespec now;
  next_clock_gettime(CLOCK_REALTIME, &now);
  const struct timespec soon = plus(now, 0.02), end = plus(moment, -*offset_seconds);
  *last = !later(end, soon);
  return *last ? end : soon;
}

long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  if (next_syscall == NULL) next_syscall = next("syscall");
  const int timed = number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) != 0 && a[3] != 0;
  if (!timed) return next_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  for (;;) {
    int last;
    const struct timespec end = slice(*(const struct timespec*)a[3], &last);
    const long result = next_syscall(number, a[0], a[1], a[2], (long)&end, a[4], a[5]);
    if (result == 0 || errno != ETIMEDOUT || last) return result;
  }
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const struct timespec* moment) {
  // One slice is enough: a condition may wake for no reason. Only the last may say that the time is up.
  int last;
  const struct timespec end = slice(*moment, &last);
  const int result = next_timedwait(condition, mutex, &end);
  return result == ETIMEDOUT && !last ? 0 : result;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* moment) {
  if (clock != CLOCK_REALTIME) return next_clockwait(condition, mutex, clock, moment);
  return pthread_cond_timedwait(condition, mutex, moment);
}
