//! File locks, which the kernel charges to no memory limit: one process makes 60 MB of them a second. So they are counted from
//! outside, once a second, and a task that holds too many is killed.
//!
//! Nothing tells of a lock, so this is a look on a clock, and it has to be cheap:
//!
//! - The kernel's count of the objects that locks are made of is read in 50 us. Below [`MOST`] there is nothing to do.
//! - `/proc/locks` waits for a grace period of RCU, and is walked from its beginning for each page that is read. Its first [`MOST`] lines
//!   take 20 ms of CPU time, twice as many 75 ms. So they are all that is read.
//!
//! Each line names the process that took the lock. The payload's filter sees to it that this process has the lock, or had it: without OFD
//! locks, and without `CLONE_FILES` among processes, only a flock(2) outlives whoever took it. That needs an open file, which is charged;
//! but such locks can fill the beginning of the list, and then nobody's are seen there. So where they do, each task's own `/proc` is
//! asked, which shows the locks of its living processes and no others.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use super::task::Task;
use crate::cgroup;
use crate::mutation::{Defence, off};
use crate::sandbox::procfs::LOCKS;
use crate::sys::file;

/// How often.
const EVERY: Duration = Duration::from_secs(1);
/// As many locks on the whole host are nobody's concern: 3 MB.
const MOST: usize = 16_384;
/// As many may a task have, by its own `/proc`, when the first ones of the host are nobody's.
const MOST_INSIDE: usize = MOST / 8;
/// Asking a task takes 30 ns for each lock on the host, so those that are not asked within this time are asked in the next second.
const ASKING: Duration = Duration::from_millis(200);

/// A task that holds too many.
#[derive(Debug, PartialEq, Eq)]
pub struct Holder {
    /// The name of its group.
    pub group: String,
    /// How many were seen.
    locks: usize,
}

impl Holder {
    /// Why it is killed.
    pub fn detail(&self) -> String {
        format!("held {} or more file locks, which no memory limit counts", self.locks)
    }
}

/// When the locks are counted next, and what was found last.
pub struct Locks {
    pub due: Instant,
    /// There are too many, and they are not the tasks'.
    pub are_others: bool,
    /// Who is asked next, by number.
    next: usize,
}

impl Locks {
    pub fn new() -> Self {
        Self { due: Instant::now() + EVERY, are_others: false, next: 0 }
    }

    /// Counts them. Returns who is to be killed, of those whose groups are directories of `groups`; only `tasks` are the caller's to kill.
    pub fn check(&mut self, groups: &Path, tasks: &[&Task]) -> io::Result<Vec<Holder>> {
        self.due = Instant::now() + EVERY;
        self.are_others = false;
        if off(Defence::FileLocks) || objects().is_some_and(|objects| objects < MOST) {
            return Ok(Vec::new());
        }
        let pids = holders("/proc/locks", MOST)?;
        if pids.len() < MOST {
            return Ok(Vec::new());
        }
        let mut found = too_many(count(&pids, &cgroup::members(groups)?), MOST);
        if found.is_empty() {
            found = self.ask(tasks);
            self.are_others = found.is_empty();
        }
        Ok(found)
    }

    /// Those that hold too many by their own `/proc`.
    fn ask(&mut self, tasks: &[&Task]) -> Vec<Holder> {
        let until = Instant::now() + ASKING;
        let (mut found, first) = (Vec::new(), self.next);
        for turn in 0..tasks.len() {
            let placement = &tasks[(first + turn) % tasks.len()].placement;
            self.next = first + turn + 1;
            // One that ends meanwhile holds none.
            let path = format!("/proc/{}/fd/{LOCKS}", placement.child().pid());
            let seen = holders(&path, 2 * MOST_INSIDE).unwrap_or_default();
            // Locks of open file descriptions, which an account of the host may have, are shown everywhere.
            let locks = seen.into_iter().filter(|pid| *pid > 0).count();
            if locks > MOST_INSIDE {
                found.push(Holder { group: placement.group.name().to_owned(), locks });
            }
            if Instant::now() >= until {
                break;
            }
        }
        found
    }
}

