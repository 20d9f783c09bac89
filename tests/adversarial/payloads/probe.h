/* What every probe needs: one line per attempt, `WHERE NAME RESULT`, where RESULT is `ok` or the errno's name.
 * The lines say which errno a call gave; whether an attack worked is decided by the test, from outside. */
#ifndef PROBE_H
#define PROBE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static __thread const char *probe_where = "main";

/* One line in one write, so that lines of several processes never mix. */
static inline void line(const char *name, const char *result)
{
    char text[512];
    int n = snprintf(text, sizeof text, "%s %s %s\n", probe_where, name, result);
    if (n > (int)sizeof text - 1)
        n = sizeof text - 1;
    (void)!write(1, text, n);
}

/* Reports a call that returns -1 and errno, and hands its value on. */
static inline long say(const char *name, long value)
{
    const char *error = value < 0 ? strerrorname_np(errno) : "ok";
    line(name, error ? error : "E?");
    return value;
}

/* The same for a descriptor that is closed at once. */
static inline void say_fd(const char *name, long fd)
{
    if (say(name, fd) >= 0)
        close((int)fd);
}

static inline void say_value(const char *name, unsigned long value)
{
    char text[32];
    snprintf(text, sizeof text, "%lx", value);
    line(name, text);
}

/* Tells the observer to look, and stays as it is until standard input ends. */
static inline void hold(void)
{
    char sink[64];
    line("state", "ready");
    while (read(0, sink, sizeof sink) > 0)
        ;
}

static inline void *probe_thread(void *body)
{
    probe_where = "thread";
    ((void (*)(void))body)();
    return NULL;
}

/* Runs the probe in the main thread, in a second thread, and in a forked child: a filter or credential may differ. */
static inline void everywhere(void (*body)(void))
{
    pthread_t thread;
    pid_t child;
    body();
    if (pthread_create(&thread, NULL, probe_thread, (void *)body) == 0)
        pthread_join(thread, NULL);
    else
        line("thread-start", "failed");
    child = fork();
    if (child == 0) {
        probe_where = "child";
        body();
        _exit(0);
    }
    if (child < 0)
        line("fork", "failed");
    else
        waitpid(child, NULL, 0);
}
#endif
