/* Anonymous memory, touched page by page. `self MIB`: takes it, says so, exits 0. `childS MIB`: a child takes it; the parent
 * goes on, prints success after S seconds and exits 0. `groupS MIB`: a bystander that takes nothing stays for S seconds while
 * another takes it. `hold MIB`: takes it and stays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void take(int mib) {
    for (int i = 0; i < mib; i++) {
        char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) _exit(88);
        memset(at, i | 1, 1 << 20);
    }
}

int main(int argc, char **argv) {
    if (argc < 4) return 90;
    int mib = atoi(argv[2]), status = 0;
    alarm(100);
    puts("ready");
    fflush(stdout);
    if (!strcmp(argv[1], "self") || !strcmp(argv[1], "hold")) {
        take(mib);
        printf("took %d\n", mib);
        fflush(stdout);
        while (!strcmp(argv[1], "hold")) pause();
        return 0;
    }
    pid_t child = fork();
    if (child < 0) return 91;
    if (child == 0) {
        take(mib);
        _exit(0);
    }
    if (!strncmp(argv[1], "group", 5)) {
        /* Not a parent that waits: a bystander, which only the death of the group can end early. */
        sleep(atoi(argv[1] + 5));
        puts("bystander lived on");
        return 0;
    }
    waitpid(child, &status, 0);
    printf("child ended with %s %d\n", WIFSIGNALED(status) ? "signal" : "code",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    fflush(stdout);
    sleep(atoi(argv[1] + 5));
    puts("success");
    return 0;
}
