//! Random interleavings of requests, failures and clients that hang up, and the cases that have names.

use super::*;
use fastrand::Rng;
use std::collections::BTreeSet;

/// A machine whose effects are carried out by hand, with a clock of its own.
struct Bench {
    machine: Machine,
    now: Instant,
    /// Effects that have not ended.
    running: Vec<Effect>,
    /// Requests that wait for an answer.
    waiting: BTreeSet<Waiter>,
    /// Requests that have a model.
    leases: Vec<Id>,
    answers: BTreeMap<Waiter, Answer>,
    of: BTreeMap<Waiter, Id>,
    next: Waiter,
    bytes: BTreeMap<Id, u64>,
}

impl Bench {
    fn new(models: usize, bytes: u64, sizes: &[(u64, bool)]) -> Bench {
        let now = Instant::now();
        let limits = ModelLimits { models, bytes, made: 0 };
        let mut machine = Machine::new(limits, Duration::from_secs(1));
        let sizes = sizes.iter().enumerate().map(|(at, (bytes, pinned))| {
            (machine.add(format!("m{at}"), *pinned, Some(Duration::from_secs(60)), now), *bytes)
        });
        let bytes = sizes.collect();
        Bench {
            machine,
            now,
            running: Vec::new(),
            waiting: BTreeSet::new(),
            leases: Vec::new(),
            answers: BTreeMap::new(),
            of: BTreeMap::new(),
            next: 0,
            bytes,
        }
    }

    fn step(&mut self, event: Event) {
        for effect in self.machine.step(event, self.now) {
            match effect {
                Effect::Answer(waiter, answer) => {
                    // A client that hung up gets none, and its lease is given back.
                    assert!(self.waiting.remove(&waiter), "{waiter} was answered and did not wait");
                    if answer == Answer::Leased {
                        self.leases.push(self.of[&waiter]);
                    }
                    self.answers.insert(waiter, answer);
                }
                Effect::Measure(_) | Effect::Load(_) | Effect::Unload(_) => {
                    self.running.push(effect);
                }
                Effect::Again(..) | Effect::Reloaded(_) | Effect::Slow(_) => {}
            }
        }
        self.check();
    }

    fn ask(&mut self, id: Id, event: fn(Id, Waiter) -> Event) -> Waiter {
        let waiter = self.next;
        self.next += 1;
        self.waiting.insert(waiter);
        self.of.insert(waiter, id);
        self.step(event(id, waiter));
        waiter
    }

    fn lease(&mut self, id: Id) -> Waiter {
        self.ask(id, Event::Lease)
    }

    fn unload(&mut self, id: Id) -> Waiter {
        self.ask(id, Event::Unload)
    }

    fn hang_up(&mut self, waiter: Waiter) {
        self.waiting.remove(&waiter);
        self.step(Event::GaveUp(self.of[&waiter], waiter));
    }

    /// Ends a running effect, well or badly.
    fn end(&mut self, at: usize, well: bool) {
        let why = || "the disk is on fire".to_owned();
        let event = match self.running.swap_remove(at) {
            Effect::Measure(id) => {
                Event::Measured(id, if well { Ok(self.bytes[&id]) } else { Err(why()) })
            }
            Effect::Load(id) => Event::Loaded(id, if well { Ok(()) } else { Err(why()) }),
            Effect::Unload(id) => Event::Unloaded(id),
            other => panic!("{other:?} has no end"),
        };
        self.step(event);
    }

    fn end_lease(&mut self, at: usize) {
        let id = self.leases.swap_remove(at);
        self.step(Event::Left(id));
    }

    /// Ends all effects and all requests.
    fn settle(&mut self) {
        while !self.running.is_empty() || !self.leases.is_empty() {
            while !self.running.is_empty() {
                self.end(0, true);
            }
            while !self.leases.is_empty() {
                self.end_lease(0);
            }
        }
    }

    fn phase(&self, id: Id) -> Phase {
        self.machine.get(id).unwrap().phase.clone()
    }

    /// What holds after every event.
    fn check(&self) {
        let machine = &self.machine;
        let loading = machine.load.filter(|load| matches!(load.stage, Stage::Loading(_)));
        let loading = loading.map(|load| match load.stage {
            Stage::Loading(bytes) => bytes,
            _ => 0,
        });
        let held = machine.models.values().filter(|model| model.phase.is_loaded());
        let held: Vec<u64> = held.map(|model| model.bytes).chain(loading).collect();
        assert!(held.len() <= machine.limits.models, "{machine:?}");
        assert!(held.iter().sum::<u64>() <= machine.limits.bytes, "{machine:?}");
        for (id, model) in &machine.models {
            let leases = self.leases.iter().filter(|one| *one == id).count();
            let in_memory = matches!(model.phase, Phase::Loaded | Phase::Leaving);
            assert!(leases == 0 || in_memory, "{model:?} has {leases} leases");
            assert!(model.phase != Phase::Leaving || model.leases > 0, "{model:?} does not go");
            let loads = machine.queue.iter().filter(|one| *one == id).count()
                + usize::from(machine.load.is_some_and(|load| load.id == *id));
            assert_eq!(loads, usize::from(model.phase == Phase::Loading), "{model:?}");
            let moves = self.running.iter().filter(|effect| **effect == Effect::Unload(*id));
            assert_eq!(moves.count(), usize::from(model.phase == Phase::Unloading), "{model:?}");
            let at_rest = matches!(model.phase, Phase::Loaded | Phase::Unloaded(_));
            assert!(!at_rest || model.waiting.is_empty(), "{model:?} leaves requests waiting");
            assert!(!at_rest || model.releasing.is_empty(), "{model:?} leaves requests waiting");
        }
    }
}

