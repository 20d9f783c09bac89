/* K01, K02: system calls that no task needs. Each is made so that it would do something harmless if it were let through.
 * Descriptors that were obtained stay open, so that the observer finds them in /proc/PID/fd. */
#include "probe.h"
#include <linux/bpf.h>
#include <linux/fanotify.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>

static void uring(void)
{
    struct io_uring_params params = { 0 };
    say("io_uring_setup", syscall(SYS_io_uring_setup, 4, &params));
    say("io_uring_enter", syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0));
    say("io_uring_register", syscall(SYS_io_uring_register, -1, 0, NULL, 0));
}

static void privileged(void)
{
    union bpf_attr map = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1 };
    struct perf_event_attr perf = { .type = PERF_TYPE_SOFTWARE, .size = sizeof perf, .config = PERF_COUNT_SW_TASK_CLOCK,
                                    .exclude_kernel = 1, .exclude_hv = 1 };
    say("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map));
    say("perf_event_open", syscall(SYS_perf_event_open, &perf, 0, -1, -1, 0));
    say("userfaultfd", syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY | O_CLOEXEC));
    say("fanotify_init", syscall(SYS_fanotify_init, FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY));
    say("kexec_load", syscall(SYS_kexec_load, 0, 0, NULL, 0xfff8ul)); /* no such flags: with none it would unload */
    say("kexec_file_load", syscall(SYS_kexec_file_load, -1, -1, 0, NULL, 0xfff8ul));
    say("init_module", syscall(SYS_init_module, NULL, 0, ""));
    say("finit_module", syscall(SYS_finit_module, -1, "", 0));
    say("delete_module", syscall(SYS_delete_module, "no such module", O_NONBLOCK));
    say("swapon", syscall(SYS_swapon, "/nonexistent", 0));
    say("swapoff", syscall(SYS_swapoff, "/nonexistent"));
    say("reboot", syscall(SYS_reboot, 0, 0, 0, NULL)); /* wrong magic: never reboots */
    say("acct", syscall(SYS_acct, "/nonexistent"));
    say("quotactl", syscall(SYS_quotactl, 0x80000100 /* Q_SYNC */, NULL, 0, NULL));
    say("syslog", syscall(SYS_syslog, 10 /* size of the log */, NULL, 0));
    say("iopl", syscall(SYS_iopl, 3));
    say("ioperm", syscall(SYS_ioperm, 0x80, 1, 1));
    say("settimeofday", syscall(SYS_settimeofday, NULL, NULL));
    say("clock_settime", syscall(SYS_clock_settime, CLOCK_REALTIME, NULL));
    say("sethostname", syscall(SYS_sethostname, "x", -1));
    say("setdomainname", syscall(SYS_setdomainname, "x", -1));
    say("lookup_dcookie", syscall(212, 0, NULL, 0));
    say("open_by_handle_at", syscall(SYS_open_by_handle_at, -1, NULL, 0));
    say("unknown-number", syscall(1000));
}

int main(int argc, char **argv)
{
    everywhere(argc > 1 && !strcmp(argv[1], "uring") ? uring : privileged);
    hold();
    return 0;
}
