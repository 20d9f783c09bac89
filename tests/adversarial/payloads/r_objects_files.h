/* Kinds of r_objects.c: descriptors, files and what hangs on them. */
#include "r_objects.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <termios.h>

ONE(pipe_empty)
{
    int ends[2];
    return pipe(ends);
}
ONE(pipe_full)
{
    int ends[2];
    if (pipe2(ends, O_NONBLOCK))
        return -1;
    while (write(ends[1], block, sizeof block) > 0)
        ;
    return 0;
}
/* A page for each byte. */
ONE(pipe_packets)
{
    int ends[2];
    if (pipe2(ends, O_NONBLOCK | O_DIRECT))
        return -1;
    while (write(ends[1], block, 1) > 0)
        ;
    return 0;
}
ONE(pipe_resized)
{
    int ends[2];
    return pipe(ends) ? -1 : fcntl(ends[0], F_SETPIPE_SZ, 1 << 20);
}
/* Pages that are unmapped, and nowhere but in a pipe. */
ONE(pipe_gifts)
{
    int ends[2];
    char *pages = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    struct iovec all = { pages, 65536 };
    if (pages == MAP_FAILED || pipe(ends))
        return -1;
    int given = vmsplice(ends[1], &all, 1, SPLICE_F_GIFT | SPLICE_F_NONBLOCK) > 0 ? 0 : -1;
    munmap(pages, 65536);
    return given;
}
ONE(event) { return eventfd(0, 0); }
ONE(timer_file)
{
    struct itimerspec later = { .it_value.tv_sec = 1000 };
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    return fd < 0 ? -1 : timerfd_settime(fd, 0, &later, NULL);
}
ONE(signal_file)
{
    sigset_t set;
    sigfillset(&set);
    return signalfd(-1, &set, 0);
}
ONE(epoll_instance) { return epoll_create1(0); }
/* Instance 0 to 9 watch each of 900 files. */
ONE(epoll_watch)
{
    static int files[900], instance;
    struct epoll_event all = { .events = EPOLLIN | EPOLLET };
    if (!i)
        for (int f = 0; f < 900; f++)
            files[f] = eventfd(0, 0);
    if (i % 900 == 0)
        instance = epoll_create1(0);
    return epoll_ctl(instance, EPOLL_CTL_ADD, files[i % 900], &all);
}
/* Each watches the one before, five deep, which is as deep as it may be. */
ONE(epoll_nested)
{
    static int last = -1;
    struct epoll_event all = { .events = EPOLLIN };
    int inner = i % 4 ? last : eventfd(0, 0);
    last = epoll_create1(0);
    return last < 0 ? -1 : epoll_ctl(last, EPOLL_CTL_ADD, inner, &all);
}
ONE(inotify_instance) { return inotify_init1(0); }
ONE(inotify_watch)
{
    static int instance;
    int fd = new_file(i % 1000);
    if (!(i % 1000))
        instance = inotify_init1(0);
    if (fd < 0)
        return -1;
    close(fd);
    return inotify_add_watch(instance, path("f", i % 1000), IN_MODIFY);
}
/* Unread events with names of 200 bytes. */
ONE(inotify_event)
{
    static int instance = -1;
    static char longname[200];
    if (instance < 0) {
        instance = inotify_init1(0);
        memset(longname, 'n', sizeof longname - 1);
        if (inotify_add_watch(instance, here, IN_CREATE | IN_DELETE) < 0)
            return -1;
    }
    return i & 1 ? unlink(path(longname, 0)) : close(open(path(longname, 0), O_CREAT | O_WRONLY, 0600));
}
ONE(memfd_empty) { return memfd_create("m", 0); }
ONE(memfd_page)
{
    int fd = memfd_create("m", MFD_ALLOW_SEALING);
    return fd < 0 || write(fd, block, 1) != 1 ? -1 : fd;
}
ONE(open_host_file) { return open("/etc/passwd", O_RDONLY); }
/* Read to the first names: a file system may keep the rest of what it looked at. */
ONE(open_directory)
{
    char entries[512];
    int fd = open("/usr/bin", O_RDONLY | O_DIRECTORY);
    return fd < 0 ? -1 : (int)syscall(SYS_getdents64, fd, entries, sizeof entries);
}
/* Read to the first byte: the kernel keeps the rest in a buffer. */
ONE(open_proc)
{
    static const char *files[] = { "maps", "smaps", "mountinfo", "status", "environ", "limits", "io", "stat" };
    char text[64];
    snprintf(text, sizeof text, "/proc/self/%s", files[i % 8]);
    int fd = open(text, O_RDONLY);
    return fd < 0 ? -1 : (int)read(fd, text, 1);
}
ONE(file) { int fd = new_file(i); return fd < 0 ? -1 : close(fd); }
ONE(directory) { return mkdir(path("d", i), 0700); }
ONE(symbolic_link)
{
    static char target[3000];
    memset(target, 't', sizeof target - 1);
    return symlink(target, path("l", i));
}
ONE(hard_link)
{
    if (!i && file(0))
        return -1;
    char first[100];
    snprintf(first, sizeof first, "%s", path("f", 0));
    return link(first, path("a-name-that-is-longer-than-what-fits-into-a-directory-entry", i));
}
ONE(unlinked_file)
{
    int fd = new_file(0);
    return fd < 0 ? -1 : unlink(path("f", 0));
}
ONE(attribute)
{
    if (i % 8 == 0 && file(i / 8))
        return -1;
    char text[32];
    snprintf(text, sizeof text, "user.a%ld", i % 8);
    return setxattr(path("f", i / 8), text, block, 4096, 0) && setxattr(path("f", i / 8), text, block, 127, 0);
}
/* Two access control lists on a directory: of 8,000 entries, or of as many as may be. */
ONE(access_list)
{
    static struct { unsigned version; struct { unsigned short tag, perm; unsigned id; } entry[8000]; } list = { .version = 2 };
    static unsigned many = 8000;
    if (mkdir(path("d", i), 0700))
        return -1;
    for (;;) {
        for (unsigned e = 0; e < many; e++) {
            unsigned left = many - e;
            list.entry[e].tag = e == 0 ? 1 : left > 3 ? 2 : left == 3 ? 4 : left == 2 ? 16 : 32;
            list.entry[e].perm = 7;
            list.entry[e].id = list.entry[e].tag == 2 ? e : -1u;
        }
        if (setxattr(path("d", i), "system.posix_acl_access", &list, 4 + 8 * many, 0) == 0)
            return setxattr(path("d", i), "system.posix_acl_default", &list, 4 + 8 * many, 0);
        if (many == 15)
            return -1;
        many = 15;
    }
}
/* Names that do not exist, in the host's file system and in /proc. */
ONE(missing_name)
{
    char text[300];
    snprintf(text, sizeof text, "%s/%0200d-%ld", i & 1 ? "/usr" : "/proc/self", getpid(), i);
    return access(text, F_OK) && errno == ENOENT ? 0 : -1;
}