#[test]
fn no_interleaving_leaves_a_model_that_cannot_be_used() {
    for seed in 0..4000 {
        let mut rng = Rng::with_seed(seed);
        let sizes: Vec<(u64, bool)> =
            (0..rng.u64(1..5)).map(|at| (rng.u64(1..5), at == 0 && rng.u8(..4) == 0)).collect();
        let mut bench = Bench::new(rng.usize(1..4), rng.u64(4..10), &sizes);
        let ids: Vec<Id> = bench.bytes.keys().copied().collect();
        let mut removed = BTreeSet::new();
        for _ in 0..rng.usize(1..60) {
            let id = ids[rng.usize(..ids.len())];
            match rng.u8(..13) {
                0..=2 => drop(bench.lease(id)),
                3 if !sizes[id as usize].1 => drop(bench.unload(id)),
                4 => {
                    let waiting: Vec<Waiter> = bench.waiting.iter().copied().collect();
                    if !waiting.is_empty() {
                        bench.hang_up(waiting[rng.usize(..waiting.len())]);
                    }
                }
                5..=8 if !bench.running.is_empty() => {
                    bench.end(rng.usize(..bench.running.len()), rng.u8(..6) > 0);
                }
                9 if !bench.leases.is_empty() => bench.end_lease(rng.usize(..bench.leases.len())),
                10 => bench.step(Event::Failed(id, "its step failed".into())),
                11 if !sizes[id as usize].1 => {
                    let event = match removed.remove(&id) {
                        true => Event::Restore(id),
                        false => {
                            removed.insert(id);
                            Event::Remove(id)
                        }
                    };
                    bench.step(event);
                }
                _ => {
                    bench.now += Duration::from_millis(rng.u64(1..90_000));
                    bench.step(Event::Look);
                }
            }
        }
        bench.settle();
        assert!(bench.waiting.is_empty(), "seed {seed}: {:?} wait for ever", bench.waiting);
        // After its wait a failed model is loaded again, and each one can be used or says why not.
        bench.now += Duration::from_secs(1000);
        bench.step(Event::Look);
        bench.settle();
        for id in ids {
            let waiter = bench.lease(id);
            bench.settle();
            let given = &bench.answers[&waiter];
            let never = sizes[id as usize].0 > bench.machine.limits.bytes
                || sizes.iter().any(|(_, pinned)| *pinned);
            match given {
                Answer::Leased => assert!(!removed.contains(&id), "seed {seed}"),
                Answer::Removed => assert!(removed.contains(&id), "seed {seed}"),
                Answer::CannotLoad(_) | Answer::Later(..) => {
                    assert!(never, "seed {seed}: {given:?}");
                }
                Answer::Unloaded => panic!("seed {seed}: it was to be loaded"),
            }
            let waiter = bench.unload(id);
            bench.settle();
            assert_eq!(bench.answers[&waiter], Answer::Unloaded, "seed {seed}");
        }
    }
}

#[test]
fn a_client_that_hangs_up_on_unload_blocks_no_load() {
    let mut bench = Bench::new(1, 10, &[(1, false), (1, false)]);
    bench.lease(0);
    bench.end(0, true);
    bench.end(0, true);
    // Its request runs while a client asks to unload it, and goes.
    let unload = bench.unload(0);
    assert_eq!(bench.phase(0), Phase::Leaving);
    bench.hang_up(unload);
    let other = bench.lease(1);
    bench.end(0, true);
    bench.end_lease(0);
    assert_eq!(bench.phase(0), Phase::Unloading);
    bench.end(0, true);
    bench.end(0, true);
    assert_eq!(bench.answers[&other], Answer::Leased);
}

#[test]
fn a_load_goes_on_without_the_client_that_asked_for_it() {
    let mut bench = Bench::new(1, 10, &[(1, false)]);
    let load = bench.lease(0);
    bench.hang_up(load);
    bench.settle();
    assert_eq!(bench.phase(0), Phase::Loaded);
}

