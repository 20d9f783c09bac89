/* Resizes the pipe of its standard input between one slot, which is full, and two: a launcher that was told of the room may
 * find none when it writes. argv: attack|control. Each try that comes to its end writes one byte to stdout. */
#include "r_pump.h"

int main(int argc, char **argv) {
    if (argc < 3) return 90;
    alarm(30);
    int said = strcmp(argv[1], "control") ? -1 : believe_poll();
    for (;;) {
        while (fcntl(0, F_SETPIPE_SZ, 4096) < 0)
            if (read(0, block, sizeof block) <= 0) return 92;
        while (waiting(0) < 4096) usleep(20);
        /* The launcher falls asleep in poll. */
        usleep(100);
        fcntl(0, F_SETPIPE_SZ, 8192);
        spin();
        if (fcntl(0, F_SETPIPE_SZ, 4096) > 0 && is_stuck(1)) break;
    }
    /* In the attack nothing is said: it would set the launcher free. */
    dprintf(said, "stuck\n");
    for (;;) pause();
}
