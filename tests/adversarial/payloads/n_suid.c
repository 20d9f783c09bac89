/* N07: planted by the test as setuid root, or with file capabilities. Uses what it was given: writes where only root may. */
#include "probe.h"
#include <linux/capability.h>

int main(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct have[2] = { { 0 } };
    syscall(SYS_capget, &header, have);
    say_value("euid", geteuid());
    say_value("effective", have[0].effective);
    hold();
    return 0;
}
