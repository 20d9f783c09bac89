/* Kinds of r_objects.c: memory, processes, signals, timers, IPC objects and rules. */
#include "r_objects.h"
#include <linux/landlock.h>
#include <mqueue.h>
#include <poll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <time.h>

/* Neighbours differ, so that none can be merged. */
ONE(mapping)
{
    return mmap(NULL, 4096, i & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0;
}
ONE(named_mapping)
{
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char text[80];
    snprintf(text, sizeof text, "%060ld", i);
    return page == MAP_FAILED ? -1 : prctl(0x53564d41 /* PR_SET_VMA */, 0, page, 4096, text);
}
ONE(file_mapping)
{
    static int fd;
    if (!i)
        fd = open("/etc/passwd", O_RDONLY);
    return mmap(NULL, 4096, i & 1 ? PROT_READ : PROT_NONE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0;
}
ONE(shared_mapping)
{
    return mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0;
}
/* Reads one byte of each 2 MiB: a table, and no page of its own. */
ONE(page_table)
{
    static volatile char *window;
    if (!i)
        window = mmap(NULL, 1L << 36, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return window == MAP_FAILED ? -1 : window[i << 21];
}
/* A page of a shared file that each process has mapped and none holds: the chain of who maps what. */
ONE(locked_mapping)
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || mlock(page, 4096))
        return -1;
    return 0;
}

static void *stay(void *unused)
{
    unsigned long nodes = 1;
    syscall(SYS_set_mempolicy, 2 /* MPOL_BIND */, &nodes, 64);
    syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 7);
    for (;;)
        pause();
    return unused;
}
static int started(void *(*body)(void *), void *with)
{
    pthread_t id;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    return pthread_create(&id, &small, body, with) ? -1 : 0;
}
ONE(thread) { return started(stay, NULL); }
static pthread_mutex_t *inherited;
static void *wait_for(void *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}
/* A thread that waits for a lock which lends its priority. */
ONE(lender)
{
    pthread_mutexattr_t kind;
    if (!i)
        inherited = calloc(1000, sizeof *inherited);
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inherited[i], &kind);
    pthread_mutex_lock(&inherited[i]);
    return started(wait_for, &inherited[i]);
}
/* Threads inside a call: what the kernel has copied for it. */
static void *in_poll(void *unused)
{
    static struct pollfd all[1000];
    for (int f = 0; f < 1000; f++)
        all[f] = (struct pollfd){ .fd = 0, .events = POLLPRI };
    poll(all, 1000, -1);
    return unused;
}
ONE(polling) { return started(in_poll, NULL); }
static int full[2];
static void *in_send(void *unused)
{
    static char control[1 << 17];
    struct iovec one = { block, 1 };
    struct cmsghdr *head = (void *)control;
    struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control };
    /* As much as the kernel takes (net.core.optmem_max), of a level that it does not look into. */
    for (size_t size = sizeof control; size > 256; size -= 256) {
        head->cmsg_level = 0x7777;
        head->cmsg_len = message.msg_controllen = size;
        if (sendmsg(full[0], &message, 0) >= 0 || errno != ENOBUFS)
            break;
    }
    return unused;
}
/* A pair each: what a socket may have of it is counted by the socket. */
ONE(sending)
{
    int least = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, full) || setsockopt(full[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof least))
        return -1;
    while (send(full[0], block, 4096, MSG_DONTWAIT) > 0)
        ;
    if (started(in_send, NULL))
        return -1;
    usleep(5000);
    return 0;
}
static void *in_read(void *unused)
{
    static struct iovec parts[1024];
    for (int part = 0; part < 1024; part++)
        parts[part] = (struct iovec){ block, 1 };
    (void)!readv(full[0], parts, 1024);
    return unused;
}
ONE(reading) { return (i == 0 && pipe(full)) || started(in_read, NULL) ? -1 : 0; }

/* A session each: the scheduler has a group for it. */
ONE(session)
{
    pid_t child = fork();
    if (child)
        return child < 0 ? -1 : 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close_range(0, ~0u, 0);
    setsid();
    alarm(30);
    stay(NULL);
    return 0;
}
ONE(zombie)
{
    pid_t child = fork();
    if (!child)
        _exit(0);
    return child < 0 ? -1 : 0;
}
ONE(process_file) { return (int)syscall(SYS_pidfd_open, getpid(), 0); }
ONE(queued_signal)
{
    if (!i) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, SIGRTMIN + 1);
        sigprocmask(SIG_BLOCK, &one, NULL);
    }
    return sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ .sival_int = 1 });
}
ONE(timer)
{
    timer_t id;
    struct sigevent quiet = { .sigev_notify = SIGEV_NONE };
    struct itimerspec later = { .it_value.tv_sec = 1000 };
    return timer_create(CLOCK_MONOTONIC, &quiet, &id) ? -1 : timer_settime(id, 0, &later, NULL);
}

ONE(shared_segment) { return shmget(IPC_PRIVATE, 4096, 0600); }
ONE(semaphores) { return semget(IPC_PRIVATE, 250, 0600); }
ONE(semaphore_undo)
{
    struct sembuf up = { .sem_num = 0, .sem_op = 1, .sem_flg = SEM_UNDO };
    int id = semaphores(i);
    return id < 0 ? -1 : semop(id, &up, 1);
}
ONE(message_queue) { return msgget(IPC_PRIVATE, 0600); }
ONE(message)
{
    struct { long type; char text[8]; } one = { .type = 1 };
    int id = message_queue(i);
    if (id < 0)
        return -1;
    for (int many = 0; many < 2000 && msgsnd(id, &one, sizeof one.text, IPC_NOWAIT) == 0; many++)
        ;
    return 0;
}
ONE(posix_queue)
{
    char text[32];
    struct mq_attr size = { .mq_maxmsg = 10, .mq_msgsize = 8 };
    snprintf(text, sizeof text, "/q%d-%ld", getpid(), i);
    mqd_t id = mq_open(text, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &size);
    if (id < 0)
        return -1;
    while (mq_send(id, block, 8, 0) == 0)
        ;
    return mq_unlink(text);
}

static int ruleset(void)
{
    struct landlock_ruleset_attr all = { .handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE };
    return (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
}
ONE(landlock_rules)
{
    static int rules;
    struct landlock_path_beneath_attr one = { .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE };
    if (i % 1000 == 0 && (rules = ruleset()) < 0)
        return -1;
    if (mkdir(path("d", i % 1000), 0700) && errno != EEXIST)
        return -1;
    one.parent_fd = open(path("d", i % 1000), O_PATH);
    int added = (int)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &one, 0);
    close(one.parent_fd);
    return added;
}
/* Sixteen layers at most. */
ONE(landlock_domain)
{
    int rules = ruleset();
    return rules < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -1 : (int)syscall(SYS_landlock_restrict_self, rules, 0);
}
