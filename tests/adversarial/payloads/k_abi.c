/* K07, K08: system calls by another door. `int80 WHERE` uses the 32-bit entry, `x32 WHERE` the x32 numbers. */
#include "probe.h"

static const char *how;

static void probe(void)
{
    long result = -1;
    if (!strcmp(how, "int80")) {
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L /* getpid */) : "memory", "r8", "r9", "r10", "r11");
        errno = ENOSYS;
        say("int80-getpid", result == getpid() ? 0 : -1);
    } else {
        say("x32-getpid", syscall(0x40000000 | SYS_getpid));
    }
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int status;
    how = argc > 1 ? argv[1] : "int80";
    const char *where = argc > 2 ? argv[2] : "main";
    if (!strcmp(where, "thread")) {
        pthread_create(&thread, NULL, probe_thread, (void *)probe);
        pthread_join(thread, NULL);
    } else if (!strcmp(where, "child")) {
        pid_t child = fork();
        if (child == 0) {
            probe_where = "child";
            probe();
            _exit(0);
        }
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) /* end as the child did, so that the host sees it */
            signal(WTERMSIG(status), SIG_DFL), raise(WTERMSIG(status));
    } else
        probe();
    line("state", "survived");
    return 0;
}
