//! What one user may take of the server, so that the others do not notice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::ApiError;
use crate::config;
use crate::task::units::human_bytes;

/// A flood is recorded once in this time.
const TOLD: Duration = Duration::from_secs(1);
/// Users whose bucket is full again are forgotten once there are this many.
const REMEMBERED: usize = 1024;

/// Counts and rates, per user and in all.
pub struct Quotas {
    limits: config::Quota,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: usize,
    users: HashMap<String, User>,
}

struct User {
    running: usize,
    streams: usize,
    lists: usize,
    unread: usize,
    tokens: f64,
    filled_at: Instant,
    /// When a refusal was last recorded, and how many were not since.
    told_at: Option<Instant>,
    untold: u64,
}

/// Lists of one user that are made or wait to be: one thread makes them all, one after the other.
const LISTS: usize = 8;
/// What a stream holds whose reader has stopped reading. Other answers that are not read may hold as much in all as all streams.
const STREAM: usize = 128 << 10;

/// Something taken, given back when dropped.
pub struct Taken {
    quotas: Arc<Quotas>,
    user: String,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Task,
    Stream,
    List,
    /// Of so many bytes.
    Answer(usize),
}

impl Quotas {
    /// Nothing is taken yet.
    pub fn new(limits: config::Quota) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    /// Counts one request against the user's rate.
    pub fn request(&self, user: &str) -> Result<(), ApiError> {
        let (rate, burst) = (f64::from(self.limits.requests_per_second), f64::from(self.limits.burst));
        let mut state = self.state();
        let user = state.user(user, burst);
        let now = Instant::now();
        user.tokens = burst.min(user.tokens + rate * now.duration_since(user.filled_at).as_secs_f64());
        user.filled_at = now;
        if user.tokens < 1.0 {
            let told = user.told_at.is_some_and(|at| now.duration_since(at) < TOLD);
            if told {
                user.untold += 1;
            } else {
                user.told_at = Some(now);
            }
            let untold = if told { 0 } else { std::mem::take(&mut user.untold) };
            let before =
                if untold > 0 { format!(" ({untold} more were refused since the last record)") } else { String::new() };
            let message = format!("more than {rate} requests per second; wait a moment and try again{before}");
            return Err(ApiError::TooOften { message, told });
        }
        user.tokens -= 1.0;
        Ok(())
    }

    /// Takes a place for a running task.
    pub fn task(self: &Arc<Self>, name: &str) -> Result<Taken, ApiError> {
        let limits = &self.limits;
        let mut state = self.state();
        if state.running >= limits.running {
            return Err(ApiError::Exhausted(format!(
                "the server runs {} tasks, which is its limit; wait for one to end",
                limits.running
            )));
        }
        let user = state.user(name, f64::from(limits.burst));
        if user.running >= limits.running_per_user {
            return Err(ApiError::Exhausted(format!(
                "you run {} tasks, which is your limit; wait for one to end or stop one",
                limits.running_per_user
            )));
        }
        user.running += 1;
        state.running += 1;
        Ok(self.taken(name, Kind::Task))
    }

    /// Takes a place for an open stream, or for another call that lasts until its client is done with it.
    pub fn stream(self: &Arc<Self>, name: &str) -> Result<Taken, ApiError> {
        let most = self.limits.streams_per_user;
        let mut state = self.state();
        let user = state.user(name, f64::from(self.limits.burst));
        if user.streams >= most {
            return Err(ApiError::Exhausted(format!(
                "you have {most} streams, waits and watches open, which is your limit; close one"
            )));
        }
        user.streams += 1;
        Ok(self.taken(name, Kind::Stream))
    }

    /// Takes a place for a list that is being made.
    pub fn list(self: &Arc<Self>, name: &str) -> Result<Taken, ApiError> {
        let mut state = self.state();
        let user = state.user(name, f64::from(self.limits.burst));
        if user.lists >= LISTS {
            return Err(ApiError::Exhausted(format!(
                "{LISTS} lists are being made for you; wait for one and try again"
            )));
        }
        user.lists += 1;
        Ok(self.taken(name, Kind::List))
    }

    /// Counts an answer, until it is gone. One that may be withheld is, while too much was not read.
    pub fn answer(self: &Arc<Self>, name: &str, bytes: usize, may_withhold: bool) -> Result<Taken, ApiError> {
        let most = self.limits.streams_per_user.saturating_mul(STREAM);
        let mut state = self.state();
        let user = state.user(name, f64::from(self.limits.burst));
        if may_withhold && user.unread >= most {
            return Err(ApiError::Exhausted(format!(
                "{} of answers to you were not read, which is your limit; read them or close their connections",
                human_bytes(most as u64)
            )));
        }
        user.unread += bytes;
        Ok(self.taken(name, Kind::Answer(bytes)))
    }

