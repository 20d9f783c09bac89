//! What a profile lets a request ask for. The server asks to answer well, the launcher asks again to be sure.

use std::cmp::Ordering;

use super::{Config, Profile};
use crate::task::limits::{LIMITS, Limits};
use crate::task::name;
use crate::task::request::TaskRequest;
use crate::task::spec::{BindRo, SpecError, TaskSpec};

/// Each is a mount; nobody needs more.
const MAX_BINDS: usize = 64;

impl Config {
    /// The task that is asked for, if the configuration allows it.
    pub fn admit(&self, request: &TaskRequest) -> Result<TaskSpec, SpecError> {
        let profile = self.profiles.get(&request.profile).ok_or_else(|| {
            SpecError::new("profile", format!("there is no profile {:?} in the configuration", request.profile))
        })?;
        // First what is too much: of too much memory, an io limit is too little.
        profile.admits(&request.profile, &request.limits)?;
        if request.bind_ro.len() > MAX_BINDS {
            return Err(SpecError::new("bind_ro", format!("{} are more than {MAX_BINDS}", request.bind_ro.len())));
        }
        name::check(&request.owner).map_err(|why| SpecError::new("owner", why))?;
        let mut spec = request.validate()?;
        spec.binds.iter().try_for_each(|bind| profile.may_bind(bind))?;
        spec.profile = profile.inside;
        spec.strict = self.strict;
        Ok(spec)
    }
}

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
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::config::Overrides;
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

    fn config() -> Config {
        let text = "[tls]\ncerts = \"/c\"\n[profiles.default]\nbind_ro = [\"/opt/tools\"]\n";
        Config::parse(text, &Overrides::default()).unwrap()
    }

    fn request() -> TaskRequest {
        TaskRequest { owner: "alice".into(), ..TaskRequest::new("true", [""; 0]) }
    }

    fn refused(change: impl FnOnce(&mut TaskRequest)) -> String {
        let mut request = request();
        change(&mut request);
        config().admit(&request).unwrap_err().field.into_owned()
    }

    #[test]
    fn a_request_within_its_profile_becomes_that_task() {
        let mut wanted = request();
        wanted.bind_ro = vec!["/opt/tools/bin:/tools".into()];
        wanted.env.insert("A".into(), "1".into());
        let task = wanted.task;
        let spec = config().admit(&wanted).unwrap();
        assert_eq!((spec.id, spec.strict, spec.split_output), (task, true, false));
        assert_eq!(spec.owner.as_deref(), Some("alice"));
        assert_eq!(spec.binds[0].source, PathBuf::from("/opt/tools/bin"));
    }

    #[test]
    fn a_limit_above_the_profiles_or_too_small_is_refused() {
        assert_eq!(refused(|request| request.limits.memory_bytes += 1), "memory");
        assert_eq!(refused(|request| request.limits.timeout += Duration::from_millis(1)), "timeout");
        assert_eq!(refused(|request| request.limits.cpus = f64::NAN), "cpus");
        assert_eq!(refused(|request| request.limits.memory_bytes = 1), "memory");
    }

    #[test]
    fn binds_outside_the_profiles_roots_are_refused() {
        for outside in ["/", "/etc", "/opt", "/opt/toolsmith", "/opt/tools/../../etc", "/root:/opt/tools"] {
            assert_eq!(refused(|request| request.bind_ro = vec![outside.into()]), "bind_ro", "{outside}");
        }
        assert_eq!(refused(|request| request.bind_ro = vec!["/opt/tools".into(); 65]), "bind_ro");
    }

    #[test]
    fn what_a_specification_refuses_is_refused_here_too() {
        assert_eq!(refused(|request| request.command = String::new()), "command");
        assert_eq!(refused(|request| request.args = vec!["a\0b".into()]), "args");
        assert_eq!(refused(|request| drop(request.env.insert("A=B".into(), String::new()))), "env");
        assert_eq!(refused(|request| request.working_dir = Some("/proc/self".into())), "workdir");
        assert_eq!(refused(|request| request.hostname = Some("a b".into())), "hostname");
        assert_eq!(refused(|request| request.profile = "none".into()), "profile");
        assert_eq!(refused(|request| request.owner = "a\nb".into()), "owner");
        assert_eq!(refused(|request| request.owner = String::new()), "owner");
        // A hundred thousand variables would cost the launcher minutes, one by one.
        let many = (0..100_000).map(|n| (n.to_string(), String::new()));
        assert_eq!(refused(|request| request.env = many.collect()), "env");
    }
}
