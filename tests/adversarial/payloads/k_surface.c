/* K21: asks for what no program in a task needs, behind calls that all need: bridges, VLANs and other devices of a network, btrfs, notification
 * pipes, what is in the host's page cache, attributes of inodes. argv: a file of the host, a directory of its own. */
#include "probe.h"
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

static const char *path, *own;

static void of_devices(void)
{
    static const struct { const char *name; unsigned long request; } requests[] = {
        { "bridge-get", 0x8940 },       { "bridge-set", 0x8941 },     { "vlan-get", 0x8982 },      { "vlan-set", 0x8983 },
        { "ethtool", 0x8946 },          { "wan", 0x894a },            { "namespace", 0x894c },     { "bond", 0x8994 },
        { "timestamping", 0x89b1 },     { "of-the-protocol", 0x89e0 }, { "of-the-device", 0x89f0 }, { "mii", 0x8947 },
        { "bridge-get-high", 0x700008940ul }, { "route", 0x890b },    { "arp", 0x8954 },
    };
    unsigned long room[64];
    struct ifreq lo;
    int s = socket(AF_INET, SOCK_DGRAM, 0), t = socket(AF_INET, SOCK_STREAM, 0), n;
    for (unsigned i = 0; i < sizeof requests / sizeof *requests; i++) {
        memset(room, 0, sizeof room);
        say(requests[i].name, syscall(SYS_ioctl, s, requests[i].request, room));
    }
    memset(&lo, 0, sizeof lo);
    strcpy(lo.ifr_name, "lo");
    say("allowed-flags", ioctl(s, 0x8913, &lo));
    say("allowed-address", ioctl(s, 0x8915, &lo));
    say("allowed-size", ioctl(s, 0x8921, &lo));
    say("allowed-index", ioctl(s, 0x8933, &lo));
    struct ifconf list = { .ifc_len = sizeof room, .ifc_buf = (void *)room };
    say("allowed-list", ioctl(s, 0x8912, &list));
    say("allowed-mark", ioctl(t, 0x8905, &n));
    say("allowed-unread", ioctl(s, FIONREAD, &n));
    say("allowed-unsent", ioctl(s, TIOCOUTQ, &n));
    close(s);
    close(t);
}

static void of_files(void)
{
    static const struct { const char *name; unsigned long request; } requests[] = {
        { "btrfs-sync", 0x9408 },           { "btrfs-start-sync", 0x80089418 }, { "btrfs-subvolume", 0x81f8943c },
        { "btrfs-search", 0xd0009411 },     { "btrfs-label", 0x81009431 },      { "btrfs-dedupe", 0xc0189436 },
        { "btrfs-fs-info", 0x8400941f },    { "btrfs-lookup", 0xd0009412 },
    };
    static char room[1 << 16];
    char byte, name[256];
    struct iovec one = { &byte, 1 };
    int fd = open(path, O_RDONLY | O_CLOEXEC), pair[2];
    for (unsigned i = 0; i < sizeof requests / sizeof *requests; i++) {
        memset(room, 0, sizeof room);
        say(requests[i].name, syscall(SYS_ioctl, fd, requests[i].request, room));
    }
    /* The kernel's own answer: what can be written to is no file system that shares blocks. */
    snprintf(name, sizeof name, "%s/k_surface-%d-%s", own, getpid(), probe_where);
    int copy = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    unlink(name);
    long shared = ioctl(copy, 0x40049409, fd);
    line("allowed-clone", shared < 0 && errno == EPERM ? "EPERM" : "answered");
    close(copy);
    long piped = syscall(SYS_pipe2, pair, O_EXCL);
    say("notifications", piped);
    if (piped == 0)
        close(pair[0]), close(pair[1]);
    say("allowed-pipe", syscall(SYS_pipe2, pair, O_CLOEXEC | O_NONBLOCK));
    close(pair[0]);
    close(pair[1]);
    /* Whether it was in memory or not, EAGAIN or 1: both tell. */
    long told = syscall(SYS_preadv2, fd, &one, 1, 0L, 0L, 8 /* RWF_NOWAIT */);
    line("page-cache", told >= 0 || errno == EAGAIN ? "told" : strerrorname_np(errno));
    told = syscall(SYS_preadv2, fd, &one, 1, 0L, 0L, 0x700000008ul);
    line("page-cache-high", told >= 0 || errno == EAGAIN ? "told" : strerrorname_np(errno));
    say("allowed-read", syscall(SYS_preadv2, fd, &one, 1, 0L, 0L, 0));
    memset(room, 0, sizeof room);
    say("attributes", syscall(468, AT_FDCWD, path, room, 24, 0));
    say("attributes-set", syscall(469, AT_FDCWD, path, room, 24, 0));
    close(fd);
}

static void probe(void)
{
    of_devices();
    of_files();
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    path = argv[1];
    own = argv[2];
    everywhere(probe);
    hold();
    return 0;
}
