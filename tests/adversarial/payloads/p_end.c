/* Ends in exactly one way: `exit N` or `signal N`. A signal that does not end a process makes it exit with 77. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3) return 90;
    int n = atoi(argv[2]);
    if (!strcmp(argv[1], "exit")) _exit(n);
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (n == SIGSTOP || n == SIGTSTP || n == SIGTTIN || n == SIGTTOU) {
        /* Someone must wake the stopped process; the helper goes when its parent has gone. */
        pid_t parent = getpid();
        if (fork() == 0) {
            for (int i = 0; i < 2000 && getppid() == parent; i++) {
                kill(parent, SIGCONT);
                usleep(1000);
            }
            _exit(0);
        }
    }
    /* Whoever started this may have left the signal ignored or blocked; the C library hides 32 and 33 from sigaction. */
    unsigned long by_default[4] = {0}, none = 0;
    syscall(SYS_rt_sigaction, n, by_default, NULL, sizeof none);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof none);
    kill(getpid(), n);
    _exit(77);
}
