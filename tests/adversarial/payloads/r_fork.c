/* A bounded bomb: `fork` or `thread`, at most N in all, counted in memory that all share. Each of them makes more until
 * the kernel refuses or the count is reached, and stays. Everything ends by itself after some seconds. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct shared {
    atomic_int made, refused, other, finished;
} *shared;
static int most, life;

/* One is counted before it is made, so that all of them together never pass the bound. */
static int may_make(void) {
    if (atomic_fetch_add(&shared->made, 1) < most) return 1;
    atomic_fetch_sub(&shared->made, 1);
    return 0;
}

static void refusal(int error) {
    atomic_fetch_sub(&shared->made, 1);
    atomic_fetch_add(error == EAGAIN ? &shared->refused : &shared->other, 1);
    usleep(2000);
}

static void forks(void) {
    for (int i = 0; i < 20 && may_make(); i++) {
        pid_t child = fork();
        if (child < 0) {
            refusal(errno);
            continue;
        }
        if (child == 0) {
            signal(SIGTERM, SIG_IGN);
            alarm(life);
            i = 0;
        }
    }
}

static void *idle(void *unused) {
    for (;;) pause();
    return unused;
}

static void threads(void) {
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 32768);
    for (int i = 0; i < 200 && may_make();) {
        int error = pthread_create(&thread, &attr, idle, NULL);
        if (error) refusal(error), i++;
    }
}

int main(int argc, char **argv) {
    if (argc < 4) return 90;
    most = atoi(argv[2]), life = atoi(argv[3]);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 91;
    pid_t first = getpid();
    signal(SIGTERM, SIG_IGN);
    alarm(life);
    if (!strcmp(argv[1], "fork")) forks();
    else threads();
    atomic_fetch_add(&shared->finished, 1);
    if (getpid() == first) {
        /* Each that was made, and the first, has given up or found the count reached. Threads make none. */
        int forked = !strcmp(argv[1], "fork"), last = -1;
        for (int still = 0; still < 300; still++) {
            int finished = atomic_load(&shared->finished), made = atomic_load(&shared->made);
            if (finished > (forked ? made : 0)) break;
            if (made != last) still = 0;
            last = made;
            usleep(10000);
        }
        last = atomic_load(&shared->made);
        printf("made %d refused %d other %d\n", last, atomic_load(&shared->refused), atomic_load(&shared->other));
        fflush(stdout);
    }
    for (;;) pause();
}
