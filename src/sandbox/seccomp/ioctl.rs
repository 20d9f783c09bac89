//! The requests of ioctl(2), a call that is a thousand others.
//!
//! Terminals are a task's own, so their requests are allowed but for four. File systems and network devices are the kernel's: of
//! these, what programs ask for is listed, and the rest is refused.

use super::condition::{ALL, Condition, Test, Width, int, int_not};

/// Four requests that reach past the terminal's own user: input for whoever reads next (TIOCSTI), the console's
/// selection and more (TIOCLINUX), the console's output (TIOCCONS), a line discipline by number, which loads modules
/// of poor reputation (TIOCSETD). And types as a whole, but for what is listed:
///
/// - File systems' ('f', 'X', 0x15, and btrfs' 0x94): the files are the host's, and so are the extents, labels, subvolumes and encryption keys these
///   tell of or leave behind, and the disk that they write back to.
/// - Sockets' and network devices' (0x89): asking for a bridge or a VLAN loads its module, as root.
pub static IOCTL: Condition = Condition::new(
    "request is not TIOCSTI, TIOCLINUX, TIOCCONS or TIOCSETD, nor of the types 'f', 'X', 0x15, 0x94 (file systems) and 0x89 (sockets), \
     whatever its upper 32 bits; of these types FS_IOC_GETFLAGS, FICLONE, FICLONERANGE, FIOSETOWN, SIOCSPGRP, FIOGETOWN, SIOCGPGRP, SIOCATMARK, \
     SIOCGIFNAME, SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFADDR, SIOCGIFDSTADDR, SIOCGIFBRDADDR, SIOCGIFNETMASK, SIOCGIFMETRIC, SIOCGIFMTU, SIOCGIFHWADDR, \
     SIOCGIFINDEX, SIOCGIFTXQLEN, SIOCOUTQNSD and SIOCGIFMAP",
    &[
        &[
            Test {
                arg: 1,
                width: Width::Int,
                mask: 0xff00,
                values: &[0x1500, 0x5800, 0x6600, 0x8900, 0x9400],
                member: false,
            },
            int_not(1, &[libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCCONS, libc::TIOCSETD]),
        ],
        &[int(1, ALL, LISTED)],
    ],
);

/// In rising order, so that neighbours are one comparison. A copy that shares blocks (FICLONE) is the kernel's to refuse: in a task it always is, and
/// programs know its answers.
const LISTED: &[u64] = &[
    0x8901, // FIOSETOWN
    0x8902, // SIOCSPGRP
    0x8903, // FIOGETOWN
    0x8904, // SIOCGPGRP
    0x8905, // SIOCATMARK
    0x8910, // SIOCGIFNAME
    0x8912, // SIOCGIFCONF
    0x8913, // SIOCGIFFLAGS
    0x8915, // SIOCGIFADDR
    0x8917, // SIOCGIFDSTADDR
    0x8919, // SIOCGIFBRDADDR
    0x891b, // SIOCGIFNETMASK
    0x891d, // SIOCGIFMETRIC
    0x8921, // SIOCGIFMTU
    0x8927, // SIOCGIFHWADDR
    0x8933, // SIOCGIFINDEX
    0x8942, // SIOCGIFTXQLEN
    0x894b, // SIOCOUTQNSD
    0x8970, // SIOCGIFMAP
    FICLONE,
    FICLONERANGE,
    libc::FS_IOC_GETFLAGS,
];
const FICLONE: u64 = 0x4004_9409;
const FICLONERANGE: u64 = 0x4020_940d;
