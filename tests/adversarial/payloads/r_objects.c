/* Makes objects of one kind of the kernel's, as many as the table says or the limits allow, and holds them.
 * argv[1] is the kind, or `kinds`, which names them all. Says `state ready`, makes them when a byte comes on standard input, says how many
 * (`made`) and `state made`, and stays until standard input ends.
 *
 * The kinds are those of docs/seccomp.md's allowed calls, group by group:
 *
 *   files and directories   open, mkdir, symlink, link, setxattr, inotify_*, fcntl, flock     r_objects_files.h
 *   descriptors             pipe, epoll, eventfd, signalfd, timerfd, splice, vmsplice, ptmx   r_objects_files.h
 *   memory                  mmap, prctl(PR_SET_VMA), mlock, memfd_create, set_mempolicy       r_objects_memory.h
 *   processes and threads   fork, clone, setsid, pidfd_open, futex, landlock_*                r_objects_memory.h
 *   signals, time           rt_sigqueueinfo, timer_create                                     r_objects_memory.h
 *   limits                  ioprio_set (with threads)                                         r_objects_memory.h
 *   sockets                 socket, socketpair, bind, listen, connect, send*, setsockopt      r_objects_sockets.h
 *   IPC objects             shmget, semget, semop, msgget, msgsnd, mq_open                    r_objects_memory.h
 *
 * No object of the kernel's comes of the other allowed calls: they read, copy, wait, or change one that is there (mseal, pkey_*,
 * mprotect, rseq, robust lists, itimers, membarrier: a field of a process or a mapping).
 * Refused by the filter, and so not here: netlink, packet and raw sockets, socket options that are not listed (packet options are here
 * for the mutation arm), UDP_CORK, flow labels, groups, socket and seccomp filters, BPF, perf, fanotify, F_NOTIFY, userfaultfd,
 * memfd_secret, huge pages, mbind, keys, io_uring, AIO, modify_ldt, namespaces, mounts, handles, KSM.
 * Refused by the kernel: ICMP echo sockets (net.ipv4.ping_group_range is empty), mq_notify by netlink. */
#include "r_objects_files.h"
#include "r_objects_memory.h"
#include "r_objects_sockets.h"

