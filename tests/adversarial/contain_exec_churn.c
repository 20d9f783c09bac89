/* Endless churn: each process forks a successor and exits, and the successor executes itself afresh, so that no pid,
 * no parent and no image stays. A killer that walks pids always comes too late.
 * argv: chains, milliseconds until a chain ends by itself, ignore|die (what the main process does with SIGTERM), and a word
 * that every process of it carries.
 *
 * By hand, as root, from the root of the tree:
 *   cc -static -o target/contain_exec_churn tests/adversarial/contain_exec_churn.c
 *   taskman run --timeout 2s --bind-ro "$PWD/target/contain_exec_churn:/task/probe" -- /task/probe 4 20000 ignore by-hand
 * After two seconds taskman exits with 124; it says "ran longer than its timeout" and "containment proven"; no chain lives on.
 * Without taskman, `target/contain_exec_churn 4 20000 ignore by-hand` churns for twenty seconds, whatever pids are killed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void link_of_chain(const char *self, const char *end, const char *nonce, int generation) {
    while (now_ms() < atoll(end)) {
        pid_t next = fork();
        if (next > 0) _exit(0);
        if (next < 0) continue; /* at the limit: another chain's end makes room */
        if (++generation % 4 == 0) {
            execl(self, self, "-", end, nonce, (char *)NULL);
            _exit(95);
        }
        if (generation % 16 == 1) setsid();
    }
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc > 3 && !strcmp(argv[1], "-")) link_of_chain(argv[0], argv[2], argv[3], 0);
    if (argc < 5) return 90;
    char end[32];
    snprintf(end, sizeof end, "%lld", now_ms() + atoll(argv[2]));
    signal(SIGCHLD, SIG_IGN);
    if (!strcmp(argv[3], "ignore")) signal(SIGTERM, SIG_IGN);
    for (int i = 0; i < atoi(argv[1]); i++) {
        pid_t chain = fork();
        if (chain < 0) return 91;
        if (chain == 0) link_of_chain(argv[0], end, argv[4], 0);
    }
    puts("ready");
    fflush(stdout);
    while (now_ms() < atoll(end) + 1000) usleep(10000);
    return 0;
}
