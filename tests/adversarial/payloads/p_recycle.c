/* P13: a bystander whose pid was another's: makes a child with exactly the pid of argv[1], which waits until standard input
 * ends and tells each signal that reaches it. Exits with 0 if the child was left alone, and with 99 if it was killed. */
#include "probe.h"
#include <linux/sched.h>
#include <poll.h>
#include <sys/signalfd.h>

static void stand_by(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    struct pollfd fds[2] = { { 0, POLLIN, 0 }, { signalfd(-1, &all, 0), POLLIN, 0 } };
    line("state", "ready");
    for (;;) {
        struct signalfd_siginfo info;
        char sink[16];
        poll(fds, 2, -1);
        if (fds[1].revents && read(fds[1].fd, &info, sizeof info) == sizeof info)
            say_value("hit", info.ssi_signo);
        else if (fds[0].revents && read(0, sink, sizeof sink) <= 0)
            _exit(0);
    }
}

int main(int argc, char **argv)
{
    pid_t wanted = argc > 1 ? atoi(argv[1]) : 0;
    struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1 };
    for (int tries = 0; tries < 2000; tries++) {
        int status;
        pid_t child = syscall(SYS_clone3, &args, sizeof args);
        if (child == 0)
            stand_by();
        if (child < 0 && errno == EEXIST) { /* not free yet, or taken by somebody else for a moment */
            usleep(1000);
            continue;
        }
        if (child < 0)
            return say("recycle", child), 90;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
    }
    say("recycle", -1);
    return 91;
}
