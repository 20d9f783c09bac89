/* Burns processor time and dodges per-process limits. `threads N MS`: N threads spin. `children N MS`: one short child after
 * another, so that no process is ever old; both catch SIGXCPU. Ends by itself after MS of wall time. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long end_ms;

static long long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void *spin(void *unused) {
    while (now_ms() < end_ms) {}
    return unused;
}

static void caught(int signal) { (void)signal; }

int main(int argc, char **argv) {
    if (argc < 4) return 90;
    int count = atoi(argv[2]);
    signal(SIGXCPU, caught);
    puts("ready");
    fflush(stdout);
    end_ms = now_ms() + atoll(argv[3]);
    if (!strcmp(argv[1], "threads")) {
        pthread_t thread;
        for (int i = 1; i < count; i++) pthread_create(&thread, NULL, spin, NULL);
        spin(NULL);
        return 0;
    }
    while (now_ms() < end_ms) {
        for (int i = 0; i < count; i++)
            if (fork() == 0) {
                long long until = now_ms() + 20;
                while (now_ms() < until) {}
                _exit(0);
            }
        while (wait(NULL) > 0) {}
    }
    return 0;
}
