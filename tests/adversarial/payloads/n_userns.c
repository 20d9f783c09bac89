/* N01, N02: makes namespaces by every call that can. A child that got one stays, so that the observer can compare inodes. */
#include "probe.h"
#include <linux/sched.h>

static const struct { const char *name; unsigned long flag; } spaces[] = {
    { "user", CLONE_NEWUSER }, { "mnt", CLONE_NEWNS },   { "pid", CLONE_NEWPID },       { "ipc", CLONE_NEWIPC },
    { "uts", CLONE_NEWUTS },   { "net", CLONE_NEWNET },  { "cgroup", CLONE_NEWCGROUP },
};
enum { SPACES = sizeof spaces / sizeof *spaces };

/* Its write end is open in the main process until that ends. */
static int life[2];

/* The child of a call that should not have worked: kept until the main process ends. */
static void stay(void)
{
    char byte;
    close(life[1]);
    (void)!read(life[0], &byte, 1);
    _exit(0);
}

/* unshare changes the caller, so each try has a process of its own. */
static void try_unshare(const char *name, unsigned long flag)
{
    int pipefd[2];
    char byte;
    if (pipe(pipefd) < 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        if (say(name, syscall(SYS_unshare, flag)) < 0)
            _exit(0);
        close(pipefd[1]);
        stay();
    }
    close(pipefd[1]);
    (void)!read(pipefd[0], &byte, 1);
    close(pipefd[0]);
}

static void probe(void)
{
    char name[64];
    struct clone_args args;
    for (int i = 0; i < SPACES; i++) {
        /* Alone, and together with a user namespace, which would lend the capability. */
        unsigned long flags[] = { spaces[i].flag, spaces[i].flag | CLONE_NEWUSER };
        for (int with = 0; with < 2; with++) {
            snprintf(name, sizeof name, "unshare-%s%s", spaces[i].name, with ? "+user" : "");
            try_unshare(name, flags[with]);
            snprintf(name, sizeof name, "clone-%s%s", spaces[i].name, with ? "+user" : "");
            long child = syscall(SYS_clone, flags[with] | SIGCHLD, 0, 0, 0, 0);
            if (child == 0)
                stay();
            say(name, child);
            memset(&args, 0, sizeof args);
            args.flags = flags[with];
            args.exit_signal = SIGCHLD;
            snprintf(name, sizeof name, "clone3-%s%s", spaces[i].name, with ? "+user" : "");
            child = syscall(SYS_clone3, &args, sizeof args);
            if (child == 0)
                stay();
            say(name, child);
        }
    }
    /* The kernel looks at the lower half of clone's flags only; a filter must not look at more. */
    long child = syscall(SYS_clone, 0xffffffff00000000ul | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        stay();
    say("clone-user-high-bits", child);
    memset(&args, 0, sizeof args);
    args.exit_signal = SIGCHLD;
    child = syscall(SYS_clone3, &args, sizeof args);
    if (child == 0)
        stay();
    say("clone3-plain", child);
}

static void *idle(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pipe(life) < 0)
        return 2;
    everywhere(probe);
    /* libc must still start threads by its fallback. */
    errno = pthread_create(&thread, NULL, idle, NULL);
    say("pthread", errno ? -1 : 0);
    hold();
    return 0;
}