    /// Refuses a start when the user's stored output is at its limit.
    pub fn stored(&self, bytes: u64) -> Result<(), ApiError> {
        let most = self.limits.stored_output_per_user;
        if bytes < most {
            return Ok(());
        }
        Err(ApiError::Exhausted(format!(
            "your tasks' stored output is {}, and {} is your limit; it shrinks as old tasks are forgotten",
            human_bytes(bytes),
            human_bytes(most)
        )))
    }

    fn taken(self: &Arc<Self>, user: &str, kind: Kind) -> Taken {
        Taken { quotas: Arc::clone(self), user: user.to_owned(), kind }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn user(&mut self, name: &str, burst: f64) -> &mut User {
        if self.users.len() >= REMEMBERED && !self.users.contains_key(name) {
            self.users.retain(|_, user| user.has_taken() || user.filled_at.elapsed().as_secs() < 60);
        }
        let fresh = || User {
            running: 0,
            streams: 0,
            lists: 0,
            unread: 0,
            tokens: burst,
            filled_at: Instant::now(),
            told_at: None,
            untold: 0,
        };
        self.users.entry(name.to_owned()).or_insert_with(fresh)
    }
}

impl User {
    fn has_taken(&self) -> bool {
        self.running > 0 || self.streams > 0 || self.lists > 0 || self.unread > 0
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.quotas.state();
        if matches!(self.kind, Kind::Task) {
            state.running -= 1;
        }
        if let Some(user) = state.users.get_mut(&self.user) {
            match self.kind {
                Kind::Task => user.running -= 1,
                Kind::Stream => user.streams -= 1,
                Kind::List => user.lists -= 1,
                Kind::Answer(bytes) => user.unread -= bytes,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    fn quotas() -> Arc<Quotas> {
        Quotas::new(config::Quota {
            running: 3,
            starting: 3,
            running_per_user: 2,
            stored_output_per_user: 10,
            requests_per_second: 1,
            burst: 5,
            streams_per_user: 1,
        })
    }

    #[test]
    fn one_users_tasks_leave_room_for_anothers() {
        let quotas = quotas();
        let mine = [quotas.task("a").ok(), quotas.task("a").ok()];
        assert!(mine.iter().all(Option::is_some));
        assert!(quotas.task("a").is_err(), "over the user's own limit");
        let theirs = quotas.task("b").ok();
        assert!(theirs.is_some());
        assert!(quotas.task("c").is_err(), "over the server's limit");
        drop(theirs);
        assert!(quotas.task("c").is_ok(), "given back");
    }

    #[test]
    fn a_flood_is_refused_and_the_others_are_not() {
        let quotas = quotas();
        let served = (0..100).filter(|_| quotas.request("a").is_ok()).count();
        // A second that this thread stood still has brought one more.
        assert!((5..=6).contains(&served), "{served} were served");
        let told = |user| matches!(quotas.request(user), Err(ApiError::TooOften { told: true, .. }));
        assert!((0..5).any(|_| told("a")), "a flood fills no log");
        assert!(quotas.request("b").is_ok());
    }

    #[test]
    fn streams_lists_and_stored_bytes_have_limits() {
        let quotas = quotas();
        let open = quotas.stream("a");
        assert!(open.is_ok() && quotas.stream("a").is_err() && quotas.stream("b").is_ok());
        assert!(quotas.stored(9).is_ok());
        let refused = Status::from(quotas.stored(3 << 29).unwrap_err()).message().to_owned();
        assert!(refused.contains("stored output is 1.5G, and 10B is your limit"), "{refused}");
        let lists: Vec<_> = (0..LISTS).map(|_| quotas.list("a").unwrap()).collect();
        assert!(quotas.list("a").is_err() && quotas.list("b").is_ok());
        drop(lists);
        assert!(quotas.list("a").is_ok());
    }

    #[test]
    fn answers_that_were_not_read_are_counted_and_then_only_those_that_did_something_are_given() {
        let quotas = quotas();
        let large = quotas.answer("a", 2 << 20, true);
        assert!(large.is_ok(), "one alone has room, whatever the limit");
        let refused = Status::from(quotas.answer("a", 1, true).err().unwrap()).message().to_owned();
        assert!(refused.starts_with("128K of answers to you were not read"), "{refused}");
        assert!(quotas.answer("a", 1, false).is_ok());
        assert!(quotas.stream("a").is_ok() && quotas.answer("b", 1, true).is_ok());
        drop(large);
        let almost = quotas.answer("a", STREAM - 1, true);
        let small = quotas.answer("a", 1, true);
        assert!(almost.is_ok() && small.is_ok() && quotas.answer("a", 1, true).is_err(), "small ones add up");
    }
}
