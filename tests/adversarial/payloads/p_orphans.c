/* Makes N orphans that exit at once: whoever adopts them must reap them. Then stays until it is killed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int wanted = argc > 1 ? atoi(argv[1]) : 100;
    int made = 0, refused = 0;
    while (made < wanted && refused < 5000) {
        pid_t child = fork();
        if (child == 0) {
            pid_t orphan = fork();
            _exit(orphan < 0 ? 1 : 0);
        }
        if (child < 0) {
            refused++;
            usleep(1000);
            continue;
        }
        int status;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            made++;
            refused = 0;
        } else {
            refused++;
            usleep(1000);
        }
        if (made % 500 == 0) printf("made %d\n", made), fflush(stdout);
    }
    printf("all %d\n", made);
    fflush(stdout);
    alarm(30);
    for (;;) pause();
}
