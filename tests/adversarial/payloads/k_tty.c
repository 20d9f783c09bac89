/* K20: types into a terminal. `host PROGRAM ARGS…` is the caller's side: it runs PROGRAM on a terminal of its own, copies
 * what it prints, and says at the end how many bytes wait to be read there that nobody has typed. */
#include "probe.h"
#include <linux/tiocl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

static long sti(int fd, unsigned long request)
{
    char typed = 'x', tiocl = TIOCL_GETSHIFTSTATE;
    return syscall(SYS_ioctl, fd, request, (request & 0xffffffff) == TIOCLINUX ? &tiocl : &typed);
}

static void probe(void)
{
    int master = -1, slave = -1;
    int tty = say("open-dev-tty", open("/dev/tty", O_RDWR));
    say("sti-dev-tty", sti(tty, TIOCSTI));
    for (int fd = 0; fd < 3; fd++) {
        char name[16];
        snprintf(name, sizeof name, "sti-%d", fd);
        say(name, sti(fd, TIOCSTI));
        /* The request is an unsigned int to the kernel; the upper half is nothing. */
        snprintf(name, sizeof name, "sti-high-%d", fd);
        say(name, sti(fd, 0xdeadbeef00000000ul | TIOCSTI));
    }
    /* A terminal of its own, made inside. */
    if (say("openpty", openpty(&master, &slave, NULL, NULL, NULL)) == 0) {
        say("sti-own", sti(slave, TIOCSTI));
        say("sti-own-high", sti(slave, 0x100000000ul | TIOCSTI));
        say("tioclinux", sti(slave, TIOCLINUX));
        say("tiocsetd", ioctl(slave, TIOCSETD, &(int){ 0 }));
        struct winsize size;
        say("winsize", ioctl(slave, TIOCGWINSZ, &size)); /* what programs need still works */
        close(master);
        close(slave);
    }
    if (tty >= 0)
        close(tty);
}

static int host(char **command)
{
    int master, typed = 0;
    struct termios raw;
    pid_t child = forkpty(&master, NULL, NULL, NULL);
    if (child == 0) {
        tcgetattr(0, &raw);
        cfmakeraw(&raw);
        raw.c_oflag |= OPOST;
        tcsetattr(0, TCSANOW, &raw);
        /* Nobody reads the terminal: what is typed into it stays there to be counted. */
        dup2(open("/dev/null", O_RDONLY), 0);
        execv(command[0], command);
        _exit(127);
    }
    /* Kept open so that what was typed is still there when the child has gone. */
    char name[64], bytes[4096];
    ptsname_r(master, name, sizeof name);
    int slave = open(name, O_RDWR | O_NOCTTY | O_NONBLOCK), ended = 0;
    for (;;) {
        /* The kernel hands over what was written in the background: a second of silence after the end is the end. */
        struct pollfd fds = { master, POLLIN, 0 };
        int status, ready = poll(&fds, 1, ended ? 1000 : 50);
        long n = ready > 0 ? read(master, bytes, sizeof bytes) : 0;
        if (n > 0)
            (void)!write(1, bytes, n);
        else if (ended)
            break;
        else
            ended = waitpid(child, &status, WNOHANG) == child;
    }
    ioctl(slave, FIONREAD, &typed);
    say_value("typed", typed);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "host"))
        return host(argv + 2);
    everywhere(probe);
    return 0;
}
