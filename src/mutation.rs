//! Single defences that the adversarial suite switches off, to see its cases go red.
//!
//! A case that stays green without the defence it is named for proves nothing. The switches exist only with the
//! `mutation` feature, which no shipped binary has: there [`off`] is a constant `false`.
//!
//! One is no defence: without `cold-start`, `taskman run` parks its sandbox and takes it, as the service does with those that
//! it keeps ready, so that every case can be run against these too.

/// One defence. `TASKMAN_MUTATION` names them, comma-separated, in kebab case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the documentation
pub enum Defence {
    BindSymlinks,
    Caps,
    CgroupNamespace,
    CloneIntoCgroup,
    CloseFds,
    ColdStart,
    CollectMessages,
    Core,
    Cpu,
    CpuTime,
    DeathSignal,
    Disk,
    Dumpable,
    EndDeadline,
    Env,
    Fsize,
    Groups,
    HandedDown,
    InitFilter,
    InitImage,
    InitReap,
    InitSenders,
    Io,
    IoFloor,
    IpcNamespace,
    Keyring,
    Kill,
    LevelWalk,
    LiftThrottles,
    LoginUid,
    Memory,
    NetNamespace,
    Never,
    NoMoreWriters,
    NoNewPrivs,
    NoSuid,
    Nofile,
    NonBlockingPipes,
    OldRoot,
    OomGroup,
    OpenAnew,
    OutputLimit,
    OwnGroups,
    Ownership,
    PayloadNotPid1,
    PidNamespace,
    Pids,
    PlainSignals,
    PlantedReport,
    PrivateGroups,
    PrivateMounts,
    ProcMask,
    ReadOnly,
    RemovedGroup,
    Seccomp,
    Session,
    SingleThread,
    SlowDeath,
    SocketMemory,
    SocketOptions,
    StrictHost,
    Swap,
    Sweep,
    Uid,
    UidPool,
    UnseenApart,
    UtsNamespace,
    V1Join,
    WallTime,
    WholeReads,
}

/// Whether `defence` is switched off in this process.
#[cfg(not(feature = "mutation"))]
pub const fn off(_defence: Defence) -> bool {
    false
}

/// Whether `defence` is switched off in this process.
#[cfg(feature = "mutation")]
pub fn off(defence: Defence) -> bool {
    let kebab = format!("{defence:?}").chars().enumerate().fold(String::new(), |mut name, (i, c)| {
        if i > 0 && c.is_ascii_uppercase() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
        name
    });
    std::env::var("TASKMAN_MUTATION").is_ok_and(|names| names.split(',').any(|name| name == kebab))
}