static const struct kind {
    const char *name;
    int processes;
    long each;
    int (*one)(long);
} kinds[] = {
    { "process", 100, 0, NULL },
    { "unix-socket", 8, 990, unix_stream },
    { "unix-bound-path", 8, 990, unix_path },
    { "unix-bound-abstract", 8, 990, unix_abstract },
    { "unix-waiting", 1, 50, unix_waiting },
    { "unix-stream-full", 2, 50, unix_stream_full },
    { "unix-dgram-full", 2, 40, unix_dgram_full },
    { "unix-dgram-small", 2, 50, unix_dgram_small },
    { "unix-seqpacket-full", 2, 50, unix_seqpacket_full },
    { "unix-rights", 5, 100, rights },
    { "udp-socket", 8, 990, udp },
    { "udp-reuse-port", 8, 990, reuse_port },
    { "udp-unread", 2, 80, udp_full },
    { "udp-unread-small", 2, 80, udp_small },
    { "udp-unread-pieces", 2, 80, udp_pieces },
    { "udp-unfinished", 2, 500, udp_more },
    { "udp-unfinished-message", 2, 500, udp_more_message },
    { "udp-unfinished-pipe", 2, 490, udp_more_pipe },
    { "tcp-socket", 8, 990, tcp },
    { "tcp-full", 2, 200, tcp_full },
    { "tcp-small", 2, 200, tcp_small },
    { "tcp-orphan", 2, 300, tcp_orphan },
    { "tcp-fin-wait", 8, 990, tcp_fin_wait },
    { "tcp-deferred", 4, 100, tcp_deferred },
    { "tcp-waiting", 2, 100, tcp_waiting },
    { "packet-options", 1, 900, packet_options },
    { "pipe", 8, 490, pipe_empty },
    { "pipe-full", 2, 200, pipe_full },
    { "pipe-packets", 2, 200, pipe_packets },
    { "pipe-resized", 4, 100, pipe_resized },
    { "pipe-gifts", 2, 200, pipe_gifts },
    { "eventfd", 60, 990, event },
    { "timerfd", 60, 990, timer_file },
    { "signalfd", 60, 990, signal_file },
    { "epoll", 60, 990, epoll_instance },
    { "epoll-watch", 4, 20000, epoll_watch },
    { "epoll-nested", 20, 790, epoll_nested },
    { "inotify", 1, 500, inotify_instance },
    { "inotify-watch", 2, 20000, inotify_watch },
    { "inotify-event", 4, 16000, inotify_event },
    { "memfd", 8, 990, memfd_empty },
    { "memfd-page", 4, 990, memfd_page },
    { "host-file", 60, 990, open_host_file },
    { "host-directory", 20, 990, open_directory },
    { "proc-file", 4, 990, open_proc },
    { "file", 1, 16000, file },
    { "directory", 1, 16000, directory },
    { "symbolic-link", 1, 6000, symbolic_link },
    { "hard-link", 1, 16000, hard_link },
    { "unlinked-file", 8, 990, unlinked_file },
    { "attribute", 1, 6000, attribute },
    { "access-list", 1, 600, access_list },
    { "missing-name", 2, 30000, missing_name },
    { "posix-lock", 2, 100000, posix_lock },
    { "open-file-lock", 2, 100000, open_file_lock },
    { "flock", 60, 990, whole_lock },
    { "lease", 8, 990, lease },
    { "asynchronous", 8, 490, asynchronous },
    { "terminal", 1, 64, terminal },
    { "mapping", 2, 60000, mapping },
    { "named-mapping", 2, 40000, named_mapping },
    { "file-mapping", 2, 60000, file_mapping },
    { "shared-mapping", 2, 20000, shared_mapping },
    { "page-table", 1, 8000, page_table },
    { "locked-mapping", 1, 1000, locked_mapping },
    { "thread", 1, 100, thread },
    { "lending-lock", 1, 100, lender },
    { "polling-thread", 1, 120, polling },
    { "sending-thread", 1, 100, sending },
    { "reading-thread", 1, 120, reading },
    { "session", 1, 100, session },
    { "zombie", 1, 100, zombie },
    { "pidfd", 60, 990, process_file },
    { "queued-signal", 2, 50000, queued_signal },
    { "timer", 2, 40000, timer },
    { "shared-segment", 1, 4000, shared_segment },
    { "semaphores", 1, 2000, semaphores },
    { "semaphore-undo", 4, 400, semaphore_undo },
    { "message-queue", 1, 30000, message_queue },
    { "message", 1, 150, message },
    { "posix-queue", 1, 250, posix_queue },
    { "landlock-rules", 2, 10000, landlock_rules },
    { "landlock-domain", 60, 16, landlock_domain },
    /* Last: they stay for a minute. */
    { "tcp-time-wait", 3, 14000, tcp_time_wait },
};
#define KINDS (sizeof kinds / sizeof *kinds)

/* In a process of its own: makes its part, says so by closing `done`, and stays until nothing can come from `end`. */
static void part(const struct kind *kind, long *made, int done, int end)
{
    char nothing;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(30);
    snprintf(here, sizeof here, "/tmp/objects-%d", getpid());
    if (mkdir(here, 0700))
        _exit(1);
    __sync_fetch_and_add(made, kind->one ? repeat(kind->each, kind->one) : 1);
    close(done);
    (void)!read(end, &nothing, 1);
    rmdir(here);
    _exit(0);
}

int main(int argc, char **argv)
{
    const struct kind *kind = NULL;
    int done[2], end[2], list = argc > 1 && strcmp(argv[1], "kinds") == 0;
    char byte;
    for (unsigned k = 0; argc > 1 && k < sizeof kinds / sizeof *kinds; k++) {
        if (list)
            puts(kinds[k].name);
        else if (strcmp(argv[1], kinds[k].name) == 0)
            kind = &kinds[k];
    }
    if (!kind)
        return list ? 0 : 2;
    long *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (made == MAP_FAILED || pipe(done) || pipe(end))
        return 91;
    line("state", "ready");
    if (read(0, &byte, 1) != 1)
        return 0;
    for (int p = 0; p < kind->processes; p++) {
        pid_t child = fork();
        if (child == 0) {
            close(done[0]);
            close(end[1]);
            part(kind, made, done[1], end[0]);
        }
        if (child < 0)
            line("fork", "failed");
    }
    close(done[1]);
    (void)!read(done[0], &byte, 1);
    say_value("made", *made);
    line("state", "made");
    while (read(0, &byte, 1) > 0)
        ;
    close(end[1]);
    while (wait(NULL) > 0)
        ;
    return 0;
}
