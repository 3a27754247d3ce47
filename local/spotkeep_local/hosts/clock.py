"""A wall clock that is wrong for the processes of one host.

Linux has time namespaces for its monotonic clocks alone, and one wall clock for the machine. A library that is loaded
before all others gives programs another time. It takes the difference off again where they wait until a time. The times
of files stay the machine's, and programs without shared libraries see the machine's clock.

Source: time_namespaces(7), ld.so(8)
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from spotkeep_local.hosts.host import HostRefusedError

if TYPE_CHECKING:
    from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/time.h>
#include <time.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define IS_WALL(clock) ((clock) == CLOCK_REALTIME || (clock) == CLOCK_REALTIME_COARSE)

/* A deadline of the monotonic clock is small: a machine runs for less than thirty years. */
static struct timespec real(const struct timespec *until) {
    struct timespec moved = *until;
    if (moved.tv_sec > 1000000000) moved.tv_sec -= SECONDS;
    return moved;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = NEXT(clock_gettime)(clock, now);
    if (result == 0 && IS_WALL(clock)) now->tv_sec += SECONDS;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = NEXT(gettimeofday)(now, zone);
    if (result == 0) now->tv_sec += SECONDS;
    return result;
}

time_t time(time_t *now) {
    time_t moved = NEXT(time)(NULL) + SECONDS;
    if (now != NULL) *now = moved;
    return moved;
}

int timespec_get(struct timespec *now, int base) {
    int result = NEXT(timespec_get)(now, base);
    if (result == TIME_UTC) now->tv_sec += SECONDS;
    return result;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    struct timespec moved = IS_WALL(clock) && (flags & TIMER_ABSTIME) ? real(until) : *until;
    return NEXT(clock_nanosleep)(clock, flags, &moved, left);
}

int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, const struct timespec *restrict u) {
    struct timespec moved = real(u);
    return NEXT(pthread_cond_timedwait)(c, m, &moved);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    struct timespec moved = real(until);
    return NEXT(pthread_mutex_timedlock)(mutex, &moved);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    struct timespec moved = real(until);
    return NEXT(sem_timedwait)(semaphore, &moved);
}
"""


def wrong_clock(folder: Path, *, seconds: int) -> Path:
    """Return a library with which programs see a wall clock that is this many seconds ahead. It is made once.

    Args:
        folder: The folder for the library.
        seconds: The seconds. A negative number is for a clock that is behind.

    Raises:
        HostRefusedError: This machine has no C compiler, or the compiler refuses the source.
    """
    library = folder / f"clock{seconds:+d}.so"
    if library.exists():
        return library
    compiler = shutil.which("cc")
    if compiler is None:
        raise HostRefusedError("a wrong clock needs a C compiler, and this machine has no cc (package gcc)")
    folder.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", f"-DSECONDS=({seconds})", "-x", "c", "-", "-o", str(library), "-ldl"],
        input=_SOURCE,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise HostRefusedError(f"cc refuses the source of a wrong clock: {made.stderr.strip()}")
    return library
