//! System V objects of this IPC namespace, removed by id.

use nix::errno::Errno;

/// The three kinds, named as in `/proc/sysvipc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Shm,
    Sem,
    Msg,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Shm, Self::Sem, Self::Msg];

    /// Its table's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Sem => "sem",
            Self::Msg => "msg",
        }
    }
}

/// Removes an object; shared memory goes with the last process that has it mapped.
pub fn remove(kind: Kind, id: i32) -> Result<(), Errno> {
    // SAFETY: IPC_RMID takes numbers and reads no memory.
    let done = unsafe {
        match kind {
            Kind::Shm => libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()),
            Kind::Sem => libc::semctl(id, 0, libc::IPC_RMID),
            Kind::Msg => libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()),
        }
    };
    Errno::result(done).map(drop)
}
