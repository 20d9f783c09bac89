//! How much of the configuration the host's limit on open files has room for. It is divided before anything is opened: a
//! service that runs out of descriptors in the middle of its work fails in places nobody has thought of.

use super::Config;

/// Open at all times, or for a moment: the store, the log, one start in the making, files that readers look into.
const OWN: u64 = 160;
/// Of one task in the launcher, while it starts.
const TASK_IN_LAUNCHER: u64 = 16;
/// Of one task in the server: two pipes and two files.
const TASK_IN_SERVER: u64 = 4;
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
        let places = usize::try_from(room / TASK_IN_LAUNCHER).unwrap_or(usize::MAX);
        // What stands ready is worth less than what runs; it has descriptors, and a uid.
        self.warm.slots = self.warm.slots.min(places / 8).min(self.uid_range.count as usize / 8);
        let tasks = (places - self.warm.slots).min(self.quota.running);
        let connections = usize::try_from(room - tasks as u64 * TASK_IN_SERVER).unwrap_or(usize::MAX);
        let connections = connections.min(self.connections.total);
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
        for open_files in [FEWEST, 1024, 4096, 16 << 10] {
            let mut config = whole.clone();
            let said = config.fit(open_files).unwrap();
            let (tasks, connections) = (config.quota.running as u64, config.connections.total as u64);
            assert!(tasks >= 1 && connections >= 16, "{said:?}");
            assert!(OWN + (tasks + config.warm.slots as u64) * TASK_IN_LAUNCHER <= open_files);
            assert!(OWN + tasks * TASK_IN_SERVER + connections <= open_files);
            assert!(said.is_none_or(|said| said.contains(&format!("{tasks} tasks and {connections} connections"))));
        }
        assert!(whole.clone().fit(FEWEST - 1).unwrap_err().contains("LimitNOFILE"));
    }
}
