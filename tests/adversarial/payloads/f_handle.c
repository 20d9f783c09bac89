/* F18: opens a file of the host's file system by its inode number (argv[2]), starting from a directory of that file
 * system which it was given (argv[1]): no path leads there, so no mount can hide it. */
#include "probe.h"

static char **args;

static void probe(void)
{
    union {
        struct file_handle handle;
        char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } known = { .handle = { .handle_bytes = MAX_HANDLE_SZ } }, made = { .handle = { .handle_bytes = 8, .handle_type = 1 } };
    uint32_t ino_gen[2] = { strtoul(args[2], NULL, 10), 0 };
    int mount_id;
    char byte;
    say("name-to-handle", name_to_handle_at(AT_FDCWD, args[1], &known.handle, &mount_id, 0));
    memcpy(made.handle.f_handle, ino_gen, sizeof ino_gen);
    int dir = open(args[1], O_RDONLY | O_DIRECTORY);
    int fd = say("open-by-handle", open_by_handle_at(dir, &made.handle, O_RDONLY));
    if (fd >= 0)
        say("read-by-handle", read(fd, &byte, 1));
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    args = argv;
    everywhere(probe);
    hold();
    return 0;
}
