//! Models on the same cores take turns.
//!
//! The threads of an engine are pinned and wait for each other many times a step. Where two engines have a core in
//! common and compute at the same time, each waits for a thread that is off its core because of the other: both take
//! several times as long as one after the other. So a step *claims* its CPUs, and so does a round of loading. Claims
//! that have a CPU in common are granted in the order in which they came; others do not wait for each other. Loading
//! delays a step by one round at most, and another model's step by one step.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use topology::CpuId;

/// Who computes on which cores; one for all models of a process.
#[derive(Default)]
pub struct CoreTurns {
    claims: Mutex<Claims>,
    freed: Condvar,
}

#[derive(Default)]
struct Claims {
    next: u64,
    granted: Vec<(u64, Cpus)>,
    waiting: VecDeque<(u64, Cpus)>, // by age
}

/// CPUs that are claimed together.
type Cpus = Arc<BTreeSet<CpuId>>;

impl fmt::Debug for CoreTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claims = self.claims();
        f.debug_struct("CoreTurns")
            .field("granted", &claims.granted.len())
            .field("waiting", &claims.waiting.len())
            .finish()
    }
}

impl CoreTurns {
    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cores of one engine, and the turns that it takes on them.
#[derive(Clone)]
pub(crate) struct Cores {
    turns: Arc<CoreTurns>,
    cpus: Cpus,
}

impl Cores {
    pub(crate) fn new(turns: &Arc<CoreTurns>, cpus: impl IntoIterator<Item = CpuId>) -> Cores {
        Cores { turns: turns.clone(), cpus: Arc::new(cpus.into_iter().collect()) }
    }

    /// Waits until the cores are free of others that asked before; they are this engine's until the turn is dropped.
    pub(crate) fn turn(&self) -> Turn<'_> {
        let mut claims = self.turns.claims();
        let id = claims.next;
        claims.next += 1;
        claims.waiting.push_back((id, self.cpus.clone()));
        let mut claims = self
            .turns
            .freed
            .wait_while(claims, |claims| {
                let meets = |(_, cpus): &(u64, Cpus)| !cpus.is_disjoint(&self.cpus);
                let before = claims.waiting.iter().take_while(|(other, _)| *other != id);
                claims.granted.iter().chain(before).any(meets)
            })
            .unwrap_or_else(PoisonError::into_inner);
        claims.waiting.retain(|(other, _)| *other != id);
        claims.granted.push((id, self.cpus.clone()));
        Turn { turns: &self.turns, id }
    }
}

/// The cores are this engine's until this is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a CoreTurns,
    id: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut claims = self.turns.claims();
        claims.granted.retain(|(other, _)| *other != self.id);
        let wake = !claims.waiting.is_empty();
        drop(claims);
        if wake {
            self.turns.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    fn cores(turns: &Arc<CoreTurns>, cpus: std::ops::Range<u32>) -> Cores {
        Cores::new(turns, cpus.map(CpuId))
    }

    /// Waits until so many claims wait.
    fn until_waiting(turns: &CoreTurns, count: usize) {
        while turns.claims().waiting.len() < count {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn turns_on_the_same_cores_are_granted_by_age() {
        let turns = Arc::<CoreTurns>::default();
        let (all, low, high) =
            (cores(&turns, 0..128), cores(&turns, 0..64), cores(&turns, 64..128));
        let (first, second) = (low.turn(), high.turn());
        let (told, heard) = channel();
        thread::scope(|scope| {
            let wait = |name, cores: &Cores| {
                let (told, cores) = (told.clone(), cores.clone());
                scope.spawn(move || {
                    let _turn = cores.turn();
                    told.send(name).unwrap();
                });
            };
            wait("all", &all);
            until_waiting(&turns, 1);
            wait("low", &low);
            until_waiting(&turns, 2);
            drop(first);
            // Who asked for all of them was first, and waits for the other half.
            assert!(heard.recv_timeout(Duration::from_millis(50)).is_err());
            drop(second);
            assert_eq!([heard.recv().unwrap(), heard.recv().unwrap()], ["all", "low"]);
        });
        assert_eq!(format!("{turns:?}"), "CoreTurns { granted: 0, waiting: 0 }");
    }

    #[test]
    fn other_cores_are_not_waited_for() {
        let turns = Arc::<CoreTurns>::default();
        let (low, high) = (cores(&turns, 0..2), cores(&turns, 2..4));
        let _first = low.turn();
        drop(high.turn());
        drop(high.turn());
    }
}
