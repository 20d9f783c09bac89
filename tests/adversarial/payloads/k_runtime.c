/* K11: what libraries and runtimes probe for. Each must work, or answer ENOSYS; none may kill. */
#include "probe.h"
#include <linux/membarrier.h>
#include <linux/rseq.h>
#include <linux/stat.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

static void probe(void)
{
    struct statx stx;
    char bytes[16];
    int pair[2];
    sigset_t set;
    sigemptyset(&set);
    say("statx", statx(AT_FDCWD, "/usr", 0, STATX_ALL, &stx));
    say("faccessat2", syscall(439, AT_FDCWD, "/usr", R_OK, 0));
    int memory = say("memfd", memfd_create("probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    say("ftruncate", ftruncate(memory, 4096));
    say("seal", fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK));
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    say("mmap", page == MAP_FAILED ? -1 : 0);
    say("mprotect-exec", mprotect(page, 4096, PROT_READ | PROT_EXEC));
    say("close_range", syscall(SYS_close_range, 200, 300, 0));
    say("getrandom", getrandom(bytes, sizeof bytes, 0));
    say_fd("epoll", epoll_create1(EPOLL_CLOEXEC));
    say_fd("eventfd", eventfd(0, 0));
    say_fd("signalfd", signalfd(-1, &set, 0));
    say_fd("timerfd", timerfd_create(CLOCK_MONOTONIC, 0));
    say_fd("inotify", inotify_init1(0));
    say_fd("pidfd", syscall(SYS_pidfd_open, getpid(), 0));
    say("membarrier", syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0));
    say("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    /* glibc has registered one for this thread; a second is refused by the kernel as busy or invalid, never by a filter. */
    say("rseq", syscall(SYS_rseq, NULL, 0, 0, 0));
    say("sched_affinity", syscall(SYS_sched_getaffinity, 0, sizeof bytes, bytes));
    say("futex_waitv", syscall(449, NULL, 0, 0, NULL, 0));
    say("copy_file_range", syscall(SYS_copy_file_range, memory, &(loff_t){ 0 }, memory, &(loff_t){ 4096 }, 16, 0));
    say("clone3", syscall(SYS_clone3, NULL, 0));
    close(memory);
}

int main(void)
{
    everywhere(probe);
    return 0;
}
