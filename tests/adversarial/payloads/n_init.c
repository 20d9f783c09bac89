/* N10: turns on its own init, pid argv[1]: every signal, its limits, its scheduling, its files in /proc. Then exits with 42. */
#include "probe.h"
#include <sys/resource.h>
#include <sys/syscall.h>

static int target;

static void probe(void)
{
    static const char *const secret[] = { "mem", "environ", "maps", "exe", "cwd", "root", "fd", "fdinfo", "auxv", "syscall",
                                          "stack", "io", "map_files", "ns", "personality", "clear_refs", "pagemap" };
    struct rlimit little = { 1, 1 };
    struct sched_param idle = { 0 };
    cpu_set_t one;
    char path[64], name[64];
    siginfo_t info = { .si_code = -1 };
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    say("prlimit-cpu", syscall(SYS_prlimit64, target, RLIMIT_CPU, &little, NULL));
    say("prlimit-nofile", syscall(SYS_prlimit64, target, RLIMIT_NOFILE, &little, NULL));
    say("prlimit-as", syscall(SYS_prlimit64, target, RLIMIT_AS, &little, NULL));
    say("prlimit-core", syscall(SYS_prlimit64, target, RLIMIT_CORE, &little, NULL));
    say("setpriority", syscall(SYS_setpriority, PRIO_PROCESS, target, 19));
    say("scheduler", syscall(SYS_sched_setscheduler, target, 5 /* SCHED_IDLE */, &idle));
    say("affinity", syscall(SYS_sched_setaffinity, target, sizeof one, &one));
    say("ioprio", syscall(SYS_ioprio_set, 1, target, 3 << 13));
    for (unsigned i = 0; i < sizeof secret / sizeof *secret; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", target, secret[i]);
        snprintf(name, sizeof name, "open-%s", secret[i]);
        int fd = open(path, O_RDONLY);
        if (fd >= 0 && (!strcmp(secret[i], "syscall") || !strcmp(secret[i], "stack") || !strcmp(secret[i], "io") ||
                        !strcmp(secret[i], "personality") || !strcmp(secret[i], "environ") || !strcmp(secret[i], "mem"))) {
            /* These are opened by anyone, and refuse when they are read. */
            char byte;
            long n = pread(fd, &byte, 1, 0x400000);
            if (strcmp(secret[i], "mem"))
                n = pread(fd, &byte, 1, 0);
            say(name, n);
            close(fd);
        } else
            say_fd(name, fd);
    }
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", target);
    say_fd("write-oom", open(path, O_WRONLY));
    snprintf(path, sizeof path, "/proc/%d/mem", target);
    say_fd("write-mem", open(path, O_WRONLY));
    for (int sig = 1; sig <= 64; sig++) {
        kill(target, sig);
        syscall(SYS_tgkill, target, target, sig);
        info.si_signo = sig;
        syscall(SYS_rt_sigqueueinfo, target, sig, &info);
        int pidfd = syscall(SYS_pidfd_open, target, 0);
        if (pidfd >= 0) {
            syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
            close(pidfd);
        }
    }
    say("signals", 0);
}

int main(int argc, char **argv)
{
    target = argc > 1 ? atoi(argv[1]) : 1;
    /* Init may hand the signals on. */
    for (int sig = 1; sig <= 64; sig++)
        if (sig != SIGCHLD)
            signal(sig, SIG_IGN);
    everywhere(probe);
    hold();
    return 42;
}
