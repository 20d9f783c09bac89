/* Floods stdout, and with `both` also stderr, until it is ended. */
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3) return 90;
    static char block[4096];
    memset(block, 'b', sizeof block);
    alarm(30);
    int stream = 1;
    if (!strcmp(argv[1], "both") && fork() == 0) stream = 2, alarm(30);
    while (write(stream, block, sizeof block) > 0);
    return 91;
}
