/* N05: two tasks at once. `serve NAME` offers whatever two processes of one system could share; `reach NAME PID` tries
 * to get at it and at the other process, whose pid on the host it was told. */
#include "probe.h"
#include <linux/keyctl.h>
#include <mqueue.h>
#include <stddef.h>
#include <sys/ipc.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/msg.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char *name;
static int peer;
enum { KEY = 0x7a5c0005 };

static int abstract(struct sockaddr_un *address, socklen_t *length)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s", name);
    *length = offsetof(struct sockaddr_un, sun_path) + 1 + n;
    return socket(AF_UNIX, SOCK_STREAM, 0);
}

static void serve(void)
{
    struct sockaddr_un address;
    socklen_t length;
    char path[128];
    int fd = abstract(&address, &length);
    say("bind", bind(fd, (void *)&address, length));
    say("listen", listen(fd, 8));
    say("shm", shmget(KEY, 4096, IPC_CREAT | 0666));
    say("sem", semget(KEY, 1, IPC_CREAT | 0666));
    say("msg", msgget(KEY, IPC_CREAT | 0666));
    snprintf(path, sizeof path, "/%s", name);
    mode_t old = umask(0);
    say("mq", mq_open(path, O_RDWR | O_CREAT, 0666, NULL));
    snprintf(path, sizeof path, "/tmp/%s", name);
    say("file", open(path, O_RDWR | O_CREAT, 0666));
    snprintf(path, sizeof path, "/dev/shm/%s", name);
    say("shm-file", open(path, O_RDWR | O_CREAT, 0666));
    umask(old);
}

static void reach(void)
{
    struct sockaddr_un address;
    socklen_t length;
    char path[128];
    int fd = abstract(&address, &length);
    say("connect", connect(fd, (void *)&address, length));
    close(fd);
    say("shm", shmget(KEY, 0, 0));
    say("sem", semget(KEY, 0, 0));
    say("msg", msgget(KEY, 0));
    snprintf(path, sizeof path, "/%s", name);
    say_fd("mq", mq_open(path, O_RDONLY));
    snprintf(path, sizeof path, "/tmp/%s", name);
    say_fd("file", open(path, O_RDONLY));
    snprintf(path, sizeof path, "/dev/shm/%s", name);
    say_fd("shm-file", open(path, O_RDONLY));
    say("kill", kill(peer, SIGURG)); /* ignored by default: harmless where it works */
    say("prlimit", syscall(SYS_prlimit64, peer, 0, NULL, NULL));
    say_fd("pidfd", syscall(SYS_pidfd_open, peer, 0));
    snprintf(path, sizeof path, "/proc/%d/status", peer);
    say_fd("proc", open(path, O_RDONLY));
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    name = argv[2];
    if (!strcmp(argv[1], "serve")) {
        serve();
    } else {
        peer = atoi(argv[3]);
        everywhere(reach);
    }
    hold();
    if (!strcmp(argv[1], "serve")) {
        char path[128];
        snprintf(path, sizeof path, "/%s", name);
        mq_unlink(path);
    }
    return 0;
}
