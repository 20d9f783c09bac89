/* N06: raises itself by every call that changes credentials. The host reads the result in /proc/PID/status. */
#include "probe.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>

static void attempt(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct one[2] = { { 1 << CAP_CHOWN, 1 << CAP_CHOWN, 1 << CAP_CHOWN } };
    gid_t root_group[] = { 0 };
    say("setuid", syscall(SYS_setuid, 0));
    say("setgid", syscall(SYS_setgid, 0));
    say("setreuid", syscall(SYS_setreuid, 0, 0));
    say("setregid", syscall(SYS_setregid, 0, 0));
    say("setresuid", syscall(SYS_setresuid, 0, 0, 0));
    say("setresgid", syscall(SYS_setresgid, 0, 0, 0));
    say("setgroups", syscall(SYS_setgroups, 1, root_group));
    /* setfsuid reports the previous id and no error: ask twice. */
    syscall(SYS_setfsuid, 0);
    say_value("fsuid", syscall(SYS_setfsuid, -1));
    say("keepcaps", prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0));
    say("securebits", prctl(PR_SET_SECUREBITS, 0, 0, 0, 0));
    /* Last, because it gives up what the control arm needs above. */
    say("capset", syscall(SYS_capset, &header, one));
    say("ambient", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0));
    say("no-new-privs-off", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    say_value("securebits-are", prctl(PR_GET_SECUREBITS, 0, 0, 0, 0));
}

/* In a process of its own: in the control arm the calls work, and would leave the next round without capabilities. */
static void probe(void)
{
    pid_t child = fork();
    if (child == 0) {
        attempt();
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(void)
{
    everywhere(probe);
    hold();
    return 0;
}
