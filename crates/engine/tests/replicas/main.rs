//! Replicas behind one queue. The machines are made up, so that every host can run this: threads
//! are not pinned, and memory that cannot be bound is only warned of.

use arclight_engine::{
    BatchEntry, Counters, Engine, Error, Helpers, KvType, LoadOptions, ModelFile, Numa, Outputs,
    ReplicaOptions, Replicas, Request, RequestSummary, Sampler, SamplerParams, Speculation,
    Speculator, StopReason, Ticket,
};
use gguf::TensorType;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Rng, TinyModel};
use topology::Machine;
use topology::fake::FakeMachine;

mod disk;
mod guided;
mod hybrid;
mod idle;
mod loading;
mod predicting;
mod restart;
mod serving;
mod sparse;

fn file() -> Arc<ModelFile> {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| TinyModel::qwen3(TensorType::Q4_0).gguf());
    Arc::new(ModelFile::from_bytes("tiny", bytes.as_slice()))
}

fn options(sequences: usize) -> LoadOptions {
    LoadOptions {
        no_pin: true,
        context: Some(512),
        sequences: Some(sequences),
        step_tokens: Some(32),
        ..LoadOptions::default()
    }
}

fn one_node(cores: u32) -> Machine {
    FakeMachine::uniform(1, cores).machine().unwrap()
}

fn copies(replicas: usize) -> ReplicaOptions {
    // What a guess gains is no matter of tests.
    ReplicaOptions { replicas, always_speculate: true, ..ReplicaOptions::default() }
}

fn load(replicas: usize, sequences: usize) -> Replicas {
    let (machine, options) = (one_node(4), options(sequences));
    Replicas::load_on(&file(), &machine, &options, &copies(replicas), &mut |_| {}).unwrap()
}

fn prompt(len: usize, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(300) as u32).collect()
}

fn request(len: usize, seed: u64) -> Request {
    let sampler = match seed % 2 {
        0 => SamplerParams::greedy(),
        _ => SamplerParams {
            temperature: 1.5,
            repetition_penalty: 1.3,
            presence_penalty: 0.5,
            seed,
            ..SamplerParams::default()
        },
    };
    Request { sampler, limit: Some(12), end_tokens: vec![7], ..Request::new(prompt(len, seed)) }
}

/// What one engine answers, step by step.
fn alone(engine: &mut Engine, request: &Request) -> (Vec<u32>, StopReason) {
    let sequence = engine.new_sequence().unwrap();
    let mut sampler = Sampler::new(request.sampler.clone()).unwrap();
    sampler.observe_prompt(&request.prompt);
    let most = engine.limits().tokens;
    let (mut next, mut answer) = (request.prompt.clone(), Vec::new());
    let stopped = loop {
        let (before, last) = next.split_at((next.len() - 1) / most * most);
        for tokens in before.chunks(most) {
            engine.step(&[BatchEntry { sequence, tokens, outputs: Outputs::None }]).unwrap();
        }
        let entry = BatchEntry { sequence, tokens: last, outputs: Outputs::Last };
        let token = sampler.sample(engine.step(&[entry]).unwrap().row(0));
        if request.end_tokens.contains(&token) {
            break StopReason::EndToken(token);
        }
        answer.push(token);
        if request.limit == Some(answer.len()) {
            break StopReason::Limit;
        }
        next = vec![token];
    };
    engine.free(sequence).unwrap();
    (answer, stopped)
}

fn single() -> Engine {
    Engine::load_on(&file(), &one_node(1), &options(1), &mut |_| {}).unwrap()
}

/// A request that does not go on after its first token until it is told to.
fn held(answer: usize) -> (Request, Sender<()>, Receiver<u32>) {
    let ((go, wait), (told, began)) = (channel(), channel());
    let mut first = true;
    let stop = move |token| {
        if std::mem::take(&mut first) {
            told.send(token).unwrap();
            // An error is as good: the test is over.
            let _ = wait.recv();
        }
        false
    };
    let request = Request { end_tokens: Vec::new(), limit: Some(answer), ..request(5, 0) };
    (Request { stop: Some(Box::new(stop)), ..request }, go, began)
}

