/* Clears its parent-death signal and makes a child in a session of its own, so that the death of whoever watches it
 * changes nothing by itself. `parent`: first becomes a small supervisor whose child does so (the control arm). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "parent")) {
        pid_t child = fork();
        if (child < 0) return 90;
        if (child > 0) {
            alarm(20);
            for (;;) pause();
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    prctl(PR_SET_PDEATHSIG, 0);
    signal(SIGTERM, SIG_IGN), signal(SIGHUP, SIG_IGN), signal(SIGINT, SIG_IGN), signal(SIGPIPE, SIG_IGN);
    pid_t other = fork();
    if (other < 0) return 91;
    if (other == 0) setsid();
    else puts("ready"), fflush(stdout);
    alarm(20);
    for (;;) pause();
}
