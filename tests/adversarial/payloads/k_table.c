/* K13: makes each system call of which it is given the number, with no arguments, in a process of its own. */
#include "probe.h"

static int count;
static char **numbers;

static void probe(void)
{
    for (int i = 1; i < count; i++) {
        if (numbers[i][0] < '0' || numbers[i][0] > '9')
            continue;
        pid_t child = fork();
        if (child == 0) {
            say(numbers[i], syscall(strtol(numbers[i], NULL, 10), 0, 0, 0, 0, 0, 0));
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    count = argc;
    numbers = argv;
    everywhere(probe);
    hold();
    return 0;
}
