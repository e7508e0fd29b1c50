//! The queue without engines behind it.

use super::super::job::tests::job;
use super::*;
use crate::decode::Event;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use topology::NodeList;

fn queue(lanes: usize, slots: usize) -> Shared {
    bounded(lanes, slots, None)
}

fn bounded(lanes: usize, slots: usize, bound: Option<usize>) -> Shared {
    let pages = PageCounts::default();
    let seat = |_| Seat {
        nodes: NodeList::default(),
        threads: 2,
        slots,
        pages,
        groups: Vec::new(),
        experts: Arc::default(),
        company: Company::default(),
    };
    Shared::new((0..lanes).map(seat).collect(), bound)
}

impl Shared {
    fn submit_one(&self, job: Job) -> Result<u64, Error> {
        self.submit(vec![job]).map(|ids| ids[0])
    }

    fn report_steps(&self, me: usize, running: impl Iterator<Item = Left>, served: u64) {
        let done = Counters { steps: 1, served, ..Counters::default() };
        self.report(me, running, std::iter::empty(), PageCounts::default(), done);
    }
}

#[test]
fn a_full_queue_takes_no_more_and_part_of_nothing() {
    let queue = bounded(2, 2, Some(1));
    let some = |n| (0..n).map(|_| job(5, 5, None)).collect::<Vec<_>>();
    // Four can be begun at once, one may wait.
    assert!(matches!(queue.submit(some(6)), Err(Error::QueueFull { waiting: 0 })));
    queue.submit(some(4)).unwrap();
    queue.lock().take(0);
    queue.lock().take(1);
    queue.submit(some(1)).unwrap();
    assert!(matches!(queue.submit(some(1)), Err(Error::QueueFull { waiting: 1 })));
    queue.report_steps(0, std::iter::empty(), 2);
    assert_eq!(queue.lock().take(0).len(), 1);
    assert!(queue.submit(some(1)).is_ok());
}

#[test]
fn several_answers_take_several_slots_and_are_not_overtaken() {
    let queue = queue(1, 3);
    queue.submit_one(job(5, 5, None)).unwrap();
    assert_eq!(queue.lock().take(0).len(), 1);
    let mut three = job(5, 5, None);
    three.asked.answers.extend((0..2).flat_map(|_| job(5, 5, None).asked.answers));
    queue.submit_one(three).unwrap();
    queue.submit_one(job(5, 5, None)).unwrap();
    assert!(queue.lock().take(0).is_empty());
    assert_eq!(queue.status()[0].waiting, 4);
    queue.report_steps(0, std::iter::empty(), 1);
    let taken = queue.lock().take(0);
    assert_eq!(taken.iter().map(|job| job.asked.answers.len()).collect::<Vec<_>>(), [3]);
    assert_eq!(queue.status()[0].running, 3);
}

#[test]
fn the_end_of_an_answer_and_of_its_wait_are_noticed() {
    let queue = queue(1, 1);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    queue.on_release(Box::new(move || _ = counted.fetch_add(1, SeqCst)));
    let state = |queue: &Shared| {
        let Occupancy { running, waiting } = queue.occupancy();
        (running, waiting, calls.load(SeqCst))
    };
    let running = || [Left::default()].into_iter();
    queue.submit(vec![job(5, 5, None), job(5, 5, None), job(5, 5, None)]).unwrap();
    assert_eq!(state(&queue), (0, 3, 0));
    assert!(matches!(queue.next(0), Next::Begin(_, jobs) if jobs.len() == 1));
    assert_eq!(state(&queue), (1, 2, 1));
    // A step in which none ends.
    queue.report_steps(0, running(), 0);
    assert!(matches!(queue.next(0), Next::Begin(_, jobs) if jobs.is_empty()));
    assert_eq!(state(&queue), (1, 2, 1));
    queue.report_steps(0, std::iter::empty(), 1);
    assert_eq!(state(&queue), (0, 2, 2));
    let first = |state: &State| {
        let job = &state.waiting[0];
        (job.id, job.asked.answers[0].cancelled.clone())
    };
    let (id, cancelled) = first(&queue.lock());
    cancelled.store(true, SeqCst);
    queue.forget(id);
    assert_eq!(state(&queue), (0, 1, 3));
    queue.fail(0, "the test");
    assert_eq!(state(&queue), (0, 0, 4));
}

