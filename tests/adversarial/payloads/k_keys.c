/* K03: reads the session keyring it was started with, and makes keys. `host NAME PROGRAM ARGS…` is the caller's side:
 * it puts the key NAME into a session keyring of its own and executes PROGRAM with it. */
#include "probe.h"
#include <linux/keyctl.h>

static const char *name;

static void probe(void)
{
    char text[64] = { 0 };
    long key = say("request_key", syscall(SYS_request_key, "user", name, NULL, 0));
    say("keyctl-read", syscall(SYS_keyctl, KEYCTL_READ, key, text, sizeof text - 1));
    say("keyctl-session", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0));
    say("add_key", syscall(SYS_add_key, "user", "probe", "x", 1, KEY_SPEC_PROCESS_KEYRING));
    pid_t child = fork();
    if (child == 0) {
        say("keyctl-join", syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL));
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc > 3 && !strcmp(argv[1], "host")) {
        if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0
            || syscall(SYS_add_key, "user", argv[2], argv[2], strlen(argv[2]), KEY_SPEC_SESSION_KEYRING) < 0)
            return 2;
        execv(argv[3], argv + 3);
        return 2;
    }
    name = argc > 1 ? argv[1] : "none";
    everywhere(probe);
    hold();
    return 0;
}