/// Submits a request and waits until it is held. What is dropped in the end lets it go.
fn hold(replicas: &Replicas, answer: usize) -> (Ticket, Sender<()>) {
    let (request, go, began) = held(answer);
    let ticket = replicas.submit(request).unwrap();
    began.recv().unwrap();
    (ticket, go)
}

/// Pages that are free, or as good as free.
fn usable(status: &arclight_engine::ReplicaStatus) -> usize {
    status.pages.free + status.pages.cached
}

fn serve(replicas: &Replicas, request: Request) -> RequestSummary {
    replicas.submit(request).unwrap().wait().unwrap().1
}

/// Holds a model's answers, alone, in company, from two replicas and with guesses, to those of a single engine.
fn answers_are_a_single_engine_s(file: &Arc<ModelFile>, kv: KvType) {
    let all = || {
        let sizes = [3, 40, 1, 100, 33, 64];
        let of = |(&len, seed)| Request { end_tokens: Vec::new(), ..request(len, seed) };
        sizes.iter().zip(0..).map(of).collect::<Vec<_>>()
    };
    let two = FakeMachine::uniform(2, 2).machine().unwrap();
    let options = |sequences| LoadOptions { kv: kv.into(), ..options(sequences) };
    let mut engine = Engine::load_on(file, &one_node(1), &options(1), &mut |_| {}).unwrap();
    let want: Vec<_> = all().iter().map(|r| alone(&mut engine, r).0).collect();
    let lookup = ReplicaOptions { speculation: Speculation::Lookup(4), ..copies(1) };
    let draft = Speculation::Draft(file.clone(), 3);
    let draft = ReplicaOptions { speculation: draft, ..copies(1) };
    let measured = ReplicaOptions { always_speculate: false, ..draft.clone() };
    for serving in [copies(1), copies(2), lookup, draft, measured] {
        let replicas = Replicas::load_on(file, &two, &options(3), &serving, &mut |_| {}).unwrap();
        // Twice: the second time prompts are found.
        for round in 0..2 {
            let tickets = replicas.submit_all(all()).unwrap();
            for (i, (ticket, want)) in tickets.into_iter().zip(&want).enumerate() {
                let what = format!("{serving:?}, request {i}, round {round}");
                assert_eq!(&ticket.wait().unwrap().0, want, "{what}");
            }
        }
        let counters = replicas.counters();
        assert!(counters.cached_tokens > 0, "{counters:?}");
        if matches!(serving.speculation, Speculation::Draft(..)) {
            // A copy of the model is always right.
            assert_eq!(counters.accepted_tokens, counters.drafted_tokens);
            assert!(counters.drafted_tokens > 0);
        }
    }
}

#[test]
fn every_replica_answers_as_a_single_engine_does() {
    let mut engine = single();
    // Prompts of one step and of several, and more requests than there is room for.
    let sizes = [3, 40, 1, 100, 33, 8, 64, 5, 250, 12, 31, 32];
    let all = || sizes.iter().zip(0..).map(|(&len, seed)| request(len, seed));
    let want: Vec<_> = all().map(|r| alone(&mut engine, &r)).collect();
    for (replicas, sequences) in [(1, 3), (3, 1), (2, 2)] {
        let replicas = load(replicas, sequences);
        let pages: Vec<usize> = replicas.status().iter().map(|s| s.pages.total).collect();
        let tickets = replicas.submit_all(all().collect()).unwrap();
        for (i, (ticket, want)) in tickets.into_iter().zip(&want).enumerate() {
            let (tokens, outcome) = ticket.wait().unwrap();
            assert_eq!((&tokens, outcome.stopped), (&want.0, want.1), "request {i}");
            let computed = outcome.timings.prompt_tokens + outcome.cached;
            assert_eq!((computed, outcome.tokens), (sizes[i], tokens.len()));
        }
        let status = replicas.status();
        assert_eq!(status.iter().map(|s| s.counters.served).sum::<u64>(), sizes.len() as u64);
        for (status, pages) in status.into_iter().zip(pages) {
            assert!(status.counters.served > 0, "{status:?}");
            let left = (status.running, status.waiting, status.outstanding, usable(&status));
            assert_eq!(left, (0, 0, 0, pages));
        }
    }
}