#[test]
fn who_waits_too_long_is_told() {
    let queue = queue(1, 1);
    let now = Instant::now();
    let (events, told) = async_channel::unbounded();
    let mut late = job(5, 5, None);
    late.asked.answers[0].events = events;
    late.asked.deadline = Some(now);
    queue.submit_one(late).unwrap();
    queue.submit_one(job(5, 5, None)).unwrap();
    let Next::Begin(_, jobs) = queue.next(0) else { panic!("it is open") };
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [2]);
    assert!(matches!(told.try_recv(), Ok(Event::Failed(Error::Deadline))));
}

#[test]
fn idle_time_is_when_nothing_waits_or_runs() {
    let queue = queue(1, 1);
    queue.ask_idle(0, Box::new(|_| ())).unwrap();
    queue.submit_one(job(5, 5, None)).unwrap();
    queue.submit_one(job(5, 5, None)).unwrap();
    for _ in 0..2 {
        let Next::Begin(tasks, jobs) = queue.next(0) else { panic!("requests wait") };
        assert_eq!((tasks.len(), jobs.len()), (0, 1));
        queue.report_steps(0, std::iter::empty(), 1);
    }
    assert!(queue.is_idle(0));
    let Next::Idle(_) = queue.next(0) else { panic!("nothing else is to be done") };
    queue.ask_idle(0, Box::new(|_| ())).unwrap();
    queue.close(Phase::Draining);
    assert!(matches!(queue.next(0), Next::End));
    assert!(queue.lock().lanes[0].idle_tasks.is_empty());
}

#[test]
fn priorities_come_first_and_clients_take_turns() {
    let queue = queue(1, 1);
    let of = |client, priority| {
        let mut job = Job { client, ..job(5, 5, None) };
        job.asked.priority = priority;
        job
    };
    for (client, priority) in [(1, 0), (1, 0), (1, 0), (2, 0), (1, 3)] {
        queue.submit_one(of(client, priority)).unwrap();
    }
    let waiting: Vec<u64> = queue.lock().waiting.iter().map(|job| job.id).collect();
    assert_eq!(waiting, [5, 1, 4, 2, 3]);
}

/// The replica of every request that waits.
fn lanes(queue: &Shared) -> Vec<usize> {
    queue.lock().waiting.iter().map(|job| job.lane).collect()
}

#[test]
fn a_session_that_has_not_run_yet_stays_together() {
    let queue = queue(2, 2);
    for key in [Some(1), Some(1), None] {
        queue.submit_one(job(10, 10, key)).unwrap();
    }
    assert_eq!(lanes(&queue), [0, 0, 1]);
}

#[test]
fn who_waits_behind_others_of_its_session_waits_for_them_too() {
    let queue = queue(2, 1);
    queue.submit_one(job(16, 9, Some(1))).unwrap();
    assert_eq!(queue.lock().take(0).len(), 1);
    queue.submit_one(job(16, 50, None)).unwrap();
    assert_eq!(queue.lock().take(1).len(), 1);
    // The first has 10 steps to go, the second after it another 15: its prompt is worth 10.
    for _ in 0..2 {
        queue.submit_one(job(160, 5, Some(1))).unwrap();
    }
    assert_eq!(lanes(&queue), [0, 0]);
    queue.report_steps(1, std::iter::empty(), 1);
    let taken: Vec<u64> = queue.lock().take(1).iter().map(|job| job.id).collect();
    assert_eq!(taken, [4]);
}

#[derive(Clone, Debug)]
enum Op {
    Submit { prompt: usize, left: usize, key: Option<u64> },
    Step { lane: usize },
    Forget { nth: usize },
    Fail { lane: usize },
}

