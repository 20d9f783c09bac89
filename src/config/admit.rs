//! What a profile lets a request ask for. The server asks to answer well, the launcher asks again to be sure.

use std::cmp::Ordering;

use super::Profile;
use crate::task::limits::{LIMITS, Limits};
use crate::task::spec::{BindRo, SpecError};

impl Profile {
    /// Whether every limit is at most the profile's own.
    pub fn admits(&self, name: &str, asked: &Limits) -> Result<(), SpecError> {
        for limit in &LIMITS {
            let (asked, most) = (limit.get(asked), limit.get(&self.limits));
            // Of NaN nothing is true.
            if !asked.partial_cmp(&most).is_some_and(Ordering::is_le) {
                let why = format!("{asked} is more than the {most} of profile {name:?}; ask for less");
                return Err(SpecError::new(limit.name, why));
            }
        }
        Ok(())
    }

    /// Whether the host path lies in or below one that the configuration names. By components: `/opt` is not `/optional`.
    pub fn may_bind(&self, bind: &BindRo) -> Result<(), SpecError> {
        if self.bind_ro.iter().any(|root| root.is_absolute() && bind.source.starts_with(root)) {
            return Ok(());
        }
        // The same answer whether the path exists or not: the host's files are not this caller's to explore.
        let message = format!(
            "{:?} is not granted; the profile's bind_ro in the server's configuration lists what is",
            bind.source
        );
        Err(SpecError::new("bind_ro", message))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::task::limits::Quantity;
    use crate::task::profile::Profile as Inside;

    fn profile() -> Profile {
        Profile {
            inside: Inside::Default,
            users: Vec::new(),
            bind_ro: vec!["/opt/tools".into()],
            limits: Limits::default(),
        }
    }

    #[test]
    fn a_request_can_lower_every_limit_and_raise_none() {
        let profile = profile();
        profile.admits("p", &Limits::default()).unwrap();
        for limit in &LIMITS {
            let (mut asked, most) = (Limits::default(), limit.get(&Limits::default()));
            let more = match most {
                Quantity::Bytes(bytes) => Quantity::Bytes(bytes + 1),
                Quantity::Cpus(cpus) => Quantity::Cpus(cpus + 0.01),
                Quantity::Time(time) => Quantity::Time(time + Duration::from_millis(1)),
                Quantity::Count(count) => Quantity::Count(count + 1),
            };
            limit.set(&mut asked, more);
            let error = profile.admits("p", &asked).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{}: {more} is more than the {most} of profile \"p\"; ask for less", limit.name)
            );
            limit.set(&mut asked, limit.least);
            profile.admits("p", &asked).unwrap();
        }
        let asked = Limits { memory_bytes: 2 << 30, ..Limits::default() };
        let error = profile.admits("p", &asked).unwrap_err();
        assert_eq!(error.to_string(), "memory: 2G is more than the 512M of profile \"p\"; ask for less");
        assert!(profile.admits("p", &Limits { cpus: f64::NAN, ..Limits::default() }).is_err());
    }

    #[test]
    fn only_what_lies_below_a_granted_path_can_be_bound() {
        let may = |bind: &str| profile().may_bind(&bind.parse().unwrap()).is_ok();
        assert!(may("/opt/tools") && may("/opt/tools/gcc:/gcc"));
        assert!(!may("/opt") && !may("/opt/toolsx") && !may("/etc:/opt/tools"));
    }
}
