/*
 * Times the start to exit of several commands, interleaved, in one process.
 *
 * Interleaved, because the machine's mood changes within a run: a ratio is only fair when
 * both numbers were taken in the same seconds. In a new random order each round, because
 * the kernel tears namespaces and cgroups down after the exit that the caller sees, and
 * that bill must not always land on the same neighbour.
 *
 * timer ROUNDS WARMUP PAUSE_MS STDERR_FILE CONTESTANTS (launch.h says how they are written)
 * timer probe STDERR_FILE CONTESTANT: one launch, which has to exit with the 42 of a no-op with an argument
 *
 * One line per contestant on stdout: name, p50, p95, p99, minimum, mean (ns), peak memory (KiB). One
 * that fails is out for the rest of the run, and its line has its name and the failure alone.
 */
#include "launch.h"

static uint64_t *samples[MAX_CONTESTANTS];
static long peak_kib[MAX_CONTESTANTS];
static char *failed[MAX_CONTESTANTS];

static void shuffle(int *order)
{
    static uint64_t state = 0x9e3779b97f4a7c15u; /* a fixed seed: the same orders in each run */
    for (int i = count - 1; i > 0; i--) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        int other = (int)(state % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

static void show_progress(long round, long warmup, long rounds)
{
    static uint64_t shown;
    int terminal = isatty(2), last = round + 1 == warmup + rounds;
    uint64_t time = now();
    if (!last && time - shown < (terminal ? 200000000u : 5000000000u))
        return;
    shown = time;
    fprintf(stderr, "%s%s round %ld of %ld%s", terminal ? "\r" : "", round < warmup ? "warm-up," : "measuring,",
            round < warmup ? round + 1 : round + 1 - warmup, round < warmup ? warmup : rounds,
            terminal && !last ? "\033[K" : "\n");
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Nearest rank: a value that was really measured. */
static unsigned long long percentile(const uint64_t *sorted, long n, long percent)
{
    long rank = (n * percent + 99) / 100;
    return sorted[rank > 0 ? rank - 1 : 0];
}

int main(int argc, char **argv)
{
    if (argc > 4 && strcmp(argv[1], "probe") == 0) {
        struct rusage usage;
        expected = 42;
        parse(argc, argv, 3, argv[2]);
        if (measure(&contestants[0], 0, (struct timespec){0}, &usage))
            return 0;
        fprintf(stderr, "%s\n", failure);
        return 1;
    }
    if (argc < 7) {
        fputs("usage: timer ROUNDS WARMUP PAUSE_MS STDERR_FILE NAME COMMAND [ARG]... [--- NAME COMMAND [ARG]...]...\n", stderr);
        return 2;
    }
    long rounds = number(argv[1], "ROUNDS", 1), warmup = number(argv[2], "WARMUP", 0);
    long pause_ms = number(argv[3], "PAUSE_MS", 0);
    struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
    parse(argc, argv, 5, argv[4]);

    int order[MAX_CONTESTANTS];
    for (int i = 0; i < count; i++) {
        order[i] = i;
        samples[i] = calloc((size_t)rounds, sizeof(uint64_t));
        if (!samples[i])
            die("calloc for", contestants[i].name);
    }
    for (long round = 0; round < warmup + rounds; round++) {
        shuffle(order);
        for (int i = 0; i < count; i++) {
            int at = order[i];
            struct rusage usage;
            if (failed[at])
                continue;
            uint64_t took = measure(&contestants[at], round, pause, &usage);
            if (!took)
                failed[at] = strdup(failure);
            if (round >= warmup)
                samples[at][round - warmup] = took;
            if (usage.ru_maxrss > peak_kib[at])
                peak_kib[at] = usage.ru_maxrss;
        }
        show_progress(round, warmup, rounds);
    }
    for (int i = 0; i < count; i++) {
        uint64_t *sorted = samples[i], sum = 0;
        if (failed[i]) {
            printf("%s\t%s\n", contestants[i].name, failed[i]);
            continue;
        }
        for (long n = 0; n < rounds; n++)
            sum += sorted[n];
        qsort(sorted, (size_t)rounds, sizeof(uint64_t), ascending);
        printf("%s\t%llu\t%llu\t%llu\t%llu\t%llu\t%ld\n", contestants[i].name, percentile(sorted, rounds, 50),
               percentile(sorted, rounds, 95), percentile(sorted, rounds, 99), (unsigned long long)sorted[0],
               (unsigned long long)sum / (unsigned long long)rounds, peak_kib[i]);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
