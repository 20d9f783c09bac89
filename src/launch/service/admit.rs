//! From a request of the server to a task, with nothing taken on trust: the server has checked all of this, and one day the
//! server is not the server any more.

use crate::config::{Config, Profile};
use crate::error::StartError;
use crate::task::name;
use crate::task::spec::{BindRo, SpecError, TaskSpec};
use crate::wire::StartRequest;

/// Each is a mount; nobody needs more.
const MAX_BINDS: usize = 64;

/// The task that is asked for, if the configuration allows it.
pub fn spec(request: StartRequest, config: &Config) -> Result<TaskSpec, StartError> {
    let profile = config.profiles.get(&request.profile).ok_or_else(|| {
        SpecError::new("profile", format!("there is no profile {:?} in the configuration", request.profile))
    })?;
    profile.admits(&request.profile, &request.limits)?;
    let mut spec = TaskSpec::new(&request.command, request.args)?.with_id(request.task).with_limits(request.limits)?;
    for (name, value) in &request.env {
        spec = spec.with_env(name, value)?;
    }
    if let Some(directory) = &request.working_dir {
        spec = spec.with_workdir(directory)?;
    }
    if let Some(hostname) = &request.hostname {
        spec = spec.with_hostname(hostname)?;
    }
    spec.binds = binds(&request.bind_ro, profile)?;
    spec.profile = profile.inside;
    spec.strict = config.strict;
    spec.split_output = request.split_output;
    // It ends up in incident files and on terminals.
    name::check(&request.owner).map_err(|why| SpecError::new("owner", why))?;
    spec.owner = Some(request.owner);
    Ok(spec)
}

fn binds(asked: &[String], profile: &Profile) -> Result<Vec<BindRo>, SpecError> {
    if asked.len() > MAX_BINDS {
        return Err(SpecError::new("bind_ro", format!("{} are more than {MAX_BINDS}", asked.len())));
    }
    let checked = |text: &String| {
        let bind: BindRo = text.parse()?;
        profile.may_bind(&bind).map(|()| bind)
    };
    asked.iter().map(checked).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::config::Overrides;

    fn config() -> Config {
        let text = "[tls]\ncerts = \"/c\"\n[profiles.default]\nbind_ro = [\"/opt/tools\"]\n";
        Config::parse(text, &Overrides::default()).unwrap()
    }

    fn request() -> StartRequest {
        StartRequest::sample()
    }

    fn refused(change: impl FnOnce(&mut StartRequest)) -> String {
        let mut request = request();
        change(&mut request);
        match spec(request, &config()) {
            Err(StartError::Spec(error)) => error.field.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_within_its_profile_becomes_that_task() {
        let mut wanted = request();
        wanted.bind_ro = vec!["/opt/tools/bin:/tools".into()];
        wanted.env.insert("A".into(), "1".into());
        let task = wanted.task;
        let spec = spec(wanted, &config()).unwrap();
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
        // A hundred thousand variables would cost the launcher minutes, one by one.
        let many = (0..100_000).map(|n| (n.to_string(), String::new()));
        assert_eq!(refused(|request| request.env = many.collect()), "env");
    }
}
