//! Control groups of either layout behind one table, because limits are only as good as the group they are written to.
//!
//! A task is one directory in the cgroup2 tree and, on a hybrid host, one of the same name in each version 1 hierarchy
//! that carries a limit. The cgroup2 directory is where the task lives and dies: it is created first and removed last,
//! and its `flock` is held by the launcher for the task's whole life. Whoever can take that lock knows that the owner is
//! dead, which is all that [`sweep`] needs to know.
//!
//! This module refuses to guess: paths come from mountinfo, a file that cannot be written is an error, and a controller
//! that is not there is named by [`Layout::missing`].

mod census;
mod delegate;
pub mod device;
mod directory;
mod file;
mod group;
mod layout;
pub(crate) mod mountinfo;
mod oom;
mod owner;
mod sweep;
mod table;
mod usage;

#[cfg(test)]
mod tests;

pub use census::Census;
pub use device::{Device, Devices};
pub use group::Group;
pub use layout::{Controller, Hierarchy, Kind, Layout, LayoutError};
pub use oom::{Interest, OomWatch};
pub use owner::owner_of;
pub use sweep::{Dead, LEFT_TO_DIE, Swept, kill, sweep, sweep_out};
pub use table::{Limit, ROWS, Row};
pub use usage::GroupUsage;
