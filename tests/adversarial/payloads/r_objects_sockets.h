/* Kinds of r_objects.c: sockets by family and state, and what is left in them. */
#include "r_objects.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

static struct sockaddr_storage name;
static socklen_t name_size;

/* A socket on the loopback, at a port that the kernel chose; `name` is its address. */
static int bound(int family, int type)
{
    int s = socket(family, type, 0);
    struct sockaddr_in *four = (void *)&name;
    struct sockaddr_in6 *six = (void *)&name;
    memset(&name, 0, sizeof name);
    name.ss_family = family;
    if (family == AF_INET)
        four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        six->sin6_addr = in6addr_loopback;
    name_size = family == AF_INET ? sizeof *four : sizeof *six;
    return s < 0 || bind(s, (void *)&name, name_size) || getsockname(s, (void *)&name, &name_size) ? -1 : s;
}

static int listening(void)
{
    int s = bound(AF_INET, SOCK_STREAM);
    return s < 0 || listen(s, 1 << 16) ? -1 : s;
}

static int connected(int type)
{
    int s = socket(name.ss_family, type | SOCK_NONBLOCK, 0);
    if (s >= 0 && connect(s, (void *)&name, name_size) && errno != EINPROGRESS) {
        close(s);
        return -1;
    }
    return s;
}

static int tcp_pair(int pair[2])
{
    static int listener = -1;
    static struct sockaddr_storage at;
    if (listener < 0) {
        listener = listening();
        at = name;
    }
    name = at;
    pair[0] = connected(SOCK_STREAM);
    pair[1] = pair[0] < 0 ? -1 : accept(listener, NULL, NULL);
    return pair[1];
}

static void fill(int s, size_t size)
{
    for (int many = 0; many < 100000 && send(s, block, size, MSG_DONTWAIT) > 0; many++)
        ;
}

ONE(unix_stream) { return socket(AF_UNIX, SOCK_STREAM, 0); }
static int unix_named(int type, const char *text, size_t size)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int s = socket(AF_UNIX, type, 0);
    memcpy(at.sun_path, text, size);
    memcpy(&name, &at, sizeof at);
    name_size = sizeof at.sun_family + size;
    return s < 0 || bind(s, (void *)&at, name_size) ? -1 : s;
}
ONE(unix_path) { return unix_named(SOCK_DGRAM, path("s", i), strlen(path("s", i)) + 1); }
ONE(unix_abstract)
{
    char text[108] = { 0 };
    snprintf(text + 1, sizeof text - 1, "%100s%ld", "", getpid() * 10000L + i);
    return unix_named(SOCK_SEQPACKET, text, sizeof text);
}
ONE(unix_waiting)
{
    int s = unix_named(SOCK_STREAM, path("l", i), strlen(path("l", i)) + 1);
    if (s < 0 || listen(s, 100))
        return -1;
    for (int many = 0; many < 60; many++) {
        int c = connected(SOCK_STREAM);
        if (c < 0)
            break;
        fill(c, 4096);
        close(c);
    }
    return 0;
}
static int unix_full(int type, size_t size)
{
    int pair[2];
    if (socketpair(AF_UNIX, type, 0, pair))
        return -1;
    fill(pair[0], size);
    fill(pair[1], size);
    return 0;
}
ONE(unix_stream_full) { return unix_full(SOCK_STREAM, 32768); }
ONE(unix_dgram_full) { return unix_full(SOCK_DGRAM, 32768); }
ONE(unix_dgram_small) { return unix_full(SOCK_DGRAM, 1); }
ONE(unix_seqpacket_full) { return unix_full(SOCK_SEQPACKET, 1); }

/* 200 files that are nowhere but in a message. */
ONE(rights)
{
    int pair[2], files[200];
    char control[CMSG_SPACE(sizeof files)] = { 0 };
    struct iovec one = { block, 1 };
    struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof files);
    for (int f = 0; f < 200; f++)
        files[f] = open("/dev/null", O_RDONLY);
    memcpy(CMSG_DATA(head), files, sizeof files);
    int sent = socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && sendmsg(pair[0], &message, MSG_DONTWAIT) > 0;
    for (int f = 0; f < 200; f++)
        close(files[f]);
    return sent ? 0 : -1;
}

