/* W20, W21: abstract sockets of the host (argv[1] is the name), and socket families that no network namespace divides. */
#include "probe.h"
#include <linux/if_alg.h>
#include <linux/netlink.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char *name;

static long abstract(int type, int by_sendto)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int n = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", name);
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + n;
    int fd = socket(AF_UNIX, type, 0);
    long result = by_sendto ? sendto(fd, "x", 1, 0, (void *)&address, length) : connect(fd, (void *)&address, length);
    int saved = errno;
    close(fd);
    errno = saved;
    return result;
}

static void probe(void)
{
    static const struct { const char *name; int family, type, protocol; } families[] = {
        { "vsock", AF_VSOCK, SOCK_STREAM, 0 },
        { "alg", AF_ALG, SOCK_SEQPACKET, 0 },
        { "packet", AF_PACKET, SOCK_RAW, 0x0300 },
        { "packet-old", AF_INET, SOCK_PACKET, 0x0300 },
        { "raw", AF_INET, SOCK_RAW, IPPROTO_TCP },
        { "netlink-uevent", AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT },
        { "netlink-audit", AF_NETLINK, SOCK_RAW, NETLINK_AUDIT },
        { "netlink-connector", AF_NETLINK, SOCK_DGRAM, NETLINK_CONNECTOR },
        { "netlink-diag", AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG },
        { "netlink-generic", AF_NETLINK, SOCK_RAW, NETLINK_GENERIC },
        { "netlink-netfilter", AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER },
        { "key", AF_KEY, SOCK_RAW, 2 },
        { "xdp", AF_XDP, SOCK_RAW, 0 },
        { "sctp", AF_INET, SOCK_STREAM, IPPROTO_SCTP },
        { "mptcp", AF_INET, SOCK_STREAM, 262 },
        { "bluetooth", AF_BLUETOOTH, SOCK_RAW, 1 },
        { "can", AF_CAN, SOCK_RAW, 1 },
        { "tipc", AF_TIPC, SOCK_STREAM, 0 },
    };
    char text[64];
    say("abstract-stream", abstract(SOCK_STREAM, 0));
    say("abstract-datagram", abstract(SOCK_DGRAM, 1));
    for (unsigned i = 0; i < sizeof families / sizeof *families; i++) {
        snprintf(text, sizeof text, "family-%s", families[i].name);
        say_fd(text, socket(families[i].family, families[i].type, families[i].protocol));
    }
    /* The family is an int to the kernel: what is above it is nothing. */
    say_fd("family-vsock-high", syscall(SYS_socket, 0x100000000ul | AF_VSOCK, SOCK_STREAM, 0));
    say_fd("family-netlink-high", syscall(SYS_socket, AF_NETLINK, SOCK_RAW, 0x100000000ul | NETLINK_KOBJECT_UEVENT));
    say_fd("route", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    say_fd("allowed-tcp6", socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0));
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    name = argv[1];
    everywhere(probe);
    hold();
    return 0;
}
