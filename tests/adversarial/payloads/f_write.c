/* F33: changes the directory argv[1] and the file in it, both of which anyone may write to, by every call that changes. */
#include "probe.h"
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/xattr.h>

static const char *directory;

static const char *in(const char *name)
{
    static __thread char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void probe(void)
{
    char other[512];
    int fd = open(in("file"), O_RDWR);
    say("write", fd < 0 ? -1 : write(fd, "changed", 7));
    if (fd >= 0)
        close(fd);
    say("truncate", truncate(in("file"), 0));
    say_fd("create", open(in("made"), O_WRONLY | O_CREAT, 0666));
    say("mkdir", mkdir(in("directory"), 0777));
    say("symlink", symlink("/", in("symlink")));
    say("mkfifo", mkfifo(in("fifo"), 0666));
    snprintf(other, sizeof other, "%s/renamed", directory);
    say("rename", rename(in("file"), other));
    say("rename-back", rename(other, in("file")));
    say("link", link(in("file"), other));
    say("unlink", unlink(in("file")));
    /* A descriptor for reading, opened again for writing. */
    fd = open(in("file"), O_RDONLY | O_CREAT, 0666);
    if (fd < 0)
        fd = open(in("file"), O_RDONLY);
    snprintf(other, sizeof other, "/proc/self/fd/%d", fd);
    say_fd("reopen", open(other, O_RDWR));
    say_fd("tmpfile", open(directory, O_TMPFILE | O_RDWR, 0600));
    say("utimes", utimes(in("file"), NULL));
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    directory = argv[1];
    umask(0);
    probe(); /* once: what works here is not there a second time */
    hold();
    return 0;
}
