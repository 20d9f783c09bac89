/*
 * Writes a seccomp program to stdout, for the peers that take one ready-made.
 *
 * taskman always installs a filter, and installing one is a visible part of a start. A peer
 * without a filter would be timed for less work, and one that compiles its filter at every
 * start (crun through libseccomp) for work that its user can avoid. So both get the same
 * precompiled program. It is a search tree over system call numbers, the cheapest shape to
 * install, with about as many distinctions as taskman's own table; it is a load for the
 * benchmark, not a policy to copy.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "filter.c: add the audit architecture"
#endif

#define ALLOW SECCOMP_RET_ALLOW
#define REFUSE (SECCOMP_RET_ERRNO | EPERM)
#define UNKNOWN (SECCOMP_RET_ERRNO | ENOSYS)
#define FIRST_UNKNOWN 463 /* above the numbers that the table knows, x32 included */

static const int refused[] = {
    SYS_ptrace, SYS_syslog, SYS_personality, SYS_pivot_root, SYS_chroot, SYS_acct, SYS_settimeofday,
    SYS_mount, SYS_umount2, SYS_swapon, SYS_swapoff, SYS_reboot, SYS_sethostname, SYS_setdomainname,
    SYS_init_module, SYS_delete_module, SYS_quotactl, SYS_nfsservctl, SYS_lookup_dcookie,
    SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy,
    SYS_kexec_load, SYS_add_key, SYS_request_key, SYS_keyctl, SYS_migrate_pages, SYS_unshare,
    SYS_move_pages, SYS_vhangup, SYS_perf_event_open, SYS_fanotify_init, SYS_fanotify_mark,
    SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_setns, SYS_process_vm_readv,
    SYS_process_vm_writev, SYS_kcmp, SYS_finit_module, SYS_seccomp, SYS_bpf, SYS_userfaultfd,
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_open_tree, SYS_move_mount,
    SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_pidfd_getfd, SYS_mount_setattr,
    SYS_clone3,
#if defined(__x86_64__)
    SYS_modify_ldt, SYS_iopl, SYS_ioperm, SYS_uselib, SYS_ustat, SYS_sysfs, SYS__sysctl,
    SYS_create_module, SYS_get_kernel_syms, SYS_query_module,
#endif
};

struct segment {
    unsigned first;
    unsigned action;
};

static struct sock_filter program[BPF_MAXINSNS];
static unsigned length;

static unsigned emit(unsigned short code, unsigned char yes, unsigned char no, unsigned value)
{
    program[length] = (struct sock_filter){code, yes, no, value};
    return length++;
}

/* A binary search: each test sends the higher half past the code of the lower half. */
static void emit_tree(const struct segment *segments, unsigned count)
{
    if (count == 1) {
        emit(BPF_RET | BPF_K, 0, 0, segments[0].action);
        return;
    }
    unsigned half = count / 2;
    unsigned test = emit(BPF_JMP | BPF_JGE | BPF_K, 0, 0, segments[half].first);
    emit_tree(segments, half);
    unsigned distance = length - test - 1;
    if (distance > 255) {
        fputs("filter: the tree is too large for 8-bit jumps\n", stderr);
        exit(1);
    }
    program[test].jt = (unsigned char)distance;
    emit_tree(segments + half, count - half);
}

int main(void)
{
    static unsigned action[FIRST_UNKNOWN];
    static struct segment segments[FIRST_UNKNOWN + 1];
    unsigned count = 0;

    for (unsigned nr = 0; nr < FIRST_UNKNOWN; nr++)
        action[nr] = ALLOW;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        action[refused[i]] = refused[i] == SYS_clone3 ? UNKNOWN : REFUSE;
    for (unsigned nr = 0; nr < FIRST_UNKNOWN; nr++)
        if (count == 0 || segments[count - 1].action != action[nr])
            segments[count++] = (struct segment){nr, action[nr]};
    segments[count++] = (struct segment){FIRST_UNKNOWN, UNKNOWN};

    emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, arch));
    emit(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
    emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
    emit_tree(segments, count);

    if (fwrite(program, sizeof *program, length, stdout) != length || fflush(stdout) != 0) {
        perror("filter: write");
        return 1;
    }
    fprintf(stderr, "%u\n", length);
    return 0;
}
