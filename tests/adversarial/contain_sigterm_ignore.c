/* Ignores and blocks every polite request to end. A blocked signal stays pending, which the host can read.
 * argv: seconds until it ends by itself.
 *
 * By hand, as root, from the root of the tree:
 *   cc -static -o target/contain_sigterm_ignore tests/adversarial/contain_sigterm_ignore.c
 *   timeout 3 taskman run --grace 1s --bind-ro "$PWD/target/contain_sigterm_ignore:/task/probe" -- /task/probe 30
 * After four seconds (three until timeout asks taskman to end, one of grace) it is over; it says "then SIGKILL to all" and
 * "containment proven".
 * Without taskman, `timeout 3 target/contain_sigterm_ignore 30` takes the full thirty seconds. */
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
