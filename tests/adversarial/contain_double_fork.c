/* Double fork and setsid, then the main process exits 0: what daemons do, and what a payload does to outlive its task.
 * argv: keep|close (whether the daemons keep stdout and stderr) or reaper (close, and the main process stays as the reaper
 * of its orphans), how many daemons, seconds they live at most.
 *
 * By hand, as root, from the root of the tree:
 *   cc -static -o target/contain_double_fork tests/adversarial/contain_double_fork.c
 *   taskman run --output json --bind-ro "$PWD/target/contain_double_fork:/task/probe" -- /task/probe close 3 30
 * It prints "ready" and the report, which says "left 3 processes" and "proven"; no daemon lives on.
 * Without taskman, `target/contain_double_fork close 3 30` leaves three daemons for half a minute. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int keep = argc > 1 && !strcmp(argv[1], "keep");
    int count = argc > 2 ? atoi(argv[2]) : 1;
    int life = argc > 3 ? atoi(argv[3]) : 30;
    int reaper = argc > 1 && !strcmp(argv[1], "reaper");
    if (reaper) prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int i = 0; i < count; i++) {
        int up[2];
        if (pipe(up)) return 90;
        pid_t child = fork();
        if (child < 0) return 91;
        if (child == 0) {
            setsid();
            pid_t daemon = fork();
            if (daemon != 0) _exit(daemon < 0 ? 92 : 0);
            signal(SIGTERM, SIG_IGN), signal(SIGHUP, SIG_IGN), signal(SIGINT, SIG_IGN);
            if (!keep) {
                int null = open("/dev/null", O_RDWR);
                dup2(null, 1), dup2(null, 2);
            }
            if (write(up[1], "x", 1) != 1) _exit(93);
            close(up[0]), close(up[1]);
            alarm(life);
            for (;;) pause();
        }
        char c;
        close(up[1]);
        waitpid(child, NULL, 0);
        if (read(up[0], &c, 1) != 1) return 94;
        close(up[0]);
    }
    puts("ready");
    fflush(stdout);
    if (reaper) signal(SIGTERM, SIG_IGN), sleep(life);
    return 0;
}
