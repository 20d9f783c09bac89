/* F32: asks the file system behind a file of the host, argv[1], for what is not the file's content. */
#include "probe.h"
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/fscrypt.h>
#include <sys/ioctl.h>

static const char *path;

static void probe(void)
{
    union {
        struct fiemap map;
        struct fsxattr attributes;
        struct fscrypt_add_key_arg key;
        char bytes[4096];
    } room;
    int fd = open(path, O_RDONLY);
    memset(&room, 0, sizeof room);
    room.map.fm_length = ~0ull;
    say("fiemap", ioctl(fd, FS_IOC_FIEMAP, &room));
    /* The request is an unsigned int to the kernel. */
    memset(&room, 0, sizeof room);
    room.map.fm_length = ~0ull;
    say("fiemap-high", syscall(SYS_ioctl, fd, 0x100000000ul | FS_IOC_FIEMAP, &room));
    say("uuid", ioctl(fd, _IOR(0x15, 0, char[17]), &room));
    say("label", ioctl(fd, FS_IOC_GETFSLABEL, &room));
    say("attributes", ioctl(fd, FS_IOC_FSGETXATTR, &room));
    memset(&room, 0, sizeof room);
    say("add-key", ioctl(fd, FS_IOC_ADD_ENCRYPTION_KEY, &room));
    say("freeze", fd < 0 ? -1 : ioctl(-1, FIFREEZE, 0)); /* of no file: nothing is ever frozen */
    int flags;
    say("flags", ioctl(fd, FS_IOC_GETFLAGS, &flags));
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    path = argv[1];
    everywhere(probe);
    hold();
    return 0;
}
