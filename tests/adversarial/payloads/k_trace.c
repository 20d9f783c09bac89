/* K04: reaches into another process, argv[1], by every call that can; argv[2] is an address, or `stack`, to read and write there. */
#include "probe.h"
#include <linux/kcmp.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>

static int target;
static void *address;

/* In a process of its own, whose end lets go of what it traced. */
static void trace(const char *name, int request)
{
    pid_t child = fork();
    if (child == 0) {
        if (say(name, ptrace(request, target, 0, 0)) == 0 && request == PTRACE_ATTACH)
            waitpid(target, NULL, __WALL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void probe(void)
{
    char room[16], word[16] = "overwritten";
    struct iovec here = { room, 8 }, mine = { word, 8 }, there = { address, 8 }, advice = { (void *)0x1000, 4096 };
    say("process_vm_readv", syscall(SYS_process_vm_readv, target, &here, 1, &there, 1, 0));
    say("process_vm_writev", syscall(SYS_process_vm_writev, target, &mine, 1, &there, 1, 0));
    int pidfd = syscall(SYS_pidfd_open, target, 0);
    say_fd("pidfd_getfd", syscall(SYS_pidfd_getfd, pidfd, 0, 0));
    say("process_madvise", syscall(SYS_process_madvise, pidfd, &advice, 1, MADV_COLD, 0));
    say("process_mrelease", syscall(SYS_process_mrelease, pidfd, 0));
    if (pidfd >= 0)
        close(pidfd);
    say("kcmp", syscall(SYS_kcmp, getpid(), target, KCMP_VM, 0, 0));
    say("move_pages", syscall(SYS_move_pages, target, 0, NULL, NULL, NULL, 0));
    say("migrate_pages", syscall(SYS_migrate_pages, target, 0, NULL, NULL));
    trace("ptrace-traceme", PTRACE_TRACEME);
    trace("ptrace-seize", PTRACE_SEIZE);
    trace("ptrace-attach", PTRACE_ATTACH);
}

/* The lowest address of the target's stack, where nothing is in use; where that is hidden, any address must do. */
static unsigned long stack_of(const char *pid)
{
    char path[64], text[512];
    unsigned long from = 0x400000;
    snprintf(path, sizeof path, "/proc/%s/maps", pid);
    FILE *maps = fopen(path, "r");
    while (maps && fgets(text, sizeof text, maps))
        if (strstr(text, "[stack]"))
            from = strtoul(text, NULL, 16);
    if (maps)
        fclose(maps);
    return from;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    target = atoi(argv[1]);
    address = (void *)(strcmp(argv[2], "stack") ? strtoul(argv[2], NULL, 16) : stack_of(argv[1]));
    everywhere(probe);
    hold();
    return 0;
}
