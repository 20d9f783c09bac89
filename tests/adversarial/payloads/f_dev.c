/* F30: makes device nodes in the working directory and opens them, and opens devices of the host by name. */
#include "probe.h"
#include <sys/sysmacros.h>

static void probe(void)
{
    char name[64];
    snprintf(name, sizeof name, "node-%s", probe_where);
    say("mknod-mem", mknod(name, S_IFCHR | 0666, makedev(1, 1)));
    say_fd("open-mem", open(name, O_RDONLY));
    snprintf(name, sizeof name, "null-%s", probe_where);
    say("mknod-null", mknod(name, S_IFCHR | 0666, makedev(1, 3)));
    say_fd("open-null", open(name, O_RDONLY));
    snprintf(name, sizeof name, "disk-%s", probe_where);
    say("mknod-block", mknod(name, S_IFBLK | 0666, makedev(254, 0)));
    /* The mode is a 16-bit type; a filter must not be led astray by what is above it. */
    say("mknod-high-bits", syscall(SYS_mknod, "node-high", 0x100000000ul | S_IFCHR | 0666, makedev(1, 3)));
    say("mknodat", mknodat(AT_FDCWD, "node-at", S_IFCHR | 0666, makedev(1, 3)));
    unlink("node-high");
    unlink("node-at");
    static const char *const devices[] = { "/dev/mem", "/dev/kmsg", "/dev/port", "/dev/vda", "/dev/sda", "/dev/kvm", "/dev/fuse",
                                           "/dev/net/tun", "/dev/loop-control", "/dev/vsock", "/dev/console", "/dev/tty0" };
    for (unsigned i = 0; i < sizeof devices / sizeof *devices; i++)
        say_fd(devices[i], open(devices[i], O_RDONLY | O_NONBLOCK | O_NOCTTY));
}

int main(void)
{
    everywhere(probe);
    hold();
    return 0;
}