#[test]
fn a_replica_shares_the_model_over_the_nodes_of_its_part() {
    let machine = FakeMachine::uniform(4, 1).distance(0, 1, 12).distance(2, 3, 12);
    let machine = machine.machine().unwrap();
    let want = alone(&mut single(), &request(20, 2)).0;
    for numa in [Numa::Auto, Numa::Pipeline, Numa::Mirror, Numa::Interleave, Numa::Off] {
        let options = LoadOptions { numa, ..options(1) };
        let mut last = (0, 0);
        let mut told = |p: arclight_engine::LoadProgress| {
            assert!(p.done >= last.0 && p.done <= p.total);
            last = (p.done, p.total);
        };
        let replicas =
            Replicas::load_on(&file(), &machine, &options, &copies(2), &mut told).unwrap();
        assert!(last.0 > 0 && last.0 == last.1, "{last:?}");
        let nodes: Vec<String> = replicas.replicas().iter().map(|r| r.nodes.to_string()).collect();
        assert_eq!(nodes, ["0-1", "2-3"]);
        // At once: the first may not be served before the second is routed.
        let two = replicas.submit_all(vec![request(20, 2), request(20, 2)]).unwrap();
        let answers: Vec<_> = two.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
        assert_eq!(answers.iter().map(|a| a.1.replica).collect::<Vec<_>>(), [0, 1]);
        assert!(answers.iter().all(|a| a.0 == want), "{numa:?}");
    }
}

#[test]
fn what_the_threads_of_each_node_did_is_told() {
    let machine = FakeMachine::uniform(2, 2).machine().unwrap();
    let options = LoadOptions { stats: true, ..options(1) };
    let mut engine = Engine::load_on(&file(), &machine, &options, &mut |_| {}).unwrap();
    alone(&mut engine, &request(20, 2));
    let activity = engine.activity();
    let plan = engine.plan();
    assert_eq!(plan.groups.len(), 2);
    let read = |group| {
        let moved = activity.moved(plan, group);
        (moved.weights + moved.kv) as u64
    };
    let replicas = Replicas::load_on(&file(), &machine, &options, &copies(1), &mut |_| {}).unwrap();
    let begin = Instant::now();
    let groups = || replicas.status().remove(0).groups;
    assert_eq!(groups().len(), 2);
    assert!(groups().iter().all(|g| (g.read, g.busy) == (0, Duration::ZERO)), "{:?}", groups());
    serve(&replicas, request(20, 2));
    let groups = groups();
    assert_eq!(groups.iter().map(|g| g.read).collect::<Vec<_>>(), [read(0), read(1)]);
    assert!(groups[0].read > 0);
    // A prompt's tiles are the same however often it is taken.
    let tasks = |group: std::ops::Range<usize>| -> u64 {
        activity.threads[group].iter().map(|thread| thread.tasks.count).sum()
    };
    assert_eq!(groups.iter().map(|g| g.tasks).collect::<Vec<_>>(), [tasks(0..2), tasks(2..4)]);
    assert!(groups[0].tasks > 0 && groups.iter().all(|g| g.stolen_tasks <= g.tasks));
    for group in &groups {
        let nothing = [group.busy, group.local_waits, group.global_waits].contains(&Duration::ZERO);
        assert!(group.threads == 2 && group.node.is_some() && !nothing, "{group:?}");
    }
    let counters = replicas.counters();
    assert!(counters.step_time > Duration::ZERO);
    // Four threads are busy or wait, as long as steps last at most.
    let all: Duration = groups.iter().map(|g| g.busy + g.local_waits + g.global_waits).sum();
    assert!(all <= 4 * counters.step_time, "{all:?} in {:?}", counters.step_time);
    // A token is chosen between two steps, one model computes at a time, and nothing else is counted.
    assert!(counters.steps > 1 && counters.between_time > Duration::ZERO);
    assert!(counters.step_time + counters.between_time <= begin.elapsed());
    // Nor is the time between two requests.
    thread::sleep(Duration::from_millis(200));
    let begin = Instant::now();
    serve(&replicas, request(20, 1));
    let next = replicas.counters();
    let computing = |counters: &Counters| counters.step_time + counters.between_time;
    assert!(computing(&next) - computing(&counters) <= begin.elapsed());
}

