/* Blocks for S seconds in one of the ways a program can: asleep, stopped, reading what never comes, in vfork. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 4) return 90;
    int life = atoi(argv[2]), pipes[2];
    char c;
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGALRM);
    sigprocmask(SIG_SETMASK, &all, NULL);
    alarm(life);
    puts("ready");
    fflush(stdout);
    if (!strcmp(argv[1], "stop")) kill(getpid(), SIGSTOP);
    else if (!strcmp(argv[1], "read")) return pipe(pipes) || read(pipes[0], &c, 1) != 1;
    else if (!strcmp(argv[1], "vfork")) {
        pid_t child = vfork();
        if (child == 0) {
            for (;;) pause();
        }
    }
    for (;;) pause();
}
