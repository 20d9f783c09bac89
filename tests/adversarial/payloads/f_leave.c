/* F23: leaves everything behind that can outlive a process: files, sockets, System V and POSIX objects, named by argv[1]. */
#include "probe.h"
#include <mqueue.h>
#include <stddef.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>

static long bind_to(int abstract, const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int n = snprintf(address.sun_path + abstract, sizeof address.sun_path - 1, "%s", name);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(fd, (void *)&address, offsetof(struct sockaddr_un, sun_path) + abstract + n) < 0)
        return -1;
    return listen(fd, 8);
}

int main(int argc, char **argv)
{
    static const char *const dirs[] = { "/tmp", "/dev/shm", "/var/tmp", "/task" };
    char path[256], name[64];
    if (argc < 2)
        return 2;
    if (argc > 2 && !strcmp(argv[2], "clean")) {
        snprintf(path, sizeof path, "/%s", argv[1]);
        mq_unlink(path);
        return 0; /* the suite removes the rest by uid */
    }
    for (unsigned i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        snprintf(path, sizeof path, "%s/%s", dirs[i], argv[1]);
        snprintf(name, sizeof name, "file-%s", dirs[i]);
        int fd = say(name, open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
        if (fd >= 0)
            (void)!write(fd, "left", 4);
    }
    snprintf(path, sizeof path, "/tmp/%s.sock", argv[1]);
    say("socket-path", bind_to(0, path));
    say("socket-abstract", bind_to(1, argv[1]));
    say("shm", shmget(0x7a5c0001, 4096, IPC_CREAT | IPC_EXCL | 0666));
    say("sem", semget(0x7a5c0001, 1, IPC_CREAT | IPC_EXCL | 0666));
    say("msg", msgget(0x7a5c0001, IPC_CREAT | IPC_EXCL | 0666));
    snprintf(path, sizeof path, "/%s", argv[1]);
    say("mq", mq_open(path, O_RDWR | O_CREAT | O_EXCL, 0600, NULL));
    hold();
    return 0;
}
