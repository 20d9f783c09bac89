/* Forks and allocates from its first instruction: if a limit or a group came a moment late, something would slip by.
 * argv: children, MiB that each touches, microseconds that they stay. The constructor runs before main. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int stay;

static void touch(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) memset(at, 1, bytes);
}

__attribute__((constructor)) static void first(int argc, char **argv) {
    if (argc < 4) _exit(90);
    int children = atoi(argv[1]);
    size_t each = (size_t)atoi(argv[2]) << 20;
    stay = atoi(argv[3]);
    for (int i = 0; i < children; i++) {
        if (fork() == 0) {
            alarm(5);
            if (fork() == 0) alarm(5);
            touch(each);
            usleep(stay);
            _exit(0);
        }
    }
    touch(each);
}

int main(void) {
    if (write(1, "ready\n", 6) != 6) return 90;
    usleep(stay);
    return 0;
}