#[test]
fn a_dropped_ticket_frees_what_it_had() {
    let replicas = load(1, 1);
    let pages = replicas.status()[0].pages.total;
    // One that runs, and one that waits behind it.
    let mut long = replicas.submit(Request { limit: None, ..request(40, 0) }).unwrap();
    long.next().unwrap().unwrap();
    let waits = replicas.submit(request(5, 1)).unwrap();
    drop(waits);
    assert_eq!(replicas.status()[0].waiting, 0);
    drop(long);
    let outcome = serve(&replicas, request(5, 2));
    assert!(outcome.tokens > 0);
    let status = replicas.status().remove(0);
    assert_eq!((status.counters.served, status.running, usable(&status)), (1, 0, pages));
}

#[test]
fn answers_end_for_the_reason_that_comes_first() {
    let replicas = load(1, 2);
    let base = || Request { sampler: SamplerParams::greedy(), ..Request::new(prompt(9, 4)) };
    let (free, full) = replicas.submit(base()).unwrap().wait().unwrap();
    // The last token of all is not computed any more.
    assert_eq!((full.stopped, full.tokens), (StopReason::Context, 512 + 1 - 9));
    let run = |request| replicas.submit(request).unwrap().wait().unwrap();
    let (tokens, outcome) = run(Request { limit: Some(0), ..base() });
    assert_eq!((tokens.len(), outcome.stopped), (0, StopReason::Limit));
    assert_eq!(run(Request { limit: Some(600), ..base() }).1.stopped, StopReason::Context);
    // The first token that is new after the second: before it nothing ends.
    let at = (2..).find(|&i| !free[..i].contains(&free[i])).unwrap();
    let (tokens, outcome) = run(Request { end_tokens: vec![free[at]], ..base() });
    assert_eq!((tokens.as_slice(), outcome.stopped), (&free[..at], StopReason::EndToken(free[at])));
    let last = free[at];
    let stop: arclight_engine::StopHook = Box::new(move |token| token == last);
    let (tokens, outcome) = run(Request { stop: Some(stop), ..base() });
    assert_eq!((tokens.as_slice(), outcome.stopped), (&free[..=at], StopReason::Interrupted));
}

#[test]
fn requests_that_cannot_be_served_are_refused_at_once() {
    let replicas = load(2, 1);
    let refuse = |request| replicas.submit(request).err().expect("an error").to_string();
    assert!(refuse(Request::new(vec![])).contains("prompt is empty"));
    assert!(refuse(Request::new(vec![1; 513])).contains("513 tokens"));
    assert!(refuse(Request::new(vec![1, 300])).contains("300 is outside of the vocabulary"));
    let sampler = SamplerParams { top_p: 0.0, ..SamplerParams::default() };
    assert!(refuse(Request { sampler, ..Request::new(vec![1]) }).contains("top_p"));
    assert!(replicas.status().iter().all(|s| s.counters.steps == 0));
}

#[test]
fn an_idle_replica_sleeps() {
    let replicas = load(3, 4);
    for turn in 1..=3 {
        assert_eq!(serve(&replicas, request(40, 1)).replica, 0);
        let status = replicas.status();
        // It may not have slept yet when the first request came.
        assert!(status[0].wake_ups <= turn, "{status:?}");
        assert!(status[1..].iter().all(|s| (s.wake_ups, s.counters.steps) == (0, 0)), "{status:?}");
    }
}

