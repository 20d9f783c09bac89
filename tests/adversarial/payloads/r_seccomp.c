/* Puts seccomp filters on itself, which are compiled into memory of which the whole host has one budget, and one of which asks for
 * lines in the host's log. argv[1]: how many processes put on as many of the largest as the kernel takes. */
#include "probe.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

static struct sock_filter large[4096];
static const struct sock_fprog program = { 4096, large };
static const struct sock_filter logs[] = {
    { BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr) },
    { BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_getppid },
    { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_LOG },
    { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW },
};
static const struct sock_fprog logging = { 4, (void *)logs };

static long install(const struct sock_fprog *which)
{
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, which);
}

/* In a child of its own: what is installed stays. */
static void attempt(const char *name, int how)
{
    pid_t child = fork();
    if (child == 0) {
        long done = how == 0   ? install(&program)
                    : how == 1 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
                    : how == 2 ? install(&logging)
                               : syscall(SYS_seccomp, 0x100000000ul | SECCOMP_SET_MODE_FILTER, 0, &program);
        say(name, done);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void probe(void)
{
    attempt("seccomp", 0);
    attempt("prctl", 1);
    attempt("log", 2);
    attempt("seccomp-high", 3);
}

int main(int argc, char **argv)
{
    int gone[2];
    char byte;
    if (argc < 3 || pipe(gone))
        return 2;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    for (int i = 0; i < 4094; i++)
        large[i] = (struct sock_filter){ BPF_ALU | BPF_DIV | BPF_K, 0, 0, 7 };
    large[4094] = (struct sock_filter){ BPF_LD | BPF_IMM, 0, 0, 0 };
    large[4095] = (struct sock_filter){ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW };
    everywhere(probe);
    for (int many = atoi(argv[1]); many > 0; many--) {
        int done[2];
        if (pipe(done))
            return 91;
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0) {
            close(gone[1]);
            while (install(&program) == 0)
                ;
            close(done[1]);
            (void)!read(gone[0], &byte, 1);
            _exit(0);
        }
        close(done[1]);
        (void)!read(done[0], &byte, 1);
        close(done[0]);
    }
    hold();
    close(gone[1]);
    return 0;
}
