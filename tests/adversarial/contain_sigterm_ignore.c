/* Ignores and blocks every polite request to end. A blocked signal stays pending, which the host can read. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int life = argc > 1 ? atoi(argv[1]) : 30;
    int polite[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    for (unsigned i = 0; i < sizeof polite / sizeof *polite; i++) sigaddset(&set, polite[i]);
    /* Blocked, not ignored: an ignored signal would be dropped on arrival, and nobody could see that it came. */
    if (sigprocmask(SIG_BLOCK, &set, NULL)) return 90;
    puts("ready");
    fflush(stdout);
    for (unsigned left = life; left;) left = sleep(left);
    return 0;
}
