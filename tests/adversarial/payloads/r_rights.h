/* Descriptors as a message between unix sockets. */
#include <string.h>
#include <sys/socket.h>

/* Sends COUNT descriptors (four at the most) over socket S; 0 when the kernel took the message. */
static inline int send_rights(int s, const int *fds, int count)
{
    size_t size = count * sizeof *fds;
    char control[CMSG_SPACE(4 * sizeof *fds)] = { 0 };
    struct iovec data = { "x", 1 };
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(size)
    };
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(rights), fds, size);
    return sendmsg(s, &message, 0) != 1;
}
