/* N11: asks process argv[1], which has the same uid, for signals as if somebody outside its PID namespace did, and puts it last in every
 * queue of the scheduler. What it is sent in return stays pending, for the host to see. With `victim` it is such a process itself: it says
 * which signals came from nobody. */
#include "probe.h"
#include <sys/ioctl.h>
#include <sys/resource.h>

#ifndef PIDFD_SIGNAL_THREAD
#define PIDFD_SIGNAL_THREAD 1
#endif
#define CARRIER 64
#define FILLER 60

static int target;

/* As sigqueue(3) would write it, but by nobody. */
static siginfo_t from_nobody(int signal, int value)
{
    siginfo_t info = { .si_signo = signal, .si_code = SI_QUEUE };
    info.si_value.sival_int = value;
    return info;
}

static void written_by_the_sender(void)
{
    char proc[32];
    siginfo_t info = from_nobody(CARRIER, SIGUSR1);
    say("queue", syscall(SYS_rt_sigqueueinfo, target, CARRIER, &info));
    /* A pid is an int to the kernel. */
    say("queue-high", syscall(SYS_rt_sigqueueinfo, 0x700000000ul | (unsigned)target, CARRIER, &info));
    info = from_nobody(CARRIER, SIGUSR2);
    say("queue-thread", syscall(SYS_rt_tgsigqueueinfo, target, target, CARRIER, &info));
    info = from_nobody(SIGHUP, 0);
    say("queue-usual", syscall(SYS_rt_sigqueueinfo, target, SIGHUP, &info));
    int fd = syscall(SYS_pidfd_open, target, 0);
    info = from_nobody(CARRIER, SIGALRM);
    say("pidfd", syscall(SYS_pidfd_send_signal, fd, CARRIER, &info, 0));
    close(fd);
    snprintf(proc, sizeof proc, "/proc/%d", target);
    fd = open(proc, O_RDONLY | O_DIRECTORY);
    info = from_nobody(CARRIER, SIGVTALRM);
    say("pidfd-proc", syscall(SYS_pidfd_send_signal, fd, CARRIER, &info, 0));
    close(fd);
}

/* The kernel sends it, to whoever is the owner. */
static void sent_by_the_kernel(void)
{
    int pipe[2];
    if (pipe2(pipe, 0) < 0)
        return;
    say("owner", fcntl(pipe[0], F_SETOWN, target));
    say("async", fcntl(pipe[0], F_SETFL, O_ASYNC));
    (void)!write(pipe[1], "!", 1);
    close(pipe[0]);
    close(pipe[1]);
}

/* Until the target has taken all it was sent: each that it takes makes room. */
static void taken(void)
{
    char path[32], text[4096], *at;
    snprintf(path, sizeof path, "/proc/%d/status", target);
    for (int tries = 0; tries < 100000; tries++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        long n = read(fd, text, sizeof text - 1);
        close(fd);
        text[n > 0 ? n : 0] = 0;
        if ((at = strstr(text, "SigPnd:")) && strtoull(at + 7, NULL, 16) == 0 && (at = strstr(text, "ShdPnd:")) &&
            strtoull(at + 7, NULL, 16) == 0)
            return;
        usleep(100);
    }
    line("taken", "no");
}

/* Without room in the queue, which the uid has in common, a signal arrives without its sender. */
static void without_room(void)
{
    union sigval nothing = { 0 };
    taken();
    while (sigqueue(getpid(), FILLER, nothing) == 0)
        ;
    line("full", errno == EAGAIN ? "yes" : "no");
    say("lost-thread", syscall(SYS_tgkill, target, target, SIGWINCH));
    say("lost-tid", syscall(SYS_tkill, target, SIGPROF));
    siginfo_t info = from_nobody(SIGTTOU, 0);
    say("lost-queue", syscall(SYS_rt_sigqueueinfo, target, SIGTTOU, &info));
    int fd = syscall(SYS_pidfd_open, target, 0);
    say("lost-pidfd", syscall(SYS_pidfd_send_signal, fd, SIGURG, NULL, PIDFD_SIGNAL_THREAD));
    close(fd);
    say("kill", kill(target, 40));
}

static void put_last(void)
{
    struct sched_param none = { 0 };
    struct { unsigned size, policy; unsigned long long flags; int nice; unsigned priority; unsigned long long rest[3]; }
        idle = { .size = 48, .policy = 5 /* SCHED_IDLE */ };
    unsigned long processors[128] = { 0 };
    unsigned uid = getuid();
    processors[0] = 1ul << (sysconf(_SC_NPROCESSORS_CONF) - 1);
    say("nice", syscall(SYS_setpriority, PRIO_PROCESS, target, 19));
    say("nice-group", syscall(SYS_setpriority, PRIO_PGRP, target, 19));
    say("nice-user", syscall(SYS_setpriority, PRIO_USER, uid, 19));
    say("nice-user-0", syscall(SYS_setpriority, PRIO_USER, 0, 19));
    say("affinity", syscall(SYS_sched_setaffinity, target, sizeof processors, processors));
    processors[0] = 1;
    say("affinity-0", syscall(SYS_sched_setaffinity, target, sizeof processors, processors));
    say("param", syscall(SYS_sched_setparam, target, &none));
    say("attr", syscall(SYS_sched_setattr, target, &idle, 0));
    say("scheduler", syscall(SYS_sched_setscheduler, target, 5, &none));
    say("io", syscall(SYS_ioprio_set, 1 /* process */, target, 3 << 13));
    say("io-group", syscall(SYS_ioprio_set, 2, target, 3 << 13));
    say("io-user", syscall(SYS_ioprio_set, 3, uid, 3 << 13));
}

static void victim(void)
{
    sigset_t all;
    siginfo_t info;
    char name[32];
    sigfillset(&all);
    line("state", "armed");
    while (sigwaitinfo(&all, &info) > 0) {
        snprintf(name, sizeof name, "%d", info.si_signo);
        line(info.si_pid == 0 ? "nobody" : "somebody", name);
        if (info.si_signo == SIGTERM)
            _exit(0);
    }
}

int main(int argc, char **argv)
{
    sigset_t all;
    char byte;
    if (argc < 3)
        return 2;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (!strcmp(argv[1], "victim"))
        victim();
    target = atoi(argv[1]);
    /* The host notes how the target is before. */
    line("state", "armed");
    if (read(0, &byte, 1) != 1)
        return 3;
    written_by_the_sender();
    sent_by_the_kernel();
    put_last();
    without_room();
    /* What may be done to oneself and one's own. */
    say("own-nice", setpriority(PRIO_PROCESS, 0, 5));
    say("own-group", setpriority(PRIO_PGRP, 0, 6));
    struct sched_param none = { 0 };
    say("own-scheduler", sched_setscheduler(0, SCHED_BATCH, &none));
    hold();
    return 0;
}
