/*
 * How many starts to exits there are in a second, with several launchers at once.
 *
 * A launcher is a process that starts the command, waits for it, and starts it again. Each number
 * of launchers is a short burst of each contestant in turn, so that neighbours in the table were
 * taken in the same seconds.
 *
 * together MILLISECONDS LAUNCHERS,... STDERR_FILE CONTESTANTS (launch.h says how they are written)
 *
 * One line per burst on stdout: name, launchers, starts per second. One in which a launch failed has the word
 * failed.
 */
#include "launch.h"

#define MOST_LAUNCHERS 64

/* The number of a launch must be new in all launchers and bursts: containers are named by it. */
static long first_launch(int burst, int launcher)
{
    return ((long)burst * MOST_LAUNCHERS + launcher) * 1000000;
}

/* One launcher until the deadline; how often it came round is told through the pipe. */
static void repeat(struct contestant *c, long launch, uint64_t deadline, int tell)
{
    struct rusage usage;
    long done = 0;

    for (; now() < deadline; done++)
        if (!measure(c, launch + done, (struct timespec){0}, &usage)) {
            fprintf(stderr, "bench: error: %s among others: %s\n", c->name, failure);
            _exit(1);
        }
    _exit(write(tell, &done, sizeof done) == sizeof done ? 0 : 1);
}

static double burst(struct contestant *c, int launchers, uint64_t length)
{
    static int bursts;
    pid_t pids[MOST_LAUNCHERS];
    int tell[2], status, failed = 0;
    long sum = 0, done;
    uint64_t begin = now();

    if (pipe2(tell, O_CLOEXEC) != 0)
        die("pipe2 for", c->name);
    for (int i = 0; i < launchers; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            die("fork for", c->name);
        if (pids[i] == 0)
            repeat(c, first_launch(bursts, i), begin + length, tell[1]);
    }
    bursts++;
    close(tell[1]);
    for (int i = 0; i < launchers; i++) {
        while (waitpid(pids[i], &status, 0) < 0) {
            if (errno != EINTR)
                die("waitpid for", c->name);
            for (int other = i; other < launchers; other++)
                kill(pids[other], SIGTERM); /* each ends when its launch has */
        }
        failed |= status != 0;
    }
    double seconds = (double)(now() - begin) / 1e9;
    if (stopped_by)
        exit(128 + stopped_by);
    while (read(tell[0], &done, sizeof done) == sizeof done)
        sum += done;
    close(tell[0]);
    return failed ? 0 : (double)sum / seconds;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fputs("usage: together MILLISECONDS LAUNCHERS,... STDERR_FILE NAME COMMAND [ARG]... [--- NAME COMMAND [ARG]...]...\n", stderr);
        return 2;
    }
    uint64_t length = (uint64_t)number(argv[1], "MILLISECONDS", 1) * 1000000;
    parse(argc, argv, 4, argv[3]);
    for (char *word = strtok(argv[2], ","); word; word = strtok(NULL, ",")) {
        long launchers = number(word, "LAUNCHERS", 1);
        if (launchers > MOST_LAUNCHERS) {
            fprintf(stderr, "bench: error: at most %d launchers\n", MOST_LAUNCHERS);
            return 2;
        }
        for (int i = 0; i < count; i++) {
            double rate = burst(&contestants[i], (int)launchers, length);
            if (rate > 0)
                printf("%s\t%ld\t%.1f\n", contestants[i].name, launchers, rate);
            else
                printf("%s\t%ld\tfailed\n", contestants[i].name, launchers);
            if (fflush(stdout) != 0)
                die("write to", "stdout");
        }
    }
    return 0;
}