#[test]
fn a_session_returns_to_its_replica() {
    let replicas = load(3, 1);
    let session = |key| Request { affinity: Some(key), ..request(5, 0) };
    let (ticket, go) = hold(&replicas, 12);
    assert_eq!(serve(&replicas, session(8)).replica, 1);
    drop(go);
    assert_eq!(ticket.wait().unwrap().1.replica, 0);
    // The first replica is free again, and takes a new session, but not this one.
    assert_eq!(serve(&replicas, session(9)).replica, 0);
    assert_eq!(serve(&replicas, session(8)).replica, 1);
    // While its replica is taken for long, a session moves for good.
    let (ticket, go) = hold(&replicas, 400);
    let (second, second_go) = hold(&replicas, 400);
    assert_eq!(serve(&replicas, session(8)).replica, 2);
    drop((go, second_go));
    assert_eq!(ticket.wait().unwrap().1.replica, 0);
    assert_eq!(second.wait().unwrap().1.replica, 1);
    assert_eq!(serve(&replicas, session(8)).replica, 2);
}

#[test]
fn a_free_replica_takes_what_waits_for_a_busy_one() {
    let replicas = load(2, 1);
    let (first, first_go) = hold(&replicas, 20);
    let (second, second_go) = hold(&replicas, 400);
    // The first has less to do, so the third waits for it; but the second is free before.
    let session = || Request { affinity: Some(1), ..request(5, 0) };
    let third = replicas.submit(session()).unwrap();
    assert_eq!(replicas.status().iter().map(|s| s.waiting).collect::<Vec<_>>(), [1, 0]);
    drop(second_go);
    assert_eq!(third.wait().unwrap().1.replica, 1);
    drop(first_go);
    assert_eq!([first, second].map(|t| t.wait().unwrap().1.replica), [0, 1]);
    assert_eq!(serve(&replicas, session()).replica, 1);
}

#[test]
fn the_callers_node_decides_between_equals() {
    let machine = FakeMachine::uniform(3, 1).machine().unwrap();
    let replicas =
        Replicas::load_on(&file(), &machine, &options(1), &copies(3), &mut |_| {}).unwrap();
    let near = Some(topology::NodeId(2));
    assert_eq!(serve(&replicas, Request { near, ..request(5, 0) }).replica, 2);
}

#[test]
fn a_panic_costs_one_replica_and_hangs_nobody() {
    let replicas = load(2, 1);
    let (fatal, go, began) = held(12);
    let mut stop = fatal.stop.unwrap();
    let panics = move |token| {
        stop(token);
        panic!("told to")
    };
    let fatal = replicas.submit(Request { stop: Some(Box::new(panics)), ..request(5, 0) }).unwrap();
    began.recv().unwrap();
    let (other, other_go) = hold(&replicas, 400);
    // It waits for the replica that is about to fail, and moves to the other.
    let moved = replicas.submit(request(5, 0)).unwrap();
    assert_eq!(replicas.status()[0].waiting, 1);
    drop(go);
    let error = fatal.last().unwrap().unwrap_err().to_string();
    assert_eq!(error, "replica 0 is out of service: it panicked: told to");
    assert!(replicas.status()[0].failure.as_deref().unwrap().contains("told to"));
    drop(other_go);
    assert_eq!(other.wait().unwrap().1.replica, 1);
    assert_eq!(moved.wait().unwrap().1.replica, 1);
    // Without any left there is an error, for those who wait and those who come.
    let (fatal, go, began) = held(12);
    let mut stop = fatal.stop.unwrap();
    let panics = move |token| {
        stop(token);
        panic!("again")
    };
    let fatal = replicas.submit(Request { stop: Some(Box::new(panics)), ..request(5, 0) }).unwrap();
    began.recv().unwrap();
    let waits = replicas.submit(request(5, 0)).unwrap();
    drop(go);
    assert!(matches!(fatal.wait(), Err(Error::ReplicaFailed { replica: 1, .. })));
    assert!(matches!(waits.wait(), Err(Error::ReplicaFailed { .. })));
    assert!(matches!(replicas.submit(request(5, 0)), Err(Error::ReplicaFailed { .. })));
}