ONE(udp) { return bound(i & 1 ? AF_INET6 : AF_INET, SOCK_DGRAM); }
ONE(reuse_port)
{
    int one = 1, s = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + i) };
    if (s < 0 || setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one))
        return -1;
    return bind(s, (void *)&at, sizeof at);
}
static int udp_unread(int family, size_t size)
{
    int in = bound(family, SOCK_DGRAM), out = connected(SOCK_DGRAM), pieces = 1280;
    if (in < 0 || out < 0)
        return -1;
    if (family == AF_INET6)
        setsockopt(out, IPPROTO_IPV6, 24 /* IPV6_MTU */, &pieces, sizeof pieces);
    for (int many = 0; many < (size == 1 ? 400 : 12); many++)
        send(out, block, size, 0);
    close(out);
    return 0;
}
ONE(udp_full) { return udp_unread(AF_INET, 32768); }
ONE(udp_small) { return udp_unread(AF_INET, 1); }
ONE(udp_pieces) { return udp_unread(AF_INET6, 32768); }
/* A datagram that is never finished. */
ONE(udp_more)
{
    static int to[2];
    int family = i & 1;
    if (!to[family] && (to[family] = bound(family ? AF_INET6 : AF_INET, SOCK_DGRAM)) < 0)
        return -1;
    name_size = sizeof name;
    getsockname(to[family], (void *)&name, &name_size);
    int s = connected(SOCK_DGRAM);
    return s < 0 || send(s, block, 65000, MSG_MORE) < 0 ? -1 : 0;
}
ONE(udp_more_message)
{
    struct iovec all = { block, 65000 };
    struct mmsghdr message = { .msg_hdr = { .msg_iov = &all, .msg_iovlen = 1 } };
    int in = i ? 0 : bound(AF_INET, SOCK_DGRAM), s = in < 0 ? -1 : connected(SOCK_DGRAM);
    if (s < 0)
        return -1;
    return i & 1 ? sendmmsg(s, &message, 1, MSG_MORE) : (int)sendmsg(s, &message.msg_hdr, MSG_MORE);
}
/* The same from a pipe, whose pages it takes over. */
ONE(udp_more_pipe)
{
    static int ends[2];
    if (!i && (bound(AF_INET, SOCK_DGRAM) < 0 || pipe(ends)))
        return -1;
    int s = connected(SOCK_DGRAM);
    if (s < 0 || write(ends[1], block, 32768) != 32768)
        return -1;
    return splice(ends[0], NULL, s, NULL, 32768, SPLICE_F_MORE) > 0 ? 0 : -1;
}

ONE(tcp) { return i & 1 ? listening() : bound(AF_INET6, SOCK_STREAM); }
ONE(tcp_full)
{
    int pair[2];
    if (tcp_pair(pair) < 0)
        return -1;
    fill(pair[0], 4096);
    return 0;
}
ONE(tcp_small)
{
    int pair[2], one = 1;
    if (tcp_pair(pair) < 0 || setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
        return -1;
    for (int many = 0; many < 200; many++)
        send(pair[0], block, 1, MSG_DONTWAIT);
    return 0;
}
/* Closed before what was sent has been read. */
ONE(tcp_orphan)
{
    int pair[2];
    if (tcp_pair(pair) < 0)
        return -1;
    fill(pair[0], 4096);
    close(pair[0]);
    return 0;
}
static int tcp_closed(int both)
{
    int pair[2];
    if (tcp_pair(pair) < 0)
        return -1;
    close(pair[0]);
    if (both)
        close(pair[1]);
    return 0;
}
ONE(tcp_time_wait) { return tcp_closed(1); }
ONE(tcp_fin_wait) { return tcp_closed(0); }
ONE(tcp_waiting)
{
    if (listening() < 0)
        return -1;
    for (int many = 0; many < 60; many++) {
        int c = connected(SOCK_STREAM);
        int sent = c >= 0 && write(c, block, 4096) > 0;
        close(c);
        if (!sent)
            break;
    }
    return 0;
}
/* Half open to the listener, which waits for data. */
ONE(tcp_deferred)
{
    int s = listening(), seconds = 60;
    if (s < 0 || setsockopt(s, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds))
        return -1;
    for (int many = 0; many < 8; many++)
        if (connected(SOCK_STREAM) < 0)
            return -1;
    return 0;
}
ONE(packet_options)
{
    static char options[65000];
    struct cmsghdr *head = (void *)options;
    head->cmsg_len = sizeof options;
    head->cmsg_level = 0x7777;
    head->cmsg_type = 1;
    int s = socket(AF_INET6, SOCK_DGRAM, 0);
    return s < 0 ? -1 : setsockopt(s, IPPROTO_IPV6, 6 /* IPV6_2292PKTOPTIONS */, options, sizeof options);
}
