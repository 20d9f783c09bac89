/* U22: holds as much of one kind as the limits allow of what the kernel takes long to give back, says so, and waits.
 * argv: the kind, and of how many processes if not of the usual number. Every loop ends where the limits end it. */
#include "probe.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

static int many(int limit, void (*each)(int))
{
    int made = 0;
    for (; made < limit; made++) {
        int pid = fork();
        if (pid < 0)
            break;
        if (!pid) {
            each(made);
            /* The parent waits for all: what was made is there when it says so. */
            raise(SIGSTOP);
            for (;;)
                pause();
        }
    }
    for (int i = 0; i < made; i++)
        waitpid(-1, NULL, WUNTRACED);
    return made;
}

static void memberships(int number)
{
    for (int i = 0; i < 60; i++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        for (int g = 0; fd >= 0 && g < 20; g++) {
            struct ip_mreqn m = { .imr_multiaddr.s_addr = htonl(0xe1000000u + (number * 60 + i) * 20 + g), .imr_ifindex = 1 };
            if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m))
                return;
        }
    }
}

static void descriptors(int number)
{
    (void)number;
    while (socket(AF_UNIX, SOCK_STREAM, 0) >= 0)
        ;
}

static void pipes(int number)
{
    (void)number;
    static char page[65536];
    int ends[2];
    for (int i = 0; i < 60 && !pipe2(ends, O_NONBLOCK); i++)
        while (write(ends[1], page, sizeof page) > 0)
            ;
}

/* Every second page of its own protection: as many mappings as there may be. */
static void mappings(int number)
{
    (void)number;
    for (int i = 0; i < 60000; i++)
        if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
            break;
}

/* One file of shared memory in every process: the pages are few, the tables that show them many. */
static int shared;

static void tables(int number)
{
    (void)number;
    volatile char *all = mmap(NULL, 96 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, shared, 0);
    if (all == MAP_FAILED)
        return;
}

/* A page here and there in a range of a terabyte: a table for each. */
static void sparse(int number)
{
    (void)number;
    char *all = mmap(NULL, 1ul << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int i = 0; all != MAP_FAILED && i < 300; i++)
        all[(unsigned long)i << 30] = 1;
}

static void *idle(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void threads(int number)
{
    (void)number;
    pthread_t thread;
    for (int i = 0; i < 120 && !pthread_create(&thread, NULL, idle, NULL); i++)
        ;
}

/* Names of its own: they go with the mount namespace. */
static void files(int number)
{
    char path[64];
    for (int i = 0; i < 400; i++) {
        snprintf(path, sizeof path, "/tmp/%d-%d", number, i);
        if (mkdir(path, 0700))
            return;
    }
}

int main(int argc, char **argv)
{
    const struct { const char *name; void (*each)(int); int processes; } kinds[] = {
        { "memberships", memberships, 50 }, { "descriptors", descriptors, 120 }, { "pipes", pipes, 60 },
        { "mappings", mappings, 4 },        { "tables", tables, 100 },           { "sparse", sparse, 100 },
        { "threads", threads, 1 },          { "files", files, 30 },
    };
    shared = memfd_create("shared", 0);
    if (argc < 2 || ftruncate(shared, 96 << 20))
        return 2;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, argv[1])) {
            printf("ready %d\n", many(argc > 2 ? atoi(argv[2]) : kinds[i].processes, kinds[i].each));
            fflush(stdout);
            for (;;)
                pause();
        }
    return 2;
}
