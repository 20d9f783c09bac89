/* Opens files until the kernel refuses or N are open, in each of C processes; says how far it came, and stays. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 4) return 90;
    int bound = atoi(argv[1]), processes = atoi(argv[2]), opened = 0, error = 0;
    for (int i = 1; i < processes; i++)
        if (fork() == 0) break;
    while (opened < bound) {
        int fd = open("/dev/null", O_RDONLY);
        if (fd < 0) {
            error = errno;
            break;
        }
        opened++;
    }
    printf("opened %d %s\n", opened, error ? strerrorname_np(error) : "OK");
    fflush(stdout);
    alarm(30);
    for (;;) pause();
}
