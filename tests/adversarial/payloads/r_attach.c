/* Attaches packet filters to sockets, by each of the four options: they are compiled into memory of which the whole host
 * has one budget. argv[1]: how many sockets get one of the largest. */
#include "probe.h"
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#define SO_ATTACH_REUSEPORT_EBPF 52
#endif

static struct sock_filter code[4096];
static const struct sock_fprog program = { 4096, code };

static int attach(int option, const void *value, socklen_t size)
{
    int s = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    return setsockopt(s, SOL_SOCKET, option, value, size) ? -1 : s;
}

static void probe(void)
{
    /* No such program is needed to learn whether the kernel would look for it. */
    int none = -1, s = socket(AF_INET, SOCK_DGRAM, 0);
    say("filter", attach(SO_ATTACH_FILTER, &program, sizeof program));
    say("reuseport-filter", attach(SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program));
    say("bpf", attach(SO_ATTACH_BPF, &none, sizeof none));
    say("reuseport-bpf", attach(SO_ATTACH_REUSEPORT_EBPF, &none, sizeof none));
    say("filter-high", syscall(SYS_setsockopt, s, 0x100000000ul | SOL_SOCKET, 0x100000000ul | SO_ATTACH_FILTER, &program,
                               sizeof program));
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    for (int i = 0; i < 4095; i++)
        code[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)SKF_AD_OFF);
    code[4095] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
    everywhere(probe);
    for (int i = atoi(argv[1]); i > 0 && attach(SO_ATTACH_FILTER, &program, sizeof program) >= 0; i--)
        ;
    hold();
    return 0;
}
