/* Asks sockets for what the kernel keeps in memory that it charges to nobody: error queues, sending times, keys of signed
 * connections, IPv6 groups; and for a second protocol engine on a TCP socket. */
#include "probe.h"
#include <netinet/in.h>
#include <sys/socket.h>

static void probe(void)
{
    /* The value suits no more than the first word needs: a kernel that looks at a key answers EINVAL, not EPERM. */
    static const struct { const char *name; int family, type, level, option; } options[] = {
        { "recverr", AF_INET, SOCK_DGRAM, IPPROTO_IP, 11 },
        { "recverr6", AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, 25 },
        { "timestamping", AF_INET, SOCK_DGRAM, SOL_SOCKET, 37 },
        { "timestamping-new", AF_INET, SOCK_DGRAM, SOL_SOCKET, 65 },
        { "zerocopy", AF_INET, SOCK_STREAM, SOL_SOCKET, 60 },
        { "md5", AF_INET, SOCK_STREAM, IPPROTO_TCP, 14 },
        { "md5-ext", AF_INET, SOCK_STREAM, IPPROTO_TCP, 32 },
        { "ao-key", AF_INET, SOCK_STREAM, IPPROTO_TCP, 38 },
        { "ulp", AF_INET, SOCK_STREAM, IPPROTO_TCP, 31 },
        { "group6", AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, 20 },
        { "anycast6", AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, 27 },
        { "join6", AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, 42 },
        { "source6", AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, 46 },
        { "allowed-nodelay", AF_INET, SOCK_STREAM, IPPROTO_TCP, 1 },
        { "allowed-v6only", AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, 26 },
    };
    int one = 1;
    for (unsigned i = 0; i < sizeof options / sizeof *options; i++) {
        int s = socket(options[i].family, options[i].type, 0);
        say(options[i].name, setsockopt(s, options[i].level, options[i].option, &one, sizeof one));
        close(s);
    }
    /* Both are ints to the kernel: what is above them is nothing. */
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    say("recverr-high", syscall(SYS_setsockopt, s, 0x100000000ul | IPPROTO_IP, 0x100000000ul | 11, &one, sizeof one));
    close(s);
}

int main(void)
{
    everywhere(probe);
    hold();
    return 0;
}
