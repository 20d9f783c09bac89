//! sandbox-init: process 1 of every sandbox, a program of its own without libc.
//!
//! The payload is not PID 1, because PID 1 ignores its own unhandled signals; so this stays, reaps what is orphaned to
//! it, forwards signals that come from outside the sandbox, and tells the launcher how the payload ended. It enforces
//! nothing. It starts with an empty environment, two descriptors and every signal blocked, and holds no secret: all
//! the payload could learn from it is this text.

#![no_std]
#![no_main]

mod filter;

use core::arch::{asm, naked_asm};

/// Pipe to the launcher: the payload's wait status, four bytes; or why it does not start, a negative errno.
const STATUS: usize = 3;
/// Pipe to the payload-to-be, which executes its command when one byte arrives: init is confined by then.
const GO: usize = 4;

const SYS_WRITE: usize = 1;
const SYS_CLOSE: usize = 3;
const SYS_POLL: usize = 7;
const SYS_WAIT4: usize = 61;
const SYS_KILL: usize = 62;
const SYS_RT_SIGTIMEDWAIT: usize = 128;
const SYS_PRCTL: usize = 157;
const SYS_SCHED_SETAFFINITY: usize = 203;
const SYS_SCHED_GETAFFINITY: usize = 204;
const SYS_EXIT_GROUP: usize = 231;
const SYS_SECCOMP: usize = 317;

const WNOHANG: usize = 1;
const WALL: usize = 0x4000_0000;
const ECHILD: i64 = 10;
const SIGKILL: usize = 9;
const SIGCHLD: i64 = 17;
/// Carries any signal number, SIGSTOP and SIGKILL among them, as the value of a queued signal.
const CARRIER: i64 = 64;
const FIRST_REAL_TIME: i64 = 32;
/// What the kernel says of a signal by kill(2) or by pidfd without a siginfo, and of one with a siginfo of sigqueue(3)'s kind.
const SI_USER: i32 = 0;
const SI_QUEUE: i32 = -1;
const PR_SET_PDEATHSIG: usize = 1;
const PR_SET_DUMPABLE: usize = 4;
const PR_SET_NAME: usize = 15;
const POLLERR: u16 = 8;

#[repr(C)]
struct Program(u16, *const filter::Instruction);

/// The head of the kernel's siginfo, as far as init reads it.
#[repr(C)]
struct SigInfo {
    signal: i32,
    _errno: i32,
    code: i32,
    _padding: i32,
    sender: i32,
    _uid: u32,
    value: i32,
    _rest: [u32; 25],
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(125)
}

/// The kernel jumps here with the arguments on the stack.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    naked_asm!("mov rdi, rsp", "and rsp, -16", "call {main}", main = sym main)
}

extern "C" fn main(stack: *const usize) -> ! {
    let subject = Subject::of(stack);
    if !subject.lacks(b'd') {
        // SAFETY: no pointer.
        unsafe { call(SYS_PRCTL, [PR_SET_DUMPABLE, 0, 0, 0]) };
    }
    // SAFETY: a C string of this program's.
    unsafe { call(SYS_PRCTL, [PR_SET_NAME, c"taskman-init".as_ptr() as usize, 0, 0]) };
    // Armed before exec too; a launcher that died in between has closed the other end of the status pipe.
    if !subject.lacks(b'p') {
        // SAFETY: no pointer.
        unsafe { call(SYS_PRCTL, [PR_SET_PDEATHSIG, SIGKILL, 0, 0]) };
        if parent_is_gone() {
            exit(125);
        }
    }
    join_processors_of(subject.payload);
    let program = Program(filter::FILTER.len() as u16, filter::FILTER.as_ptr());
    if !subject.lacks(b's') {
        // Without its instructions, in a mutation arm: the kernel refuses it as it would for want of memory.
        let program = if subject.lacks(b'f') { 0 } else { &raw const program as usize };
        // SAFETY: `program` lives on this stack and points to as many instructions as it says, which are this program's.
        let refused = unsafe { call(SYS_SECCOMP, [1, 0, program, 0]) } as i32;
        if refused != 0 {
            // A negative errno in place of a wait status: the payload's command was not executed, and will not be.
            // SAFETY: four bytes of this stack are read.
            unsafe { call(SYS_WRITE, [STATUS, &raw const refused as usize, 4, 0]) };
            exit(125);
        }
    }
    // SAFETY: one byte of this program's is read; nobody uses the descriptor after this.
    unsafe {
        call(SYS_WRITE, [GO, c"!".as_ptr() as usize, 1, 0]);
        call(SYS_CLOSE, [GO, 0, 0, 0]);
    }
    let reaped = if subject.lacks(b'r') { subject.payload } else { -1 };
    reap_and_forward(subject.payload, reaped, subject.lacks(b'o'))
}

/// Goes where the payload is. A processor share is handed out in slices per processor; on one of its own, init could be out of them, and
/// not reap, while the payload still runs. Only now, when there is little left to do: before, both would share one.
fn join_processors_of(payload: i64) {
    // As many as the kernel can have. Not initialised: there is no memset here.
    let mut processors = core::mem::MaybeUninit::<[u64; 128]>::uninit();
    let (set, size) = (processors.as_mut_ptr() as usize, size_of_val(&processors));
    // SAFETY: the kernel writes no more than `size` bytes to `set`, which is as large, and then reads as many as it wrote.
    let done = unsafe {
        let size = call(SYS_SCHED_GETAFFINITY, [payload as usize, size, set, 0]);
        if size <= 0 { size } else { call(SYS_SCHED_SETAFFINITY, [0, size as usize, set, 0]) }
    };
    if done < 0 {
        exit(125);
    }
}

