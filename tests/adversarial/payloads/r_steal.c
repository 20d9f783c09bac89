/* Reads from the pipe of its own standard output, which it owns: a launcher that was told of a byte may find none when it
 * reads. argv: attack|control. Each byte that was stolen is a byte on stderr. */
#include "r_pump.h"
#include <sys/stat.h>

int main(int argc, char **argv) {
    if (argc < 3) return 90;
    alarm(30);
    int said = strcmp(argv[1], "control") ? -1 : believe_poll();
    if (fchmod(1, 0600)) return 91;
    int thief = open("/proc/self/fd/1", O_RDONLY | O_NONBLOCK);
    if (thief < 0) return 92;
    for (;;) {
        if (write(1, "x", 1) != 1) return 94;
        spin();
        if (read(thief, block, sizeof block) > 0 && is_stuck(2)) break;
    }
    /* In the attack nothing is said: it would set the launcher free. */
    dprintf(said, "stuck\n");
    for (;;) pause();
}
