/* Leaves the kernel's answers unread in netlink sockets: argv[1] of them, as full as they get. */
#include "probe.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

static int many;

static int fill(void)
{
    int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), size = 1 << 24;
    struct {
        struct nlmsghdr head;
        struct ifinfomsg body;
    } ask = { .head = { sizeof ask, RTM_GETLINK, NLM_F_REQUEST, 0, 0 }, .body = { .ifi_index = 1 } };
    if (s < 0)
        return s;
    setsockopt(s, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    for (int i = 0; i < 400 && send(s, &ask, sizeof ask, MSG_DONTWAIT) > 0; i++)
        ;
    return s;
}

static void probe(void)
{
    say("route", fill());
    say_fd("route-high", syscall(SYS_socket, 0x100000000ul | AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    many = atoi(argv[1]);
    everywhere(probe);
    while (many-- > 0 && fill() >= 0)
        ;
    hold();
    return 0;
}
