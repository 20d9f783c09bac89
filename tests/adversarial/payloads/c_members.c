/* Exits while its group is full of members in every stage of dying: some exit, some hold memory, some stay. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 24;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child != 0) continue;
        signal(SIGTERM, SIG_IGN);
        size_t bytes = 1 << 20;
        char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at != MAP_FAILED) memset(at, 1, bytes);
        if (i % 3 == 0) _exit(0);
        if (i % 3 == 1) usleep(i * 100), _exit(0);
        setsid();
        alarm(20);
        for (;;) pause();
    }
    return 0;
}