#[test]
fn unload_during_a_load_serves_what_waits_and_then_unloads() {
    let mut bench = Bench::new(1, 10, &[(1, false)]);
    let load = bench.lease(0);
    bench.end(0, true);
    let unload = bench.unload(0);
    bench.end(0, true);
    assert_eq!((&bench.answers[&load], bench.phase(0)), (&Answer::Leased, Phase::Leaving));
    assert!(!bench.answers.contains_key(&unload), "it is still loaded");
    // A request that comes now waits until it is loaded again.
    let late = bench.lease(0);
    bench.end_lease(0);
    bench.end(0, true);
    assert_eq!(bench.answers[&unload], Answer::Unloaded);
    assert_eq!(bench.phase(0), Phase::Loading);
    bench.end(0, true);
    bench.end(0, true);
    assert_eq!((&bench.answers[&late], bench.phase(0)), (&Answer::Leased, Phase::Loaded));

    // Without a request that waits it goes as soon as it is loaded.
    bench.settle();
    bench.unload(0);
    bench.settle();
    let load = bench.lease(0);
    bench.hang_up(load);
    let unload = bench.unload(0);
    bench.settle();
    assert_eq!(
        (&bench.answers[&unload], bench.phase(0)),
        (&Answer::Unloaded, Phase::Unloaded(None))
    );
}

#[test]
fn a_removed_model_leaves_memory_and_is_not_loaded_again() {
    let mut bench = Bench::new(1, 10, &[(1, false), (1, false)]);
    bench.lease(0);
    bench.end(0, true);
    bench.end(0, true);
    bench.step(Event::Remove(0));
    let waits = bench.lease(0);
    assert_eq!(bench.answers[&waits], Answer::Removed);
    // It still counts until its requests have ended.
    let other = bench.lease(1);
    bench.end(0, true);
    assert!(bench.running.is_empty() && !bench.answers.contains_key(&other));
    bench.settle();
    assert_eq!(bench.answers[&other], Answer::Leased);
    bench.step(Event::Restore(0));
    let again = bench.lease(0);
    bench.settle();
    assert_eq!(bench.answers[&again], Answer::Leased);
}

#[test]
fn an_idle_model_makes_room_where_another_does_not_leave() {
    let mut bench = Bench::new(2, 10, &[(1, false), (1, false), (1, false)]);
    for id in [0, 1] {
        bench.lease(id);
        while !bench.running.is_empty() {
            bench.end(0, true);
        }
    }
    bench.unload(0);
    bench.lease(2);
    bench.end(0, true);
    // The requests of both run; then only those of the leaving one.
    let at = bench.leases.iter().position(|id| *id == 1).unwrap();
    bench.end_lease(at);
    assert_eq!(bench.phase(1), Phase::Loaded, "the leaving one may be gone soon");
    bench.now += PATIENCE;
    bench.step(Event::Look);
    assert_eq!((bench.phase(0), bench.phase(1)), (Phase::Leaving, Phase::Unloading));
}

#[test]
fn slow_transitions_are_reported_once_and_while_they_last() {
    let mut bench = Bench::new(1, 10, &[(1, false), (1, false)]);
    bench.lease(0);
    assert!(bench.machine.slow(bench.now).is_empty());
    let slow = |bench: &Bench| {
        let all = bench.machine.slow(bench.now);
        all.into_iter().map(|one| (one.id, one.what.word(), one.requests)).collect::<Vec<_>>()
    };
    bench.now += SLOW;
    assert_eq!(slow(&bench), [(0, "loading", 1)]);
    let reports = |bench: &mut Bench| {
        let effects = bench.machine.step(Event::Look, bench.now);
        effects.iter().filter(|effect| matches!(effect, Effect::Slow(_))).count()
    };
    assert_eq!((reports(&mut bench), reports(&mut bench)), (1, 0));
    bench.end(0, true);
    bench.end(0, true);
    assert!(slow(&bench).is_empty());
    bench.lease(1);
    bench.end(0, true);
    bench.now += SLOW;
    assert_eq!(slow(&bench), [(1, "waiting_for_room", 1), (0, "ending_requests", 1)]);
    bench.end_lease(0);
    bench.now += SLOW;
    assert_eq!(slow(&bench), [(1, "waiting_for_room", 1), (0, "unloading", 0)]);
}

#[test]
fn a_failed_model_is_loaded_again_after_a_time_that_grows() {
    let mut bench = Bench::new(1, 10, &[(1, false)]);
    bench.lease(0);
    bench.settle();
    bench.step(Event::Failed(0, "its step failed".into()));
    bench.settle();
    let early = bench.lease(0);
    assert!(matches!(&bench.answers[&early], Answer::Later(why, _) if why == "its step failed"));
    bench.now += Duration::from_secs(1);
    bench.step(Event::Look);
    bench.end(0, false);
    // Its next attempt is later.
    bench.now += Duration::from_secs(1);
    bench.step(Event::Look);
    assert!(bench.running.is_empty());
    bench.now += Duration::from_secs(1);
    bench.step(Event::Look);
    bench.settle();
    assert_eq!(bench.phase(0), Phase::Loaded);
    assert_eq!(bench.machine.get(0).unwrap().failed, None);
}
