/* W01, W02: reaches for ADDRESS PORT by TCP, UDP, ICMP and raw packets. An IPv6 address is told by its colon. */
#include "probe.h"
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static const char *address;
static int port;

static socklen_t target(struct sockaddr_storage *storage, int with_port)
{
    memset(storage, 0, sizeof *storage);
    if (strchr(address, ':')) {
        struct sockaddr_in6 *six = (void *)storage;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(with_port ? port : 0);
        inet_pton(AF_INET6, address, &six->sin6_addr);
        return sizeof *six;
    }
    struct sockaddr_in *four = (void *)storage;
    four->sin_family = AF_INET;
    four->sin_port = htons(with_port ? port : 0);
    inet_pton(AF_INET, address, &four->sin_addr);
    return sizeof *four;
}

static void probe(void)
{
    struct sockaddr_storage to;
    socklen_t length = target(&to, 1);
    int family = to.ss_family;
    int fd = socket(family, SOCK_STREAM, 0);
    say("tcp", fd < 0 ? -1 : connect(fd, (void *)&to, length));
    close(fd);
    fd = socket(family, SOCK_DGRAM, 0);
    say("udp", fd < 0 ? -1 : sendto(fd, "x", 1, 0, (void *)&to, length));
    close(fd);
    length = target(&to, 0);
    static const unsigned char echo[8] = { 8 }, echo6[8] = { 128 };
    fd = socket(family, SOCK_DGRAM, family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);
    say("ping", fd < 0 ? -1 : sendto(fd, family == AF_INET ? echo : echo6, 8, 0, (void *)&to, length));
    close(fd);
    fd = socket(family, SOCK_RAW, family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);
    say("raw", fd < 0 ? -1 : sendto(fd, family == AF_INET ? echo : echo6, 8, 0, (void *)&to, length));
    close(fd);
    say_fd("packet", socket(AF_PACKET, SOCK_RAW, htons(3)));
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    address = argv[1];
    port = atoi(argv[2]);
    everywhere(probe);
    hold();
    return 0;
}
