//! What a profile lets a request ask for. The server asks to answer well, the launcher asks again to be sure.

use super::Profile;
use crate::task::limits::Limits;
use crate::task::spec::{BindRo, SpecError};
use crate::task::units::exact_bytes;

impl Profile {
    /// Whether every limit is at most the profile's own.
    pub fn admits(&self, name: &str, asked: &Limits) -> Result<(), SpecError> {
        let most = &self.limits;
        let too_much = |field, asked: String, most: String| {
            Err(SpecError::new(field, format!("{asked} is more than the {most} of profile {name:?}; ask for less")))
        };
        // Every field by name, so that a new limit does not compile until someone has thought of it here.
        let Limits {
            memory_bytes,
            cpus,
            cpu_time,
            timeout,
            pids,
            io_read_bps,
            io_write_bps,
            output_bytes,
            nofile,
            fsize_bytes,
            disk_bytes,
            inodes,
        } = *asked;
        for (field, asked, most) in [
            ("memory", memory_bytes, most.memory_bytes),
            ("io_read_bps", io_read_bps, most.io_read_bps),
            ("io_write_bps", io_write_bps, most.io_write_bps),
            ("output_limit", output_bytes, most.output_bytes),
            ("fsize", fsize_bytes, most.fsize_bytes),
            ("disk", disk_bytes, most.disk_bytes),
        ] {
            if asked > most {
                return too_much(field, exact_bytes(asked), exact_bytes(most));
            }
        }
        for (field, asked, most) in
            [("pids", pids, most.pids), ("nofile", nofile, most.nofile), ("inodes", inodes, most.inodes)]
        {
            if asked > most {
                return too_much(field, asked.to_string(), most.to_string());
            }
        }
        for (field, asked, most) in [("cpu_time", cpu_time, most.cpu_time), ("timeout", timeout, most.timeout)] {
            if asked > most {
                return too_much(field, format!("{asked:?}"), format!("{most:?}"));
            }
        }
        // Written so that NaN is too much.
        if cpus <= most.cpus { Ok(()) } else { too_much("cpus", cpus.to_string(), most.cpus.to_string()) }
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
        type Change = fn(&mut Limits);
        let raise: [(&str, Change); 12] = [
            ("memory", |l| l.memory_bytes += 1),
            ("cpus", |l| l.cpus += 0.01),
            ("cpu_time", |l| l.cpu_time += Duration::from_millis(1)),
            ("timeout", |l| l.timeout += Duration::from_millis(1)),
            ("pids", |l| l.pids += 1),
            ("io_read_bps", |l| l.io_read_bps += 1),
            ("io_write_bps", |l| l.io_write_bps += 1),
            ("output_limit", |l| l.output_bytes += 1),
            ("nofile", |l| l.nofile += 1),
            ("fsize", |l| l.fsize_bytes += 1),
            ("disk", |l| l.disk_bytes += 1),
            ("inodes", |l| l.inodes += 1),
        ];
        for (field, raise) in raise {
            let mut asked = Limits::default();
            raise(&mut asked);
            assert_eq!(profile.admits("p", &asked).unwrap_err().field, field);
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
