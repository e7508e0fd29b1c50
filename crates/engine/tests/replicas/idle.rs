//! What is done with an engine in idle time, and what is left of it.

use super::*;
use arclight_engine::{Group, KvSize, Phase};

/// Has the engine do something in idle time, and gives what comes of it.
pub(super) fn idle<T: Send + 'static>(
    replicas: &Replicas,
    what: impl FnOnce(&mut Engine) -> T + Send + 'static,
) -> T {
    let (told, heard) = channel();
    replicas.idle_time(0).ask(move |engine| told.send(what(engine)).unwrap()).unwrap();
    heard.recv().unwrap()
}

#[test]
fn requests_go_first() {
    let replicas = load(1, 2);
    let (order, events) = channel();
    let (first, go) = hold(&replicas, 40);
    let told = order.clone();
    replicas.idle_time(0).ask(move |_| told.send("idle").unwrap()).unwrap();
    let stop = move |_| order.send("answer").is_err();
    let second = Request { stop: Some(Box::new(stop)), end_tokens: Vec::new(), ..request(70, 1) };
    let second = replicas.submit(second).unwrap();
    go.send(()).unwrap();
    first.wait().unwrap();
    let tokens = second.wait().unwrap().0.len();
    let events: Vec<&str> = events.iter().take(tokens + 1).collect();
    assert_eq!(events.iter().position(|event| *event == "idle"), Some(tokens));
}

#[test]
fn what_is_timed_leaves_nothing() {
    let request = || Request { end_tokens: Vec::new(), ..request(70, 1) };
    let want = alone(&mut single(), &request()).0;
    let load = || {
        let serving = ReplicaOptions { speculation: Speculation::Lookup(4), ..copies(1) };
        Replicas::load_on(&file(), &one_node(4), &options(1), &serving, &mut |_| {}).unwrap()
    };
    let (replicas, plain) = (load(), load());
    serve(&replicas, request());
    let before = replicas.status().remove(0);
    let timed = idle(&replicas, |engine| {
        let plan = engine.plan().clone();
        let reversed = |group: &Group| {
            let cpus = group.cpus.iter().rev().copied().collect();
            Group { node: group.node, cpus }
        };
        let groups = plan.groups.iter().map(reversed).collect();
        let phases = vec![Phase { tokens: 9, threads: vec![1] }];
        engine.rearrange(groups, phases, &one_node(4)).unwrap();
        let timed = [1, 30].map(|n| engine.time_step(&prompt(n, 3), Duration::ZERO).unwrap());
        assert!(engine.time_step(&prompt(33, 3), Duration::ZERO).is_err(), "a step too large");
        timed
    });
    assert!(timed.iter().all(|timed| timed.is_some_and(|seconds| seconds > 0.0)), "{timed:?}");
    let after = replicas.status().remove(0);
    assert_eq!((after.counters, after.pages), (before.counters, before.pages));
    let (answer, outcome) = replicas.submit(request()).unwrap().wait().unwrap();
    assert_eq!((answer, outcome.cached), (want, 69));
    // Threads are said to have read what they read for requests.
    serve(&plain, request());
    serve(&plain, request());
    let read = |replicas: &Replicas| replicas.status().remove(0).groups.remove(0).read;
    assert!(read(&replicas) > before.groups[0].read);
    assert_eq!(read(&replicas), read(&plain));
}

#[test]
fn cached_pages_are_not_given_up_for_timings() {
    let options = LoadOptions { kv_size: KvSize::Tokens(512), ..options(1) };
    let replicas =
        Replicas::load_on(&file(), &one_node(2), &options, &copies(1), &mut |_| {}).unwrap();
    let mut seed = 0;
    while replicas.status()[0].pages.free > 0 {
        serve(&replicas, request(100, seed));
        seed += 1;
    }
    let before = replicas.status()[0].pages;
    assert!(before.cached > 0);
    assert_eq!(idle(&replicas, |engine| engine.time_step(&[1], Duration::ZERO).unwrap()), None);
    assert_eq!(replicas.status()[0].pages, before);
}

#[test]
fn who_waits_for_idle_time_is_told_of_the_end() {
    for drain in [true, false] {
        let replicas = load(1, 1);
        let time = replicas.idle_time(0);
        let (told, heard) = channel();
        let (ticket, go) = hold(&replicas, 4);
        time.ask(move |_| told.send(()).unwrap()).unwrap();
        drop(go);
        if drain {
            replicas.drain();
            ticket.wait().unwrap();
        } else {
            drop(replicas);
        }
        assert!(heard.recv().is_err(), "it was dropped");
        assert!(matches!(time.ask(|_| ()), Err(Error::ReplicasClosed)));
    }
}
