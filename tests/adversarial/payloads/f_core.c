/* F31: asks for core files, then has a child die of SIGABRT in a directory it can write to. */
#include "probe.h"
#include <sys/resource.h>

static void probe(void)
{
    struct rlimit large = { 1 << 20, 1 << 20 };
    int status = 0;
    say("raise-core", setrlimit(RLIMIT_CORE, &large));
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_DUMPABLE, 1);
        abort();
    }
    waitpid(child, &status, 0);
    line("died", WIFSIGNALED(status) ? WCOREDUMP(status) ? "dumped" : "plain" : "exited");
}

int main(int argc, char **argv)
{
    if (argc > 1 && chdir(argv[1]) < 0)
        return 2;
    everywhere(probe);
    hold();
    return 0;
}
