/* The race for a standard stream: poll says that a pipe is ready, and its other end, which is ours, changes that before
 * the call that poll was for. Whoever believes poll then blocks. */
#ifndef R_PUMP_H
#define R_PUMP_H
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static char block[65536];

static inline long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* From one microsecond to a hundred, each order as often: how wide the gap between a poll and the next call is
 * depends on the build and on how busy the host is. Sleeping would be too coarse. */
static inline void spin(void) {
    long scale = 2L << (10 + rand() % 7);
    for (long end = now() + rand() % scale; now() < end;);
}

static inline int waiting(int fd) {
    int bytes = 0;
    ioctl(fd, FIONREAD, &bytes);
    return bytes;
}

/* Whether nobody takes a byte from this stream any more: whoever pumps it is blocked elsewhere. */
static inline int is_stuck(int fd) {
    if (write(fd, "y", 1) != 1) exit(93);
    /* A launcher that is off its processor is not blocked. */
    long patience = now() + 1200000000L;
    while (waiting(fd) && now() < patience) usleep(20);
    return waiting(fd) > 0;
}

/* The control arm: a pump that believes poll, on pipes that take the place of our standard streams. It takes its time
 * between poll and the call, so that the race is won soon. Returns the true standard output. */
static inline int believe_poll(void) {
    int in[2], out[2], err[2], said = dup(1);
    if (pipe(in) || pipe(out) || pipe(err)) exit(91);
    if (fork() == 0) {
        alarm(30);
        for (;;) {
            struct pollfd fds[3] = {{in[1], POLLOUT, 0}, {out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
            poll(fds, 3, -1);
            usleep(300);
            if (fds[0].revents && write(in[1], block, 4096) < 0) _exit(0);
            for (int i = 1; i < 3; i++)
                if (fds[i].revents && read(fds[i].fd, block, sizeof block) <= 0) _exit(0);
        }
    }
    dup2(in[0], 0), dup2(out[1], 1), dup2(err[1], 2);
    return said;
}
#endif
