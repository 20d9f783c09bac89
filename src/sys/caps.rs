//! The five capability sets and the securebits of the calling thread.

use nix::errno::Errno;

/// `SECBIT_*` for NOROOT, NO_SETUID_FIXUP, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, each with its lock.
pub const LOCKED_SECUREBITS: libc::c_ulong = 0b1110_1111;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// Empties the bounding set, which execve could otherwise draw on.
pub fn drop_bounding() -> Result<(), Errno> {
    for capability in 0..64 {
        // SAFETY: PR_CAPBSET_DROP takes a number and touches no memory.
        match Errno::result(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }) {
            Ok(_) => {}
            // The first number the kernel does not know ends the list, so capabilities newer than this code go too.
            Err(Errno::EINVAL) if capability > 0 => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Locks the securebits, so that uid 0 means nothing and no capability can be raised again.
pub fn lock_securebits() -> Result<(), Errno> {
    // SAFETY: PR_SET_SECUREBITS takes a number and touches no memory.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, LOCKED_SECUREBITS, 0, 0, 0) }).map(drop)
}

/// Empties the ambient, inheritable, permitted and effective sets.
pub fn clear() -> Result<(), Errno> {
    // SAFETY: PR_CAP_AMBIENT_CLEAR_ALL touches no memory.
    Errno::result(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) })?;
    let header = Header { version: 0x2008_0522, pid: 0 };
    let none = [0u32; 6];
    // SAFETY: version 3 of capset reads the header and two triples of u32, which both live here.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) }).map(drop)
}

/// The securebits as they are.
pub fn securebits() -> Result<libc::c_ulong, Errno> {
    // SAFETY: PR_GET_SECUREBITS touches no memory.
    Errno::result(unsafe { libc::prctl(libc::PR_GET_SECUREBITS, 0, 0, 0, 0) }).map(|bits| bits as libc::c_ulong)
}
