/* Fills the signal queue of process 1, which belongs to the same uid: what the supervisor wants to send it then has no
 * room. argv: flooding processes, seconds, init|victim (a child that blocks them all, for the control arm). Says "full"
 * when the kernel refused the first signal, and goes on. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    atomic_int *full = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (full == MAP_FAILED) return 91;
    union sigval value = {.sival_int = SIGKILL};
    if (argc < 4) return 92;
    pid_t target = 1;
    if (!strcmp(argv[3], "victim")) {
        sigset_t all, none;
        sigfillset(&all), sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &all, NULL);
        target = fork();
        if (target == 0) {
            sleep(atoi(argv[2]));
            _exit(0);
        }
        sigprocmask(SIG_SETMASK, &none, NULL);
    }
    int processes = atoi(argv[1]), life = atoi(argv[2]);
    signal(SIGTERM, SIG_IGN);
    pid_t first = getpid();
    for (int i = 1; i < processes; i++)
        if (fork() == 0) break;
    alarm(life);
    int said = 0;
    for (;;) {
        /* 64 is the number that the supervisor itself uses; a forged one must be ignored. */
        if (sigqueue(target, 64 - (rand() & 1), value) < 0 && errno == EAGAIN) atomic_store(full, 1);
        /* To init the filter leaves this alone, which takes up as much room. */
        if (target == 1) kill(1, 64 - (rand() & 1));
        if (!said && getpid() == first && atomic_load(full)) {
            said = 1;
            puts("full");
            fflush(stdout);
        }
    }
}
