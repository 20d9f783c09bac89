//! Named shapes of the inside view.

use serde::{Deserialize, Serialize};

use super::spec::SpecError;

/// How much of a usual Linux machine the task finds inside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// A machine of the task's own size: `ps`, `top`, `free`, `nproc` work and show the task's limits.
    #[default]
    Default,
    /// For judging programs: `/proc` holds the task's own processes and nothing more.
    Judge,
    /// As [`Profile::Default`], and programs may put seccomp filters on themselves. What these take is the host's, charged to nobody.
    Filters,
}

impl std::str::FromStr for Profile {
    type Err = SpecError;

    fn from_str(name: &str) -> Result<Self, SpecError> {
        match name {
            "default" => Ok(Self::Default),
            "judge" => Ok(Self::Judge),
            "filters" => Ok(Self::Filters),
            _ => Err(SpecError::new("profile", format!("there is no profile {name:?}; use default, judge or filters"))),
        }
    }
}
