//! Questions of the server's to the auditor, under way: a bounded number, each for a bounded time, and every one answered.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Nobody who asks in good faith has more under way.
const MOST: usize = 64;
/// A recovery waits for what it kills.
const PATIENCE: Duration = Duration::from_secs(60);

/// Those that wait for an answer.
#[derive(Default)]
pub struct Questions {
    /// By the number the auditor knows, which grows: the first has waited longest.
    waiting: BTreeMap<u64, (u64, Instant)>,
    last: u64,
}

impl Questions {
    /// One more, which the server knows as `seq`. Gives the number for the auditor, or none if there are too many.
    pub fn add(&mut self, seq: u64) -> Option<u64> {
        if self.waiting.len() >= MOST {
            return None;
        }
        self.last += 1;
        self.waiting.insert(self.last, (seq, Instant::now() + PATIENCE));
        Some(self.last)
    }

    /// The auditor has answered. The server's number, unless it was given up.
    pub fn take(&mut self, number: u64) -> Option<u64> {
        self.waiting.remove(&number).map(|(seq, _)| seq)
    }

    /// Until when the first is waited for.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|(_, (_, until))| *until)
    }

    /// Gives up those that have waited too long.
    pub fn overdue(&mut self) -> Vec<u64> {
        let now = Instant::now();
        let late = self.waiting.extract_if(.., |_, (_, until)| *until <= now);
        late.map(|(_, (seq, _))| seq).collect()
    }

    /// Gives up all.
    pub fn all(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waiting).into_values().map(|(seq, _)| seq).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_is_answered_once_or_given_up_and_there_are_not_too_many() {
        let mut questions = Questions::default();
        let numbers: Vec<u64> = (0..MOST as u64).filter_map(|seq| questions.add(1000 + seq)).collect();
        assert_eq!((numbers.len(), questions.add(7)), (MOST, None));
        assert_eq!((questions.take(numbers[5]), questions.take(numbers[5])), (Some(1005), None));
        assert!(questions.deadline().is_some() && questions.overdue().is_empty());
        assert!(questions.add(7).is_some());
        assert_eq!((questions.all().len(), questions.deadline()), (MOST, None));
    }
}
