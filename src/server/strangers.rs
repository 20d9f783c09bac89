//! Connections that have not shown a certificate yet: a pool of their own, so that those who never will keep out nobody but each other.
//!
//! Where the pool is full, the next one gets in all the same, and the address that has most of it loses its oldest. So a flood from few
//! addresses disconnects itself, and a client from another address keeps its place for as long as a handshake may take.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

/// The pool.
pub(super) struct Strangers {
    most: usize,
    state: Mutex<State>,
    /// Told whenever one is gone.
    left: Notify,
}

#[derive(Default)]
struct State {
    last: u64,
    /// Those that were told to go included: until they have gone they hold what they held.
    count: usize,
    /// By address and then by age: what is dropped tells its stranger to go.
    here: HashMap<IpAddr, BTreeMap<u64, oneshot::Sender<()>>>,
}

/// A connection of the pool, until it is dropped.
pub(super) struct Stranger {
    pool: Arc<Strangers>,
    address: IpAddr,
    number: u64,
    gone: oneshot::Receiver<()>,
}

impl Strangers {
    /// A pool of `most`.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default(), left: Notify::new() })
    }

    /// Lets one more in, as soon as another is out where there is no room. For one caller at a time.
    pub async fn enter(self: &Arc<Self>, address: IpAddr) -> Stranger {
        if self.is_full() {
            self.state().evict();
        }
        while self.is_full() {
            self.left.notified().await;
        }
        let (stays, gone) = oneshot::channel();
        let mut state = self.state();
        state.last += 1;
        state.count += 1;
        let number = state.last;
        state.here.entry(address).or_default().insert(number, stays);
        Stranger { pool: Arc::clone(self), address, number, gone }
    }

    fn is_full(&self) -> bool {
        self.state().count >= self.most
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The oldest of the address that has most; of two such addresses, the oldest of both.
    fn evict(&mut self) {
        let oldest = |those: &BTreeMap<u64, _>| those.keys().next().copied().unwrap_or(u64::MAX);
        let largest = self.here.iter().max_by_key(|(_, those)| (those.len(), std::cmp::Reverse(oldest(those))));
        if let Some((address, number)) = largest.map(|(address, those)| (*address, oldest(those))) {
            self.strike(address, number);
        }
    }

    /// One that was told to go is not there any more.
    fn strike(&mut self, address: IpAddr, number: u64) {
        let Some(those) = self.here.get_mut(&address) else { return };
        those.remove(&number);
        if those.is_empty() {
            self.here.remove(&address);
        }
    }
}

impl Stranger {
    /// Waits until it has to give way.
    pub async fn gives_way(&mut self) {
        // Nothing is ever sent: the other end is dropped.
        let _ = (&mut self.gone).await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.count -= 1;
        state.strike(self.address, self.number);
        drop(state);
        self.pool.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of these addresses, the oldest first: which of them had to go. At any time there were no more than the pool has room for.
    async fn gone(most: usize, addresses: &[u8]) -> Vec<usize> {
        let pool = Strangers::new(most);
        let gone = Arc::new(Mutex::new(Vec::new()));
        let mut strangers = tokio::task::JoinSet::new();
        for (at, last) in addresses.iter().enumerate() {
            let mut stranger = pool.enter([10, 0, 0, *last].into()).await;
            assert!(pool.state().count <= most);
            let gone = Arc::clone(&gone);
            strangers.spawn(async move {
                stranger.gives_way().await;
                gone.lock().unwrap().push(at);
            });
        }
        strangers.shutdown().await;
        assert!(pool.state().here.is_empty());
        assert_eq!(pool.state().count, 0);
        gone.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn the_largest_holder_loses_its_oldest() {
        assert_eq!(gone(4, &[1, 2, 2, 2, 2, 2]).await, [1, 2], "the first has waited longest, and has least");
    }

    #[tokio::test]
    async fn among_equals_the_oldest_goes() {
        assert_eq!(gone(2, &[1, 2, 3, 1]).await, [0, 1]);
    }
}
