/* N03: enters namespaces by path, by pidfd (argv[1] is the process to follow) and by whatever descriptors it was left. */
#include "probe.h"
#include <sys/ioctl.h>

static char *target;

static void probe(void)
{
    static const char *const kinds[] = { "mnt", "uts", "net", "ipc", "pid", "user", "cgroup", "time" };
    char path[64], name[64];
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(path, sizeof path, "/proc/%s/ns/%s", target, kinds[i]);
        snprintf(name, sizeof name, "open-target-%s", kinds[i]);
        say_fd(name, open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i]);
        int fd = open(path, O_RDONLY);
        snprintf(name, sizeof name, "setns-self-%s", kinds[i]);
        if (fd >= 0) {
            say(name, setns(fd, 0));
            close(fd);
        }
    }
    int pidfd = syscall(SYS_pidfd_open, atoi(target), 0);
    say("setns-pidfd", setns(pidfd, CLONE_NEWUTS | CLONE_NEWNET));
    /* Namespaces can also be had from descriptors of others: a process, or the next mount namespace in the kernel's list. */
    say_fd("pidfd-net", ioctl(pidfd, _IO(0xff, 4), 0));
    say_fd("pidfd-mnt", ioctl(pidfd, _IO(0xff, 3), 0));
    if (pidfd >= 0)
        close(pidfd);
    struct { uint32_t size, mounts; uint64_t id; } info = { 16, 0, 0 };
    int own = open("/proc/self/ns/mnt", O_RDONLY);
    say_fd("mnt-next", ioctl(own, _IOR(0xb7, 11, char[16]), &info));
    say_fd("mnt-previous", ioctl(own, _IOR(0xb7, 12, char[16]), &info));
    close(own);
    own = open("/proc/self/ns/pid", O_RDONLY);
    say_fd("pid-parent", ioctl(own, _IO(0xb7, 2)));
    close(own);
    /* The test left a descriptor of the host's UTS namespace open in taskman. */
    long joined = -1;
    for (int fd = 3; fd < 64; fd++)
        if (setns(fd, CLONE_NEWUTS) == 0)
            joined = fd;
    say("setns-inherited", joined);
}

int main(int argc, char **argv)
{
    target = argc > 1 ? argv[1] : "1";
    everywhere(probe);
    hold();
    return 0;
}
