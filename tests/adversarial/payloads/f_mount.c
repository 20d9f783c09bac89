/* F14: changes mounts by the old and the new interface. With `private` as first argument (the control arm) it first
 * takes a mount namespace of its own, so that what works there touches nothing of the host. */
#include "probe.h"
#include <linux/mount.h>
#include <sys/mount.h>

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#define NR_STATMOUNT 457
#define NR_LISTMOUNT 458
#define NR_OPEN_TREE_ATTR 467

struct attr { uint64_t set, clear, propagation, userns; };
struct mnt_id { uint32_t size, spare; uint64_t id, param; };

static void probe(void)
{
    struct attr attr = { .clear = 1 /* MOUNT_ATTR_RDONLY */ };
    struct mnt_id root = { .size = 24, .id = UINT64_MAX /* LSMT_ROOT */ };
    uint64_t ids[8];
    say("mount-tmpfs", mount("none", "/tmp", "tmpfs", 0, ""));
    say("mount-proc", mount("proc", "/tmp", "proc", 0, ""));
    say("mount-bind", mount("/usr", "/tmp", NULL, MS_BIND, NULL));
    say("remount-rw", mount(NULL, "/tmp", NULL, MS_REMOUNT | MS_BIND, NULL));
    say("make-shared", mount(NULL, "/tmp", NULL, MS_SHARED, NULL));
    say("move", mount("/tmp", "/mnt", NULL, MS_MOVE, NULL));
    int tree = say("open-tree", syscall(SYS_open_tree, AT_FDCWD, "/usr", OPEN_TREE_CLONE));
    say("mount-setattr", syscall(SYS_mount_setattr, tree < 0 ? AT_FDCWD : tree, tree < 0 ? "/usr" : "",
                                 tree < 0 ? 0 : AT_EMPTY_PATH, &attr, sizeof attr));
    say("move-mount", syscall(SYS_move_mount, tree, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH));
    if (tree >= 0)
        close(tree);
    say("umount", umount2("/tmp", MNT_DETACH));
    int fs = say("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    say("fsconfig", syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
    say_fd("fsmount", syscall(SYS_fsmount, fs, 0, 0));
    if (fs >= 0)
        close(fs);
    say_fd("fspick", syscall(SYS_fspick, AT_FDCWD, "/tmp", 0));
    say("listmount", syscall(NR_LISTMOUNT, &root, ids, 8, 0));
    root.param = 1 /* STATMOUNT_SB_BASIC */;
    root.id = ids[0];
    char answer[4096];
    say("statmount", syscall(NR_STATMOUNT, &root, answer, sizeof answer, 0));
    say_fd("open-tree-attr", syscall(NR_OPEN_TREE_ATTR, AT_FDCWD, "/usr", OPEN_TREE_CLONE, &attr, sizeof attr));
    say("umount-proc", umount2("/proc", MNT_DETACH));
    say("umount-usr", umount2("/usr", MNT_DETACH));
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "private"))
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
            return 2;
    if (argc > 1 && !strcmp(argv[1], "private"))
        probe(); /* once: it takes /proc and /usr away */
    else
        everywhere(probe);
    hold();
    return 0;
}
