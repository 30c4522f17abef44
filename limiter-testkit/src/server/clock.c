// A library for LD_PRELOAD that replaces a server's wall clock. It reads the file named by LIMITER_TESTKIT_CLOCK, which
// holds two signed 64-bit numbers and may change at any time. The first is the shift of the clock in microseconds. The
// second is the time at which the clock is stopped, in microseconds since 1970, or 0 for a running clock. Other clocks
// are unchanged, as when an operator or NTP sets the time.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

struct setting {
  int64_t shift;
  int64_t still;
};

static volatile struct setting *setting;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
  real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("LIMITER_TESTKIT_CLOCK");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) abort();
  void *memory = mmap(NULL, sizeof *setting, PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) abort();
  setting = memory;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real_clock_gettime(clock, time);
  if (result == 0 && setting && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t shift = setting->shift, still = setting->still;
    if (still) {
      time->tv_sec = still / 1000000;
      time->tv_nsec = (still % 1000000) * 1000;
    }
    int64_t nanos = time->tv_nsec + (shift % 1000000) * 1000;
    time->tv_sec += shift / 1000000 + nanos / 1000000000 - (nanos % 1000000000 < 0);
    time->tv_nsec = (nanos % 1000000000 + 1000000000) % 1000000000;
  }
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec time;
  int result = clock_gettime(CLOCK_REALTIME, &time);
  if (result == 0) {
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
  }
  return result;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}
