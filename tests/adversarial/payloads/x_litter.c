/* Leaves something of every kind behind: a daemon, files, SysV and POSIX objects, a key, a socket. Then exits 0. */
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *nonce = argc > 1 ? argv[argc - 1] : "x";
    char path[4096];
    const char *dirs[] = {"/tmp", "/dev/shm", "/task", "/run", "/var/tmp"};
    for (unsigned i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        snprintf(path, sizeof path, "%s/%s", dirs[i], nonce);
        int fd = open(path, O_CREAT | O_WRONLY, 0666);
        if (fd >= 0) close(fd);
    }
    shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    snprintf(path, sizeof path, "/%s", nonce);
    mq_open(path, O_CREAT | O_RDWR, 0600, NULL);
    /* A session keyring of its own: the daemon below keeps it alive. */
    syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, NULL);
    syscall(SYS_add_key, "user", nonce, "x", 1, -3 /* KEY_SPEC_SESSION_KEYRING */);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "%s", nonce);
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);
    if (sock >= 0 && bind(sock, (struct sockaddr *)&name, sizeof name) == 0) listen(sock, 1);
    if (fork() == 0) {
        setsid();
        alarm(20);
        for (;;) pause();
    }
    return 0;
}
