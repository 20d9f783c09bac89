//! The privileged parent: it places a task, creates its sandbox, watches it from outside, ends it, and proves the end.
//!
//! It refuses to run in a process with more than one thread: `PR_SET_PDEATHSIG` names the parent *thread*, and a sandbox
//! must not die because a thread of some pool did. There is one way to start a sandbox: [`Launcher::start`] takes it in one
//! go, for one task, and [`service`] in steps, for many.

mod create;
mod end;
mod leftovers;
mod pump;
pub mod service;
mod starting;
mod supervise;
mod task;
mod uids;
mod watch;

use std::time::Duration;

use crate::cgroup::{self, Devices, Layout, device};
use crate::doctor;
use crate::error::{Context, StartError, SysError};
use crate::fault;
use crate::mutation::{Defence, off};
use crate::sandbox;
use crate::sys::{clone, pidfd::PidFd};
use crate::task::spec::TaskSpec;

pub use crate::place::UidRange;
pub use pump::{Sink, Stream};
pub use starting::{Built, Starting};
pub use task::{Status, Task, Wait};
pub use uids::Lease;

/// How long `stop` waits between asking and killing, unless told otherwise.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// Starts tasks on this host.
pub struct Launcher {
    layout: Layout,
    uids: uids::Pool,
    myself: PidFd,
    instance: String,
}

impl Launcher {
    /// Looks at the host once. Needs root and a single-threaded process.
    pub fn open() -> Result<Self, StartError> {
        Self::with_uids(UidRange::default())
    }

    /// As [`Launcher::open`], with task uids from another range.
    pub fn with_uids(range: UidRange) -> Result<Self, StartError> {
        fault::role("launcher");
        if !nix::unistd::geteuid().is_root() {
            return Err(StartError::Host(vec![doctor::NOT_ROOT.to_owned()]));
        }
        if !clone::is_single_threaded() {
            let source = SysError::new("clone3", "this process", nix::errno::Errno::EDEADLK)
                .hint("it has more than one thread; open the launcher before any thread is started, or in a process of its own");
            return Err(StartError::step("threads")(source));
        }
        let refused = doctor::launcher_refusals(range);
        if !refused.is_empty() {
            return Err(StartError::Host(refused));
        }
        let layout = Layout::detect().map_err(|error| StartError::Host(vec![doctor::layout_refusal(&error)]))?;
        let refused = doctor::group_refusals(&layout);
        if !refused.is_empty() {
            return Err(StartError::Host(refused));
        }
        let uids = uids::Pool::open(range).map_err(StartError::step("uid"))?;
        let myself = PidFd::myself().on("pidfd_open", "this process").map_err(StartError::step("launcher"))?;
        Ok(Self { layout, uids, myself, instance: format!("run-{}", std::process::id()) })
    }

    /// The same launcher under another name, which stands in the names of its tasks' groups: a server's is the same on every
    /// start, so that what an earlier one left is known as its own.
    #[must_use]
    pub fn named(self, instance: String) -> Self {
        Self { instance, ..self }
    }

    /// The same launcher, at its place among the control groups: its own leaf, with every controller on for the tasks beside it.
    /// Otherwise the first task brings that about. Whoever forks off others has to have done so before: in one group with it, they
    /// would be in the way.
    pub fn settled(self) -> Result<Self, StartError> {
        let layout = self.layout.enabled().map_err(StartError::step("cgroup"))?;
        Ok(Self { layout, ..self })
    }

    /// What stands in the names of its tasks' groups.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Starts a task and returns once its command was executed, or with the reason why it was not.
    pub fn start(&self, spec: TaskSpec) -> Result<Task, StartError> {
        if off(Defence::SingleThread) {
            // The death signal then belongs to a thread that is gone by the time the payload runs.
            return std::thread::scope(|scope| scope.spawn(|| self.start_here(spec)).join().expect("starts"));
        }
        self.start_here(spec)
    }

    fn start_here(&self, spec: TaskSpec) -> Result<Task, StartError> {
        if off(Defence::ColdStart) {
            let mut parked = self.park(spec.clone())?;
            self.sweep();
            parked.wait_until_built()?;
            parked.take(spec)?;
            return parked.wait();
        }
        let starting = self.begin(spec)?;
        // The child is building its root meanwhile.
        self.sweep();
        starting.wait()
    }

    /// Creates a task's process in its cgroup; [`Starting::look`] tells when its command was executed.
    pub fn begin(&self, spec: TaskSpec) -> Result<Starting, StartError> {
        self.build(spec, false)
    }

    /// Builds a sandbox for a task of this id, limits and shape, and leaves it waiting for its command: [`Starting::take`] gives
    /// it the one task that it is for. Dropped before that, it is killed and removed.
    pub fn park(&self, spec: TaskSpec) -> Result<Starting, StartError> {
        self.build(spec, true)
    }

    fn build(&self, spec: TaskSpec, parked: bool) -> Result<Starting, StartError> {
        spec.limits.validate()?;
        let devices = device::behind(&sandbox::host_paths(&spec));
        let mut reduced = doctor::strict_refusals(&self.layout, &spec, &devices);
        if spec.strict && !reduced.is_empty() && !off(Defence::StrictHost) {
            return Err(StartError::Host(reduced));
        }
        fault::point("admitted");
        reduced.extend(devices.iter().filter_map(Devices::reduction));
        // What could not be found out stands among the reductions.
        let disks = devices.map(|devices| devices.disks).unwrap_or_default();
        create::begin(self, spec, parked, &disks, reduced)
    }

    /// Removes what dead instances left behind; live ones are not touched.
    fn sweep(&self) {
        cgroup::sweep(&self.layout);
    }

    /// The same, of an earlier launcher of this name that is known to be dead: waits for its tasks to be gone, and says how many are
    /// still there.
    fn succeed(&self) -> usize {
        let swept = cgroup::sweep_out(&self.layout, &self.instance, cgroup::LEFT_TO_DIE);
        swept.iter().filter(|one| one.error.is_some()).count()
    }
}
