/* R31: takes POSIX locks, which the kernel charges to no memory limit: argv[1] of them in each of argv[2] processes. Says `state ready`
 * when it has them, and holds them until standard input ends, for argv[3] seconds at most.
 * With `hidden` as argv[4], the beginning of the host's list, which goes by CPU, is full of others before: of a host file's, whose takers
 * have ended.
 * Before that it tries locks that do not name the process that has them: of open file descriptions, which name none, and of processes that
 * share their open files with one that lives on. */
#include "probe.h"
#include <dirent.h>
#include <poll.h>
#include <sys/file.h>

static struct flock at(long start)
{
    struct flock one = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start * 2, .l_len = 1 };
    return one;
}

static int new_file(void)
{
    return open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* A child that takes a lock and ends, if there may be one. */
static void shared(const char *name, unsigned long flags, int fd, long start)
{
    struct flock one = at(start);
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        fcntl(fd, F_SETLK, &one);
        _exit(0);
    }
    if (say(name, child) > 0)
        waitpid((int)child, NULL, 0);
}

static void probe(void)
{
    int fd = new_file();
    struct flock one = at(0), two = at(1), three = at(2);
    say("posix", fcntl(fd, F_SETLK, &one));
    say("flock", flock(fd, LOCK_EX));
    say("ofd", fcntl(fd, F_OFD_SETLK, &two));
    say("ofd-wait", fcntl(fd, F_OFD_SETLKW, &three));
    say("ofd-ask", fcntl(fd, F_OFD_GETLK, &two));
    say("ofd-high", syscall(SYS_fcntl, fd, 0x100000000ul | F_OFD_SETLK, &three));
    shared("fork", 0, fd, 3);
    shared("files", CLONE_FILES, fd, 4);
    shared("files-vfork", CLONE_FILES | CLONE_VFORK, fd, 5);
    shared("files-high", 0x100000000ul | CLONE_FILES, fd, 6);
    close(fd);
}

static void run_on(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* 18,000 of them, in processes that stay. One after the other: those of takers that live are seen. */
static void hide(void)
{
    int done[2];
    char byte;
    if (pipe(done))
        exit(3);
    for (int p = 0; p < 20; p++) {
        if (fork()) {
            (void)!read(done[0], &byte, 1);
            continue;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_on(0);
        static int files[900];
        DIR *programs = opendir("/usr/bin");
        struct dirent *program;
        for (int f = 0; programs && f < 900;)
            if (!(program = readdir(programs)))
                rewinddir(programs);
            else if ((files[f] = openat(dirfd(programs), program->d_name, O_RDONLY | O_NONBLOCK)) >= 0)
                f++;
        pid_t taker = fork();
        for (int f = 0; !taker && f < 900; f++)
            flock(files[f], LOCK_SH);
        if (!taker)
            _exit(0);
        waitpid(taker, NULL, 0);
        (void)!write(done[1], "x", 1);
        pause();
    }
    run_on((int)sysconf(_SC_NPROCESSORS_ONLN) - 1);
}

/* On many files: the kernel walks over the locks of a file for each new one. */
static void flood(long each)
{
    int fd = -1;
    for (long i = 0; i < each; i++) {
        struct flock one = at(i % 600);
        if (i % 600 == 0)
            fd = new_file();
        if (fcntl(fd, F_SETLK, &one))
            line("flood", strerrorname_np(errno));
    }
}

int main(int argc, char **argv)
{
    int done[2];
    char byte;
    if (argc < 5 || pipe(done))
        return 2;
    everywhere(probe);
    if (strcmp(argv[4], "hidden") == 0)
        hide();
    for (int p = atoi(argv[2]); p > 0; p--) {
        if (fork())
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        flood(atol(argv[1]));
        (void)!write(done[1], "x", 1);
        pause();
    }
    for (int p = atoi(argv[2]); p > 0; p--)
        (void)!read(done[0], &byte, 1);
    line("state", "ready");
    struct pollfd end = { .fd = 0, .events = POLLIN };
    poll(&end, 1, atoi(argv[3]) * 1000);
    return 0;
}
