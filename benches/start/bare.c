/*
 * The kernel's price: what `taskman run` asks of the kernel, asked by a C program that does nothing else.
 *
 * The same namespaces, the same root of the same read-only binds, the same groups with the same
 * limits, a uid without capabilities, a filter; then the command, its end, and the groups'
 * removal. What taskman adds to that is its own to answer for: an init that reaps, covers over
 * entries of /proc, a look at everything that was set, a lease on the uid, pipes for the output,
 * the proof that nothing is left. None of it is here, so this is a yardstick and not a sandbox.
 *
 * bare NAME FILTER ASSEMBLY BIND TARGET v2=DIR [CONTROLLER=DIR]... [disk=MAJOR:MINOR] -- COMMAND [ARG]...
 *
 * NAME is that of the groups, made in DIR of each hierarchy: v2, and where the host has a
 * controller (memory, pids, cpu, blkio) in a version 1 hierarchy, in that too. Nothing is ever
 * written to cgroup.procs: the child is cloned into version 2 and joins version 1 by itself.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define UID 1899999999
#define SIZED "mode=%s,uid=1899999999,gid=1899999999,size=268435456,nr_inodes=16385"
#define CONTROLLERS 4

static const char *const controllers[CONTROLLERS] = {"memory", "pids", "cpu", "blkio"};
static char groups[CONTROLLERS + 1][4096]; /* of version 1, in the order above, empty where there is none; then version 2 */
static char *const v2 = groups[CONTROLLERS];
static const char *disk;

static void check(long result, const char *call, const char *object)
{
    if (result >= 0)
        return;
    fprintf(stderr, "bare: %s %s: %s\n", call, object, strerror(errno));
    exit(125);
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
    check(fd, "open", path);
    check(write(fd, text, strlen(text)), "write to", path);
    close(fd);
}

static void limit(int group, const char *file, const char *value)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", groups[group], file);
    put(path, value);
}

/* Each limit once, where its controller is: the columns of src/cgroup/table.rs. */
static void set_limits(void)
{
    char line[128];
    if (*groups[0]) {
        limit(0, "memory.limit_in_bytes", "536870912");
        limit(0, "memory.kmem.tcp.limit_in_bytes", "536870912");
        limit(0, "memory.memsw.limit_in_bytes", "536870912");
        limit(0, "memory.swappiness", "0");
    } else {
        limit(CONTROLLERS, "memory.max", "536870912");
        limit(CONTROLLERS, "memory.swap.max", "0");
        limit(CONTROLLERS, "memory.oom.group", "1");
    }
    limit(*groups[1] ? 1 : CONTROLLERS, "pids.max", "129");
    if (*groups[2])
        limit(2, "cpu.cfs_quota_us", "100000");
    else
        limit(CONTROLLERS, "cpu.max", "100000 100000");
    if (!disk)
        return;
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, *groups[3] ? "%s %.0s268435456" : "%s %s=268435456", disk, i ? "wbps" : "rbps");
        limit(*groups[3] ? 3 : CONTROLLERS,
              !*groups[3] ? "io.max" : i ? "blkio.throttle.write_bps_device" : "blkio.throttle.read_bps_device", line);
    }
}

static void fresh(const char *source, const char *target, const char *type, unsigned long flags, const char *options)
{
    check(mkdir(target, 0755) != 0 && errno != EEXIST ? -1 : 0, "mkdir", target);
    check(mount(source, target, type, flags, options), "mount", target);
}

static void scratch(const char *target, const char *mode)
{
    char options[160];
    snprintf(options, sizeof options, SIZED, mode);
    fresh("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, options);
}

static void seal(const char *path)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
    check(syscall(SYS_mount_setattr, AT_FDCWD, path, 0, &attributes, sizeof attributes), "mount_setattr", path);
}

/* A tree of the host without write, setuid and devices; a symlink as it is; nothing where the host has nothing. */
static void bind_tree(const char *source, const char *target)
{
    struct stat meta;
    char link[4096];
    if (lstat(source, &meta) != 0)
        return;
    if (S_ISLNK(meta.st_mode)) {
        ssize_t length = readlink(source, link, sizeof link - 1);
        check(length, "readlink", source);
        link[length] = 0;
        check(symlink(link, target), "symlink", target);
        return;
    }
    if (S_ISDIR(meta.st_mode))
        check(mkdir(target, 0755), "mkdir", target);
    else
        put(target, "");
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    check(tree, "open_tree", source);
    check(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof attributes), "mount_setattr", source);
    check(syscall(SYS_move_mount, tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH), "move_mount", target);
    close(tree);
}

