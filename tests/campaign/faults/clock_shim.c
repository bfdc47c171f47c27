/* LD_PRELOAD: moves the wall clock of one process by the seconds in the file $CAMPAIGN_CLOCK (a
   64-bit number, mapped). The monotonic clock stays as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CAMPAIGN_CLOCK");
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file >= 0) {
        void *map = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
        if (map != MAP_FAILED) offset = map;
    }
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real_clock_gettime(clock, out);
    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += *offset;
    return result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