/// At least as many as there are locks, on a kernel that tells. Objects of the same size and kind are among them.
fn objects() -> Option<usize> {
    let text = file::text("/sys/kernel/slab/file_lock_cache/total_objects").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Whose the first locks of a list are.
fn holders(list: &str, most: usize) -> io::Result<Vec<i32>> {
    let lines = BufReader::new(File::open(list)?).lines().take(most);
    lines.map(|line| Ok(holder(&line?).unwrap_or(0))).collect()
}

/// The process in a line such as `7: POSIX  ADVISORY  WRITE 4711 00:2f:12 0 EOF`. Of a lock that is waited for, the line has an arrow too.
fn holder(line: &str) -> Option<i32> {
    line.split_whitespace().skip(1).filter(|word| *word != "->").nth(3)?.parse().ok()
}

/// How many each group holds.
fn count(pids: &[i32], members: &HashMap<i32, String>) -> Vec<Holder> {
    let mut held: HashMap<&String, usize> = HashMap::new();
    for group in pids.iter().filter_map(|pid| members.get(pid)) {
        *held.entry(group).or_default() += 1;
    }
    held.into_iter().map(|(group, locks)| Holder { group: group.clone(), locks }).collect()
}

/// Those that hold most, until the others hold no more than half of `most` together. A task that holds a few, a sixteenth, is killed only
/// where nobody holds more and tasks hold more than half together: there a crowd shares the work.
fn too_many(mut held: Vec<Holder>, most: usize) -> Vec<Holder> {
    held.sort_unstable_by_key(|holder| Reverse(holder.locks));
    let (all, mut killed) = (held.iter().map(|holder| holder.locks).sum::<usize>(), 0);
    let is_killed = |holder: &Holder| {
        let (is_first, left) = (killed == 0, all - killed);
        killed += holder.locks;
        if holder.locks > most / 16 { is_first || left > most / 2 } else { is_first && left > most / 2 }
    };
    held.into_iter().take_while(is_killed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(counts: &[usize]) -> Vec<Holder> {
        counts.iter().map(|locks| Holder { group: String::new(), locks: *locks }).collect()
    }

    fn killed(counts: &[usize]) -> Vec<usize> {
        too_many(held(counts), 1000).iter().map(|holder| holder.locks).collect()
    }

    #[test]
    fn a_line_names_the_process() {
        assert_eq!(holder("1: POSIX  ADVISORY  WRITE 4711 00:2f:12 0 EOF"), Some(4711));
        assert_eq!(holder("16384: FLOCK  ADVISORY  READ  7 fe:00:5597442 0 EOF"), Some(7));
        assert_eq!(holder("2:  -> POSIX  ADVISORY  WRITE 4712 <none>:0 2 2"), Some(4712));
        assert_eq!(holder("3: OFDLCK ADVISORY  READ -1 fe:00:5335771 203 203"), Some(-1));
        assert_eq!(holder("4: LEASE  ACTIVE    WRITE 9 00:30:2 0 EOF"), Some(9));
        assert_eq!((holder("5: POSIX  ADVISORY"), holder("")), (None, None));
    }

    #[test]
    fn the_kernels_own_list_is_read() {
        let locked = tempfile::tempfile().unwrap();
        locked.lock().unwrap();
        let pids = holders("/proc/locks", MOST).unwrap();
        assert!(pids.contains(&(std::process::id() as i32)), "{pids:?}");
        assert_eq!(holders("/proc/locks", 1).unwrap().len(), 1);
        assert!(objects().is_none_or(|objects| objects > 0));
    }

    #[test]
    fn locks_are_counted_by_the_group_of_their_process() {
        let members = HashMap::from([(10, "a".to_owned()), (11, "a".to_owned()), (12, "b".to_owned())]);
        let mut counted = count(&[10, 99, 11, -1, 12, 0, 10], &members);
        counted.sort_unstable_by_key(|holder| holder.locks);
        let found: Vec<_> = counted.iter().map(|holder| (holder.group.as_str(), holder.locks)).collect();
        assert_eq!(found, [("b", 1), ("a", 3)]);
    }

    #[test]
    fn whoever_holds_most_is_killed_and_nobody_who_holds_a_few_beside() {
        assert_eq!(killed(&[3, 990, 5]), [990]);
        // Most of them are others', of an account of the host.
        assert_eq!(killed(&[300, 20]), [300]);
        assert!(killed(&[60, 20]).is_empty());
        assert!(killed(&[]).is_empty());
        // Several share the work.
        assert_eq!(killed(&[300, 2, 330, 310]), [330, 310]);
        assert_eq!(killed(&[60; 10]), [60]);
    }
}