/// Whose end is told: the first child of PID 1 in a fresh PID namespace.
#[cfg(not(mutation))]
struct Subject {
    payload: i64,
}

#[cfg(not(mutation))]
impl Subject {
    fn of(_stack: *const usize) -> Self {
        Self { payload: 2 }
    }

    fn lacks(&self, _letter: u8) -> bool {
        false
    }
}

/// The mutation arm of the adversarial suite has sandboxes without a PID namespace, and inits that lack something: it passes
/// the payload's pid, and a letter for each thing not to do.
#[cfg(mutation)]
struct Subject {
    payload: i64,
    letters: *const u8,
}

#[cfg(mutation)]
impl Subject {
    fn of(stack: *const usize) -> Self {
        // SAFETY: the kernel puts the argument count at the initial stack pointer and the arguments' addresses after it;
        // the launcher passes three arguments.
        let (mut digits, letters) = unsafe { (*stack.add(2) as *const u8, *stack.add(3) as *const u8) };
        let mut payload = 0;
        // SAFETY: arguments are C strings, and the terminating zero is no digit.
        while let digit @ b'0'..=b'9' = unsafe { *digits } {
            payload = payload * 10 + i64::from(digit - b'0');
            // SAFETY: not past the terminating zero.
            digits = unsafe { digits.add(1) };
        }
        Self { payload, letters }
    }

    fn lacks(&self, letter: u8) -> bool {
        // SAFETY: an argument is a C string of at most six letters here.
        (0..7).map(|at| unsafe { *self.letters.add(at) }).take_while(|found| *found != 0).any(|found| found == letter)
    }
}

fn reap_and_forward(payload: i64, reaped: i64, credulous: bool) -> ! {
    let mut payload_runs = true;
    loop {
        loop {
            let mut status = 0i32;
            // SAFETY: the kernel writes four bytes to `status`.
            let pid = unsafe { call(SYS_WAIT4, [reaped as usize, &raw mut status as usize, WNOHANG | WALL, 0]) };
            if pid == payload {
                payload_runs = false;
                // SAFETY: it has four bytes.
                unsafe { call(SYS_WRITE, [STATUS, &raw const status as usize, 4, 0]) };
            } else if pid == -ECHILD {
                exit(0);
            } else if pid <= 0 {
                break;
            }
        }
        let every_signal = !0u64;
        let mut info = SigInfo { signal: 0, _errno: 0, code: 0, _padding: 0, sender: -1, _uid: 0, value: 0, _rest: [0; 25] };
        // SAFETY: a set of eight bytes is read, and a siginfo of 128 written, which `info` has; null is no timeout.
        let signal =
            unsafe { call(SYS_RT_SIGTIMEDWAIT, [&raw const every_signal as usize, &raw mut info as usize, 0, 8]) };
        let asked_for = asked_for(signal, &info, credulous);
        if asked_for > 0 && payload_runs {
            // SAFETY: no pointer.
            unsafe { call(SYS_KILL, [payload as usize, asked_for as usize, 0, 0]) };
        }
    }
}

/// The signal that somebody outside wants the payload to get, or 0.
///
/// Senders in this PID namespace have a number; those outside it have none. Of a usual signal by kill(2) the kernel says so itself, and always:
/// it makes room for it. One that it sends of its own accord (SIGIO for whoever is set as a descriptor's owner) has no sender either, but another code;
/// a real-time signal for which there is no room comes as if by kill(2) and from nobody. The carrier's words are its sender's own; the payload's filter
/// lets it write none to this process, and takes from it the calls by which a usual signal loses its sender (`src/sandbox/seccomp/init.rs`).
fn asked_for(signal: i64, info: &SigInfo, credulous: bool) -> i64 {
    if signal <= 0 || signal == SIGCHLD || info.sender != 0 {
        return 0;
    }
    match info.code {
        SI_QUEUE if signal == CARRIER => i64::from(info.value),
        SI_USER if signal < FIRST_REAL_TIME => signal,
        _ if credulous => signal,
        _ => 0,
    }
}

fn parent_is_gone() -> bool {
    #[repr(C)]
    struct PollFd(i32, u16, u16);
    let mut fds = PollFd(STATUS as i32, 0, 0);
    // SAFETY: one entry, of the size of a pollfd, which lives on this stack.
    unsafe { call(SYS_POLL, [&raw mut fds as usize, 1, 0, 0]) };
    // SAFETY: `fds` lives on this stack; the kernel has just written the third field, so it is read back from memory.
    let seen = unsafe { core::ptr::read_volatile(&raw const fds.2) };
    seen & POLLERR != 0
}

fn exit(code: usize) -> ! {
    loop {
        // SAFETY: no pointer.
        unsafe { call(SYS_EXIT_GROUP, [code, 0, 0, 0]) };
    }
}

/// # Safety
///
/// Every pointer among the arguments is to memory that the call may read or write, as it says.
unsafe fn call(number: usize, [a, b, c, d]: [usize; 4]) -> i64 {
    let result: i64;
    // SAFETY: the x86_64 system call convention; what the call does with its arguments is the caller's to know.
    unsafe {
        asm!("syscall", inlateout("rax") number as i64 => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
             out("rcx") _, out("r11") _, options(nostack));
    }
    result
}
