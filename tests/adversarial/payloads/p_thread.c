/* A thread forks a child that armed its parent-death signal, and ends; the process lives on. The kernel counts the
 * thread as the parent. Exit 0: the child died of it, 1: it did not. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;
static int up[2];

static void *spawn(void *unused) {
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (write(up[1], "x", 1) != 1) _exit(90);
        sleep(3);
        _exit(0);
    }
    char c;
    if (read(up[0], &c, 1) != 1) child = -1;
    return unused;
}

int main(void) {
    pthread_t thread;
    int status = 0;
    if (pipe(up) || pthread_create(&thread, NULL, spawn, NULL)) return 91;
    pthread_join(thread, NULL);
    if (waitpid(child, &status, 0) != child) return 92;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : 1;
}