#[test]
fn the_end_is_told_and_draining_comes_before_it() {
    let replicas = load(2, 1);
    let tickets: Vec<Ticket> = (0..6).map(|s| replicas.submit(request(40, s)).unwrap()).collect();
    replicas.drain();
    tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));

    let replicas = load(1, 1);
    let (ticket, go) = hold(&replicas, 400);
    // Closing drops what waits, and so lets go what runs.
    let stop: arclight_engine::StopHook = Box::new(move |_| go.send(()).is_ok());
    let waits = replicas.submit(Request { stop: Some(stop), ..request(5, 0) }).unwrap();
    drop(replicas);
    assert!(matches!(waits.wait(), Err(Error::ReplicasClosed)));
    let (tokens, errors): (Vec<_>, Vec<_>) = ticket.partition(|t| t.is_ok());
    assert!(tokens.len() == 1 && matches!(errors[..], [Err(Error::ReplicasClosed)]));
}

fn refused(machine: &Machine, options: &LoadOptions, replicas: usize) -> Error {
    let loaded = Replicas::load_on(&file(), machine, options, &copies(replicas), &mut |_| {});
    loaded.err().expect("an error")
}

#[test]
fn one_replica_that_cannot_be_loaded_fails_all() {
    // Two layers: the three nodes of the first part are too many for a pipeline, the fourth is not.
    let fake = (0..3).fold(FakeMachine::empty(), |m, id| m.node(id, 1, 8)).node(3, 3, 8);
    let options = LoadOptions { numa: Numa::Pipeline, ..options(1) };
    let (file, machine) = (file(), fake.machine().unwrap());
    let error =
        Replicas::load_on(&file, &machine, &options, &copies(2), &mut |_| {}).err().unwrap();
    let error = error.to_string();
    let want = "replica 0 (cpus 0-2): a pipeline of 3 nodes needs as many layers";
    assert!(error.starts_with(want), "{error}");
    // The other's thread has ended, too.
    assert_eq!(Arc::strong_count(&file), 1);
}

#[test]
fn impossible_numbers_of_replicas_are_errors() {
    let error = refused(&one_node(4), &options(1), 5).to_string();
    assert!(error.contains("5 replicas: 4 usable cores make from 1 to 4"), "{error}");
    assert!(matches!(refused(&one_node(4), &options(1), 0), Error::Topology(_)));
    let error = refused(&one_node(4), &LoadOptions { sequences: Some(0), ..options(1) }, 2);
    assert!(matches!(error, Error::Zero(_)));
}

#[test]
fn a_node_must_have_room_for_all_its_replicas() {
    let root = std::env::temp_dir().join(format!("replicas-room-{}", std::process::id()));
    FakeMachine::uniform(1, 4).node(1, 4, 1).write(&root).unwrap();
    let machine = Machine::read_from(&root).unwrap();
    // 4 KiB of keys and values a token: 256 MiB and the weights for each, in 896 MiB.
    let small =
        LoadOptions { on_nodes: Some("1".parse().unwrap()), context: Some(1024), ..options(64) };
    let error = refused(&machine, &small, 4);
    // Without a context of their own they share what there is.
    let default = LoadOptions { context: None, ..small };
    let fits = Replicas::load_on(&file(), &machine, &default, &copies(4), &mut |_| {}).unwrap();
    let alone = Replicas::load_on(&file(), &machine, &default, &copies(1), &mut |_| {}).unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    let text = error.to_string();
    assert!(matches!(error, Error::ReplicasRoom { replicas: 4, .. }), "{text}");
    assert!(text.contains("memory node 1 has 896 MiB available"), "{text}");
    assert_eq!((fits.context(), alone.context()), (256, 1024));
}
