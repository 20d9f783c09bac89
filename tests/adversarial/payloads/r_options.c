/* Asks sockets for what the kernel keeps in memory that it charges to nobody: error queues, sending times, keys of signed
 * connections, packet options, flow labels, groups; and for a second protocol engine on a TCP or UDP socket. */
#include "probe.h"
#include <netinet/in.h>
#include <sys/socket.h>

/* Says whether the option could be set, and whether it was. */
static void pretended(const char *name, int family, unsigned long level, unsigned long option, int value)
{
    char is_set[64];
    int s = socket(family, SOCK_DGRAM, 0), before = 0, now = 0;
    socklen_t size = sizeof now;
    getsockopt(s, (int)level, (int)option, &before, &size);
    say(name, syscall(SYS_setsockopt, s, level, option, &value, sizeof value));
    getsockopt(s, (int)level, (int)option, &now, &size);
    snprintf(is_set, sizeof is_set, "%s-set", name);
    line(is_set, now != before ? "yes" : "no");
    close(s);
}

static void probe(void)
{
    /* The value suits no more than the first word needs: a kernel that looks at a key answers EINVAL, not EPERM. */
    static const struct { const char *name; int family, type, level, option; } options[] = {
        { "timestamping", AF_INET, SOCK_DGRAM, SOL_SOCKET, 37 },
        { "timestamping-new", AF_INET, SOCK_DGRAM, SOL_SOCKET, 65 },
        { "zerocopy", AF_INET, SOCK_STREAM, SOL_SOCKET, 60 },
        { "rcvlowat", AF_INET, SOCK_STREAM, SOL_SOCKET, 18 },
        { "save-syn", AF_INET, SOCK_STREAM, IPPROTO_TCP, 27 },
        { "fastopen", AF_INET, SOCK_STREAM, IPPROTO_TCP, 23 },
        { "gro", AF_INET, SOCK_DGRAM, IPPROTO_UDP, 104 },
        { "md5", AF_INET, SOCK_STREAM, IPPROTO_TCP, 14 },
        { "md5-ext", AF_INET, SOCK_STREAM, IPPROTO_TCP, 32 },
        { "ao-key", AF_INET, SOCK_STREAM, IPPROTO_TCP, 38 },
        { "ulp", AF_INET, SOCK_STREAM, IPPROTO_TCP, 31 },
        { "encap", AF_INET, SOCK_DGRAM, IPPROTO_UDP, 100 },
        { "group4", AF_INET, SOCK_DGRAM, IPPROTO_IP, 35 },
        { "source4", AF_INET, SOCK_DGRAM, IPPROTO_IP, 39 },
        { "filter4", AF_INET, SOCK_DGRAM, IPPROTO_IP, 41 },
        { "join4", AF_INET, SOCK_DGRAM, IPPROTO_IP, 42 },
        { "join-source4", AF_INET, SOCK_DGRAM, IPPROTO_IP, 46 },
        { "join-filter4", AF_INET, SOCK_DGRAM, IPPROTO_IP, 48 },
        { "packet-options6", AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, 6 },
        { "hop-options6", AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, 54 },
        { "dest-options6", AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, 59 },
        { "flow-label6", AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, 32 },
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
    pretended("recverr", AF_INET, IPPROTO_IP, 11, 1);
    pretended("recverr6", AF_INET6, IPPROTO_IPV6, 25, 1);
    /* Both are ints to the kernel: what is above them is nothing. */
    pretended("recverr-high", AF_INET, 0x100000000ul | IPPROTO_IP, 0x100000000ul | 11, 1);
    pretended("rcvbuf", AF_INET, SOL_SOCKET, SO_RCVBUF, 150000);
}

int main(void)
{
    everywhere(probe);
    hold();
    return 0;
}
