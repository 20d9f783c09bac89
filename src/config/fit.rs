//! How much of the configuration the host's limit on open files has room for. It is divided before anything is opened: a
//! service that runs out of descriptors in the middle of its work fails in places nobody has thought of.

use super::Config;

/// Open at all times, or for a moment: the store, the log, one start in the making, files that readers look into.
const OWN: u64 = 160;
/// Tasks that the launcher starts at once; others wait for their turn.
pub const STARTING: usize = 64;
/// Of one of them in the launcher, and of a sandbox that stands ready.
const START_IN_LAUNCHER: u64 = 12;
/// Of one that runs: its group, its status pipe, its memory events.
const TASK_IN_LAUNCHER: u64 = 3;
/// Of one in the server: two pipes. A file is open only while it is written to.
const TASK_IN_SERVER: u64 = 2;
/// Of those who read metrics, all together, where there are any.
pub const METRICS_CONNECTIONS: usize = 16;
/// Fewer make no service.
const FEWEST: u64 = 256;

impl Config {
    /// Lowers the number of tasks and connections to what `open_files` descriptors per process have room for. Says so when
    /// it does, and refuses when that is no service.
    pub fn fit(&mut self, open_files: u64) -> Result<Option<String>, String> {
        let how = "raise the hard limit of open files (ulimit -Hn, LimitNOFILE=)";
        if open_files < FEWEST {
            return Err(format!("{open_files} open files are too few for a server, {FEWEST} are the least; {how}"));
        }
        let room = open_files - OWN - self.metrics_address.as_ref().map_or(0, |_| METRICS_CONNECTIONS as u64);
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        self.quota.starting = self.quota.starting.min(number(room / 2 / START_IN_LAUNCHER));
        // What stands ready is worth less than what runs; it has descriptors, and a uid.
        let slots = number(room / 8 / START_IN_LAUNCHER).min(self.uid_range.count as usize / 8);
        self.warm.slots = self.warm.slots.min(slots);
        let left = room - (self.quota.starting + self.warm.slots) as u64 * START_IN_LAUNCHER;
        let tasks = number((left / TASK_IN_LAUNCHER).min(room / 4 * 3 / TASK_IN_SERVER)).min(self.quota.running);
        let sockets = number(room - tasks as u64 * TASK_IN_SERVER);
        self.connections.handshakes = self.connections.handshakes.min(sockets / 4);
        let connections = (sockets - self.connections.handshakes).min(self.connections.total);
        if (tasks, connections) == (self.quota.running, self.connections.total) {
            return Ok(None);
        }
        self.quota.running = tasks;
        self.connections.total = connections;
        Ok(Some(format!("{open_files} open files have room for {tasks} tasks and {connections} connections; {how}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    #[test]
    fn what_fits_is_left_and_what_does_not_is_lowered_and_told() {
        let whole = Config::parse("[tls]\ncerts = \"/c\"\n", &Overrides::default()).unwrap();
        let mut config = whole.clone();
        assert_eq!(config.fit(1 << 20), Ok(None));
        assert_eq!(config, whole);
        for open_files in [FEWEST, 1024, 4096, 16 << 10, 20_000] {
            let mut config = whole.clone();
            config.quota.running = 20_000;
            let said = config.fit(open_files).unwrap();
            let (tasks, connections) = (config.quota.running as u64, config.connections.total as u64);
            let handshakes = config.connections.handshakes as u64;
            assert!(tasks >= 1 && connections >= 16 && handshakes >= 4, "{said:?}");
            let beside = (config.quota.starting + config.warm.slots) as u64;
            assert!(beside > 0 && OWN + beside * START_IN_LAUNCHER + tasks * TASK_IN_LAUNCHER <= open_files);
            assert!(OWN + tasks * TASK_IN_SERVER + connections + handshakes <= open_files);
            assert!(open_files < 20_000 || tasks >= 5000, "{said:?}");
            assert!(said.is_none_or(|said| said.contains(&format!("{tasks} tasks and {connections} connections"))));
        }
        assert!(whole.clone().fit(FEWEST - 1).unwrap_err().contains("LimitNOFILE"));
    }
}