static void build_etc(void)
{
    static const char *const shared[] = {"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ssl", "/etc/pki",
        "/etc/crypto-policies", "/etc/alternatives", "/etc/java-openjdk", "/etc/localtime", "/etc/os-release"};
    static const char *const own[][2] = {{"etc/passwd", "root:x:0:0:root:/:/bin/sh\ntask:x:1899999999:1899999999:task:/task:/bin/sh\n"},
        {"etc/group", "root:x:0:\ntask:x:1899999999:\n"}, {"etc/hosts", "127.0.0.1 localhost bench\n"}, {"etc/hostname", "bench\n"},
        {"etc/resolv.conf", "# no network, no name server\n"}, {"etc/nsswitch.conf", "passwd: files\n"}};
    char path[512];
    check(mkdir("etc", 0755), "mkdir", "etc");
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        bind_tree(shared[i], shared[i] + 1);
    DIR *installed = opendir("/usr/lib/jvm");
    for (struct dirent *entry; installed && (entry = readdir(installed));) {
        char *cpu = strrchr(entry->d_name, '-');
        snprintf(path, sizeof path, "/etc/%.*s", cpu ? (int)(cpu - entry->d_name) : 0, entry->d_name);
        if (strncmp(path, "/etc/java-", 10) == 0 && access(path + 1, F_OK) != 0)
            bind_tree(path, path + 1);
    }
    if (installed)
        closedir(installed);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        put(own[i][0], own[i][1]);
}