static int lock(int command, int fd, long at)
{
    struct flock one = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at * 2, .l_len = 1 };
    return fcntl(fd, command, &one);
}
/* Few on each file: the kernel walks over those of a file for each new one. */
ONE(posix_lock)
{
    static int fd = -1;
    if (i % 500 == 0)
        fd = new_file(i / 500);
    return fd < 0 ? -1 : lock(F_SETLK, fd, i % 500);
}
ONE(open_file_lock)
{
    static int fd = -1;
    if (i % 500 == 0)
        fd = new_file(i / 500);
    return fd < 0 ? -1 : lock(F_OFD_SETLK, fd, i % 500);
}
ONE(whole_lock)
{
    int fd = new_file(0);
    return fd < 0 ? -1 : flock(fd, LOCK_SH);
}
ONE(lease)
{
    int fd = new_file(i);
    return fd < 0 ? -1 : fcntl(fd, F_SETLEASE, F_WRLCK);
}
/* Each has an owner and a queue entry of its own. */
ONE(asynchronous)
{
    int ends[2];
    return pipe(ends) || fcntl(ends[0], F_SETOWN, getpid()) ? -1 : fcntl(ends[0], F_SETFL, O_ASYNC);
}
ONE(terminal)
{
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK), open_it = 0;
    if (master < 0 || ioctl(master, TIOCSPTLCK, &open_it))
        return -1;
    int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_NONBLOCK), ends[] = { slave, master };
    struct termios raw;
    if (slave < 0 || tcgetattr(slave, &raw))
        return -1;
    cfmakeraw(&raw);
    tcsetattr(slave, TCSANOW, &raw);
    /* The kernel moves what was written on, and then there is room again. */
    for (int end = 0; end < 2; end++)
        for (int many = 0, refused = 0; many < 4000 && refused < 4; many++)
            if (write(ends[end], block, 256) <= 0) {
                refused++;
                usleep(100);
            }
    return 0;
}
