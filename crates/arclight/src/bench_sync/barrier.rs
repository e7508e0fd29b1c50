//! How long one wait takes, and who crosses.

use super::pools::{batch, pool};
use super::report::{BarrierRow, Setup};
use super::summary::Summary;
use crate::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use threads::{Pool, Scope, View};
use topology::{Group, Layout};

/// Waits of which the crossings are counted.
const COUNTED: usize = 100;

/// Measures the barriers of a setup; `done` is told of every round.
pub(crate) fn measure(
    layout: &Layout,
    rounds: usize,
    done: &mut dyn FnMut(),
) -> Result<BarrierRow, Error> {
    let crossings = crossings(&layout.groups)?;
    // With one node all three are the same barrier.
    let several = layout.groups.len() > 1;
    let mut pools = vec![pool(&layout.groups, false)?];
    let alone = layout.groups.iter().all(|group| group.cpus.len() == 1);
    let mut tests = Vec::new();
    if !alone {
        tests.push((0, Scope::Local));
    }
    if several {
        pools.push(pool(&[all(&layout.groups)], false)?);
        tests.extend([(0, Scope::Global), (1, Scope::Global)]);
    }
    let mut series = Vec::new();
    for (i, scope) in tests {
        series.push((i, Series::new(&mut pools[i], scope)?));
    }
    for _ in 0..rounds {
        for (i, series) in &mut series {
            series.sample(&mut pools[*i])?;
        }
        done();
    }
    let mut summaries = series.into_iter().map(|(_, series)| Summary::new(series.samples));
    Ok(BarrierRow {
        setup: Setup::of(layout),
        local: if alone { None } else { summaries.next() },
        global: summaries.next(),
        flat: summaries.next(),
        crossings,
    })
}

/// All threads in one group, on the same CPUs.
fn all(groups: &[Group]) -> Group {
    Group { node: None, cpus: groups.iter().flat_map(|g| g.cpus.iter().copied()).collect() }
}

/// Batches of waits of one scope.
struct Series {
    scope: Scope,
    waits: usize,
    /// Microseconds for one wait.
    samples: Vec<f64>,
}

impl Series {
    /// Finds out how many waits make a batch, which warms up the pool too.
    fn new(pool: &mut Pool, scope: Scope) -> Result<Series, Error> {
        Ok(Series { scope, waits: batch(|waits| time(pool, scope, waits))?, samples: Vec::new() })
    }

    fn sample(&mut self, pool: &mut Pool) -> Result<(), Error> {
        let took = time(pool, self.scope, self.waits)?;
        self.samples.push(took.as_secs_f64() * 1e6 / self.waits as f64);
        Ok(())
    }
}

/// The time in which the slowest thread gets through these waits, one after the other.
fn time(pool: &mut Pool, scope: Scope, waits: usize) -> Result<Duration, Error> {
    let nanos = AtomicU64::new(0);
    pool.run(&|worker| {
        worker.switch(View::Groups);
        let start = Instant::now();
        for _ in 0..waits {
            worker.wait(scope);
        }
        nanos.fetch_max(start.elapsed().as_nanos() as u64, Relaxed);
    })
    .map_err(Error::refused)?;
    Ok(Duration::from_nanos(nanos.into_inner()))
}

/// How many threads touch the line that all groups share at one global wait: one of each group,
/// however many threads there are; none when there is only one group.
fn crossings(groups: &[Group]) -> Result<usize, Error> {
    // A pool of its own, because counting reads the clock.
    let mut pool = pool(groups, true)?;
    let wait = |pool: &mut Pool, scope| {
        pool.reset_stats();
        pool.run(&|worker| {
            worker.switch(View::Groups);
            (0..COUNTED).for_each(|_| worker.wait(scope));
        })
        .map_err(Error::refused)?;
        Ok::<usize, Error>(pool.stats().iter().map(|thread| thread.crossings as usize).sum())
    };
    // The switch is a global wait too.
    let switch = if groups.len() > 1 { groups.len() } else { 0 };
    let (local, global) = (wait(&mut pool, Scope::Local)?, wait(&mut pool, Scope::Global)?);
    if local != switch || global != switch * (COUNTED + 1) {
        return Err(Error::Refused(format!(
            "{COUNTED} waits of {} nodes crossed between them {global} times, of single nodes \
             {local} times: expected {} and {switch}",
            groups.len(),
            switch * (COUNTED + 1),
        )));
    }
    Ok(global / (COUNTED + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::CpuId;

    #[test]
    fn one_thread_of_each_node_crosses_at_a_global_wait_and_none_at_a_local_one() {
        for (sizes, expected) in [(&[3][..], 0), (&[2, 1], 2), (&[1, 3, 2], 3), (&[2, 1, 1, 3], 4)]
        {
            let group = |&n: &usize| Group { node: None, cpus: vec![CpuId(0); n] };
            let groups: Vec<Group> = sizes.iter().map(group).collect();
            // It also checks that local waits do not cross.
            assert_eq!(crossings(&groups).unwrap(), expected, "{sizes:?}");
        }
    }
}
