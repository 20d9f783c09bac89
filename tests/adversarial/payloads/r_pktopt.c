/* Keeps 65,000 bytes of packet options, which are charged to nobody, on each of argv[1] IPv6 sockets. */
#include "probe.h"
#include <netinet/in.h>
#include <sys/socket.h>

#define IPV6_2292PKTOPTIONS_ 6

int main(int argc, char **argv)
{
    static char options[65000];
    struct cmsghdr *head = (void *)options;
    if (argc < 3)
        return 2;
    /* Of a level that no kernel looks into: kept as it is. */
    head->cmsg_len = sizeof options;
    head->cmsg_level = 0x7777;
    head->cmsg_type = 1;
    long kept = 0;
    for (int many = atoi(argv[1]); many > 0; many--) {
        int s = socket(AF_INET6, SOCK_DGRAM, 0);
        if (s < 0 || setsockopt(s, IPPROTO_IPV6, IPV6_2292PKTOPTIONS_, options, sizeof options))
            break;
        kept++;
    }
    say("options", kept ? 0 : -1);
    hold();
    return 0;
}
