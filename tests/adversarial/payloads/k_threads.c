/* K10: processes and threads of several kinds, all waiting, for the observer to read the state of each. */
#include "probe.h"

static void *idle(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    for (int i = 0; i < 4; i++)
        pthread_create(&thread, NULL, idle, NULL);
    /* The death signal ends them where nothing else does: in the control arm. */
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        idle(NULL);
    }
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setsid();
        pthread_create(&thread, NULL, idle, NULL);
        idle(NULL);
    }
    /* A program executed by the payload. */
    if (argc > 1 && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(argv[1], argv[1], NULL);
        _exit(127);
    }
    hold();
    return 0;
}