fn any_op() -> impl Strategy<Value = Op> {
    let submit = (1usize..200, 1usize..12, prop::option::of(0u64..4))
        .prop_map(|(prompt, left, key)| Op::Submit { prompt, left, key });
    prop_oneof![
        6 => submit,
        8 => (0usize..3).prop_map(|lane| Op::Step { lane }),
        1 => (0usize..40).prop_map(|nth| Op::Forget { nth }),
        1 => (0usize..60).prop_map(|lane| Op::Fail { lane }),
    ]
}

/// Replicas without engines: what they run, and which of them sleep.
struct Model {
    shared: Shared,
    running: Vec<Vec<(u64, usize)>>, // id and tokens left
    asleep: Vec<bool>,
    ended: Vec<u64>,
}

impl Model {
    /// What a replica does between two waits: takes, computes a token of each, reports.
    fn step(&mut self, lane: usize) {
        let taken = self.shared.lock().take(lane);
        self.running[lane].extend(taken.iter().map(|job| (job.id, job.asked.answers[0].left)));
        self.asleep[lane] = self.running[lane].is_empty();
        self.running[lane].iter_mut().for_each(|r| r.1 -= 1);
        let ended = self.running[lane].extract_if(.., |r| r.1 == 0);
        self.ended.extend(ended.map(|r| r.0));
        let left = self.running[lane].iter().map(|r| Left { prompt: 0, answer: r.1 });
        self.shared.report_steps(lane, left, 0);
    }

    fn wake(&mut self) {
        let state = self.shared.lock();
        for job in &state.waiting {
            self.asleep[job.lane] = false;
        }
    }

    fn alive(&self, lane: usize) -> bool {
        self.shared.lock().lanes[lane].alive
    }
}

proptest! {
    /// Every request is served once or fails, none is forgotten, and who sleeps need not wake.
    #[test]
    fn requests_are_served_once_and_sleepers_miss_nothing(
        slots in 1usize..4,
        ops in prop::collection::vec(any_op(), 1..120),
    ) {
        const LANES: usize = 3;
        let shared = queue(LANES, slots);
        let running = vec![Vec::new(); LANES];
        let mut model = Model { shared, running, asleep: vec![false; LANES], ended: Vec::new() };
        let mut ids = Vec::new();
        let mut gone = Vec::new();
        for op in ops {
            match op {
                Op::Submit { prompt, left, key } => {
                    match model.shared.submit_one(job(prompt, left, key)) {
                        Ok(id) => ids.push(id),
                        Err(_) => prop_assert!((0..LANES).all(|lane| !model.alive(lane))),
                    }
                    model.wake();
                }
                Op::Step { lane } if model.alive(lane) => model.step(lane),
                Op::Forget { nth } => {
                    let id = model.shared.lock().waiting.get(nth).map(|job| job.id);
                    if let Some(id) = id {
                        let state = model.shared.lock();
                        let cancelled = state.waiting[nth].asked.answers[0].cancelled.clone();
                        cancelled.store(true, std::sync::atomic::Ordering::Relaxed);
                        drop(state);
                        model.shared.forget(id);
                        gone.push(id);
                    }
                }
                Op::Fail { lane } if lane < LANES && model.alive(lane) => {
                    gone.extend(model.running[lane].drain(..).map(|r| r.0));
                    let before: Vec<u64> = model.shared.lock().waiting.iter().map(|j| j.id).collect();
                    model.shared.fail(lane, "it was told to");
                    if model.shared.lock().waiting.is_empty() {
                        gone.extend(before);
                    }
                    model.asleep.fill(false);
                }
                Op::Step { .. } | Op::Fail { .. } => {}
            }
            for lane in 0..LANES {
                let mut state = model.shared.lock();
                if model.asleep[lane] && state.lanes[lane].alive {
                    prop_assert!(state.take(lane).is_empty(), "replica {} sleeps", lane);
                }
            }
        }
        for _ in 0..ids.len() * 12 {
            (0..LANES).filter(|&l| model.alive(l)).collect::<Vec<_>>().into_iter().for_each(|l| model.step(l));
        }
        prop_assert!(model.shared.lock().waiting.is_empty());
        model.ended.extend(gone);
        model.ended.sort_unstable();
        prop_assert_eq!(model.ended, ids);
    }
}
