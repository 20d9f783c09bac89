/*
 * What timer.c and together.c share: the contestants on the command line, and how one of them is started.
 *
 * By vfork, because fork would charge each contestant for copying the caller.
 *
 * NAME COMMAND [ARG]... [--- NAME COMMAND [ARG]...]...
 *
 * In a command, `{n}` at the end of an argument becomes the number of the launch (container
 * ids must be new each time), and an argument `@PATH` becomes the number of a descriptor
 * freshly opened on PATH (a filter is read to its end each time). Neither is inside the timed
 * span. A first argument `mountns=PATH` starts the command in that mount namespace: one setns,
 * some microseconds, where nsenter(1) would charge the contestant a whole program start.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONTESTANTS 16
#define MAX_ARGS 128

struct contestant {
    const char *name;
    char **argv;            /* as given */
    char *launch[MAX_ARGS]; /* as started: placeholders filled in */
    int argc;
    int mount_ns; /* to enter before exec, or -1 */
};

static struct contestant contestants[MAX_CONTESTANTS];
static int count;
static int null_fd, stderr_fd;
static char failure[160];
static int expected; /* the exit code of a launch that went well */
static volatile sig_atomic_t stopped_by;
extern char **environ;

static void die(const char *what, const char *object)
{
    fprintf(stderr, "bench: error: %s %s: %s\n", what, object, strerror(errno));
    exit(1);
}

static long number(const char *text, const char *what, long least)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > 1000000) {
        fprintf(stderr, "bench: error: %s must be a number from %ld to 1000000, not \"%s\"\n", what, least, text);
        exit(2);
    }
    return value;
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A launch under way is waited for, so that whoever cleans up after this program races with nobody. */
static void on_stop(int signal)
{
    stopped_by = signal;
}

static void catch_stops(void)
{
    struct sigaction action = {.sa_handler = on_stop};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGQUIT, SIG_DFL); /* a shell ignores it for its background jobs; no contestant should inherit that */
}

/* Only the child's own registers and descriptors may change between vfork and exec. */
static pid_t start(char **argv, int mount_ns)
{
    pid_t pid = vfork();
    if (pid == 0) {
        if (mount_ns >= 0 && setns(mount_ns, CLONE_NEWNS) != 0)
            _exit(126);
        dup2(null_fd, 0);
        dup2(null_fd, 1);
        dup2(stderr_fd, 2);
        execve(argv[0], argv, environ);
        _exit(127);
    }
    return pid;
}

/* Fills in the placeholders; returns the descriptor to close afterwards, or -1. */
static int prepare(struct contestant *c, long launch)
{
    static char text[MAX_ARGS][256];
    int opened = -1;

    for (int i = 0; i < c->argc; i++) {
        char *arg = c->argv[i];
        size_t size = strlen(arg);
        c->launch[i] = arg;
        if (arg[0] == '@') {
            opened = open(arg + 1, O_RDONLY);
            if (opened < 0)
                die("open", arg + 1);
            snprintf(text[i], sizeof text[i], "%d", opened);
            c->launch[i] = text[i];
        } else if (size >= 3 && strcmp(arg + size - 3, "{n}") == 0) {
            snprintf(text[i], sizeof text[i], "%.*s%ld", (int)size - 3, arg, launch);
            c->launch[i] = text[i];
        }
    }
    c->launch[c->argc] = NULL;
    return opened;
}

/* Start to exit, in nanoseconds; or 0 and a failure in words. Whoever is told to stop ends here. */
static uint64_t measure(struct contestant *c, long launch, struct timespec pause, struct rusage *usage)
{
    int status;
    int opened = prepare(c, launch);

    if (pause.tv_sec || pause.tv_nsec)
        nanosleep(&pause, NULL);
    uint64_t begin = now();
    pid_t pid = start(c->launch, c->mount_ns);
    if (pid < 0)
        die("vfork for", c->name);
    while (wait4(pid, &status, 0, usage) < 0)
        if (errno != EINTR)
            die("wait4 for", c->name);
    uint64_t took = now() - begin;

    if (opened >= 0)
        close(opened);
    if (stopped_by)
        exit(128 + stopped_by);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected) {
        int by_signal = WIFSIGNALED(status);
        snprintf(failure, sizeof failure, "launch %ld: %s %d instead of exit code %d", launch, by_signal ? "signal" : "exit code",
                 by_signal ? WTERMSIG(status) : WEXITSTATUS(status), expected);
        return 0;
    }
    return took;
}

/* Reads the contestants from argv[i] on, and opens what all of them are started with. */
static void parse(int argc, char **argv, int i, const char *stderr_path)
{
    catch_stops();
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0)
        die("open", "/dev/null");
    stderr_fd = open(stderr_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (stderr_fd < 0)
        die("open", stderr_path);
    for (; i < argc; i++) {
        if (count == MAX_CONTESTANTS || i + 1 >= argc) {
            fprintf(stderr, "bench: error: too many contestants, or one without a command\n");
            exit(2);
        }
        struct contestant *c = &contestants[count++];
        c->name = argv[i++];
        c->mount_ns = -1;
        if (strncmp(argv[i], "mountns=", 8) == 0) {
            c->mount_ns = open(argv[i] + 8, O_RDONLY | O_CLOEXEC);
            if (c->mount_ns < 0)
                die("open", argv[i] + 8);
            i++;
        }
        c->argv = argv + i;
        while (i < argc && strcmp(argv[i], "---") != 0)
            i++, c->argc++;
        if (c->argc == 0 || c->argc >= MAX_ARGS) {
            fprintf(stderr, "bench: error: %s has no arguments or more than %d\n", c->name, MAX_ARGS - 1);
            exit(2);
        }
    }
}
