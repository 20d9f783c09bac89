//! Pure data: what to run, within which limits, and what came of it. Nothing here touches the kernel.

pub mod id;
pub mod limits;
pub mod name;
pub mod outcome;
pub mod profile;
pub mod record;
pub mod report;
pub mod request;
pub mod signal;
pub mod spec;
pub mod units;
