//! A replica that has failed is loaded again, beside others that go on.

use super::{copies, file, hold, load, one_node, options, request, serve};
use arclight_engine::{Error, Replicas};
use std::time::{Duration, Instant};

/// Has a replica fail, in its idle time.
fn fail(replicas: &Replicas, replica: usize) {
    replicas.idle_time(replica).ask(|_| panic!("told to")).unwrap();
    until(replicas, |status| status[replica].failure.is_some());
}

fn until(replicas: &Replicas, is: impl Fn(&[arclight_engine::ReplicaStatus]) -> bool) {
    let begin = Instant::now();
    while !is(&replicas.status()) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", replicas.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the replica that is expected answers.
fn answer(replicas: &Replicas, replica: usize) -> Vec<u32> {
    let (tokens, outcome) = replicas.submit(request(40, 0)).unwrap().wait().unwrap();
    assert_eq!(outcome.replica, replica);
    tokens
}

#[test]
fn a_failed_replica_is_loaded_again_while_the_other_goes_on() {
    let replicas = load(2, 1);
    // Without work the first takes what comes.
    let before = answer(&replicas, 0);
    assert!(!replicas.restart(0), "it works");
    let done = replicas.status()[0].clone();
    fail(&replicas, 0);
    let (other, go) = hold(&replicas, 400);
    assert!(replicas.restart(0));
    until(&replicas, |status| status[0].failure.is_none());
    // The other one has the same answer under way still.
    assert_eq!(replicas.status()[1].running, 1);
    assert_eq!(answer(&replicas, 0), before);
    // Counts go on, and its cache was given back.
    let status = replicas.status()[0].clone();
    assert_eq!(status.counters.served, done.counters.served + 1);
    assert!(status.groups[0].read > done.groups[0].read);
    assert_eq!(status.counters.cached_tokens, done.counters.cached_tokens);
    assert!(!status.restarting && !replicas.restart(0));
    drop(go);
    assert_eq!(other.wait().unwrap().1.replica, 1);
}

#[test]
fn the_last_one_that_failed_comes_back_too_and_the_only_one_does_not() {
    let replicas = load(2, 1);
    fail(&replicas, 0);
    fail(&replicas, 1);
    assert!(matches!(replicas.submit(request(5, 0)), Err(Error::ReplicaFailed { .. })));
    assert!(replicas.restart(1));
    until(&replicas, |status| status[1].failure.is_none());
    assert_eq!(serve(&replicas, request(5, 0)).replica, 1);
    assert!(replicas.status()[0].failure.is_some());
    let one = load(1, 1);
    fail(&one, 0);
    assert!(!one.restart(0));
}

#[test]
fn the_end_does_not_wait_for_a_load() {
    let (machine, options) = (one_node(4), options(1));
    let replicas = Replicas::load_on(&file(), &machine, &options, &copies(2), &mut |_| {}).unwrap();
    fail(&replicas, 0);
    assert!(replicas.restart(0));
    assert!(!replicas.restart(0), "it is being loaded, or serves");
    drop(replicas);
}
