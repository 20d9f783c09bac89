/* Memory policies of a shared file are kept with the file and charged to nobody: argv[1] of them, a page each. */
#include "probe.h"
#include <linux/mempolicy.h>
#include <sys/mman.h>

#define WINDOW 20000L

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    long wanted = atol(argv[1]), kept = 0;
    unsigned long nodes = 1;
    int fd = memfd_create("policies", 0), failed = 0;
    if (fd < 0)
        return 91;
    for (long base = 0; kept < wanted && !failed; base += WINDOW) {
        char *window = mmap(NULL, WINDOW * 4096, PROT_READ, MAP_SHARED, fd, base * 4096);
        if (window == MAP_FAILED)
            return 92;
        for (long page = 0; page < WINDOW && kept < wanted && !failed; page += 2) {
            failed = syscall(SYS_mbind, window + page * 4096, 4096, MPOL_BIND, &nodes, 64, 0) != 0;
            kept += !failed;
        }
        if (kept < wanted)
            munmap(window, WINDOW * 4096);
    }
    say("policy", kept ? 0 : -1);
    hold();
    return 0;
}