static void build_dev(void)
{
    static const struct { const char *path; unsigned major, minor; } devices[] = {{"dev/null", 1, 3}, {"dev/zero", 1, 5},
        {"dev/full", 1, 7}, {"dev/random", 1, 8}, {"dev/urandom", 1, 9}, {"dev/tty", 5, 0}};
    static const char *const links[][2] = {{"/proc/self/fd", "dev/fd"}, {"/proc/self/fd/0", "dev/stdin"},
        {"/proc/self/fd/1", "dev/stdout"}, {"/proc/self/fd/2", "dev/stderr"}, {"pts/ptmx", "dev/ptmx"}};
    fresh("tmpfs", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k,nr_inodes=32");
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        check(mknod(devices[i].path, S_IFCHR | 0666, makedev(devices[i].major, devices[i].minor)), "mknod", devices[i].path);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        check(symlink(links[i][0], links[i][1]), "symlink", links[i][1]);
    fresh("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=64");
    scratch("dev/shm", "1777");
    seal("dev");
}

static void build_root(const char *assembly, const char *source, char *target)
{
    static const char *const system[] = {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};
    check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "mount", "/ as private");
    check(mount("bare", assembly, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=4M,nr_inodes=512"), "mount", assembly);
    check(chdir(assembly), "chdir", assembly);
    for (size_t i = 0; i < sizeof system / sizeof *system; i++)
        bind_tree(system[i], system[i] + 1);
    build_etc();
    build_dev();
    scratch("task", "700");
    scratch("tmp", "1777");
    for (char *slash = target + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        check(mkdir(target + 1, 0755), "mkdir", target);
    }
    bind_tree(source, target + 1);
    put("/proc/sys/net/ipv4/tcp_rmem", "4096 16384 65536");
    put("/proc/sys/net/ipv4/tcp_wmem", "4096 16384 65536");
    fresh("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    seal("proc");
    seal(".");
}

static void enter_groups(void)
{
    for (int i = 0; i < CONTROLLERS; i++)
        if (*groups[i])
            limit(i, "tasks", "0");
    check(unshare(CLONE_NEWCGROUP), "unshare", "cgroup namespace");
}

static void drop_everything(const struct sock_fprog *filter)
{
    static const struct { int resource; rlim_t value; } rlimits[] = {{RLIMIT_FSIZE, 268435456}, {RLIMIT_RTPRIO, 0}, {RLIMIT_NICE, 0},
        {RLIMIT_SIGPENDING, 4096}, {RLIMIT_MSGQUEUE, 819200}, {RLIMIT_CORE, 0}, {RLIMIT_NOFILE, 1024}};
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {0};
    for (size_t i = 0; i < sizeof rlimits / sizeof *rlimits; i++) {
        struct rlimit both = {rlimits[i].value, rlimits[i].value};
        check(setrlimit(rlimits[i].resource, &both), "setrlimit", "of the payload");
    }
    for (int capability = 0; prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0; capability++)
        ;
    check(syscall(SYS_setgroups, 0, NULL), "setgroups", "none");
    check(syscall(SYS_setresgid, UID, UID, UID), "setresgid", "of the payload");
    check(syscall(SYS_setresuid, UID, UID, UID), "setresuid", "of the payload");
    check(syscall(SYS_capset, &header, none), "capset", "none");
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl", "PR_SET_NO_NEW_PRIVS");
    check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter), "seccomp", "filter");
}

static void bring_loopback_up(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    check(fd, "socket", "for the loopback");
    check(ioctl(fd, SIOCSIFFLAGS, &lo), "ioctl", "SIOCSIFFLAGS of lo");
    close(fd);
}

static void become_payload(char **argv, char **command, const struct sock_fprog *filter)
{
    static char *const environment[] = {"PATH=/usr/bin:/bin", NULL};
    check(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl", "PR_SET_PDEATHSIG");
    check(setsid(), "setsid", "of the payload");
    check(unshare(CLONE_NEWTIME), "unshare", "time namespace");
    umask(0);
    build_root(argv[3], argv[4], argv[5]);
    enter_groups();
    check(syscall(SYS_pivot_root, ".", "."), "pivot_root", ".");
    check(umount2(".", MNT_DETACH), "umount2", "the old root");
    check(chdir("/task"), "chdir", "/task");
    check(sethostname("bench", 5), "sethostname", "bench");
    bring_loopback_up();
    drop_everything(filter);
    execve(command[0], command, environment);
    check(-1, "execve", command[0]);
}

static struct sock_fprog read_filter(const char *path)
{
    static struct sock_filter program[BPF_MAXINSNS];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    check(fd, "open", path);
    ssize_t size = read(fd, program, sizeof program);
    check(size, "read", path);
    close(fd);
    return (struct sock_fprog){(unsigned short)((size_t)size / sizeof *program), program};
}

/* A place in the list of groups by its name, or a disk. */
static void take(const char *word, const char *name)
{
    const char *value = strchr(word, '=');
    if (value && strncmp(word, "disk=", 5) == 0) {
        disk = value + 1;
        return;
    }
    for (int i = 0; value && i <= CONTROLLERS; i++) {
        const char *known = i < CONTROLLERS ? controllers[i] : "v2";
        if (strncmp(word, known, (size_t)(value - word)) == 0 && strlen(known) == (size_t)(value - word)) {
            snprintf(groups[i], sizeof *groups, "%s/%s", value + 1, name);
            return;
        }
    }
    fprintf(stderr, "bare: what is \"%s\"?\n", word);
    exit(2);
}

int main(int argc, char **argv)
{
    char **command = argv + 6;
    int status;
    for (; command < argv + argc && strcmp(*command, "--") != 0; command++)
        take(*command, argv[1]);
    if (command + 1 >= argv + argc || !*v2) {
        fputs("usage: bare NAME FILTER ASSEMBLY BIND TARGET v2=DIR [CONTROLLER=DIR]... [disk=MAJOR:MINOR] -- COMMAND [ARG]...\n", stderr);
        return 2;
    }
    struct sock_fprog filter = read_filter(argv[2]);
    for (int i = 0; i <= CONTROLLERS; i++)
        if (*groups[i])
            check(mkdir(groups[i], 0755), "mkdir", groups[i]);
    set_limits();
    int into = open(v2, O_PATH | O_CLOEXEC);
    check(into, "open", v2);
    struct clone_args args = {.exit_signal = SIGCHLD, .cgroup = (unsigned)into,
        .flags = CLONE_INTO_CGROUP | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWCGROUP};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        become_payload(argv, command + 1, &filter);
    if (pid > 0)
        check(waitpid(pid, &status, 0), "waitpid", "the payload");
    for (int i = 0; i <= CONTROLLERS; i++)
        if (*groups[i])
            check(rmdir(groups[i]), "rmdir", groups[i]);
    check(pid, "clone3", "into the group");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
