//! Slow constraints: they delay their own answer only.

use super::*;
use arclight_engine::Constraint;

/// Multiples of eleven, after each of which it waits until it is told to go on.
struct Gated {
    go: Receiver<()>,
}

impl Constraint for Gated {
    fn allow(&mut self, mask: &mut [u32]) -> Result<(), String> {
        // An error is as good: the test is over, or does not care.
        let _ = self.go.recv();
        for token in (0..mask.len() as u32 * 32).filter(|token| !token.is_multiple_of(11)) {
            mask[token as usize / 32] &= !(1 << (token % 32));
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        if token.is_multiple_of(11) { Ok(()) } else { Err(format!("{token} may not come")) }
    }
}

fn gated(seed: u64) -> (Request, Sender<()>) {
    let (go, wait) = channel();
    let constraint = Some(Box::new(Gated { go: wait }) as Box<dyn Constraint>);
    (Request { constraint, end_tokens: Vec::new(), limit: Some(20), ..request(30, seed) }, go)
}

/// The tokens of a request that never waits.
fn free(replicas: &Replicas, seed: u64) -> Vec<u32> {
    let (request, go) = gated(seed);
    drop(go);
    replicas.submit(request).unwrap().wait().unwrap().0
}

fn replicas(speculation: Speculation) -> Replicas {
    let serving = ReplicaOptions { speculation, ..copies(1) };
    Replicas::load_on(&file(), &one_node(2), &options(3), &serving, &mut |_| {}).unwrap()
}

#[test]
fn a_missing_mask_delays_its_own_answer_only() {
    for speculation in [Speculation::Off, Speculation::Lookup(4)] {
        let replicas = replicas(speculation);
        for seed in [2, 3] {
            let want = free(&replicas, seed);
            let (request, go) = gated(seed);
            let mut waits = replicas.submit(request).unwrap();
            go.send(()).unwrap();
            assert_eq!(waits.next().unwrap().unwrap().id, want[0]);
            // A whole answer of another, begun and ended meanwhile; and one after it.
            for _ in 0..2 {
                let stream = Request { limit: Some(100), ..super::request(40, 4) };
                let stream = Request { end_tokens: Vec::new(), ..stream };
                assert_eq!(serve(&replicas, stream).tokens, 100);
            }
            assert_eq!(replicas.status()[0].running, 1);
            drop(go);
            let rest: Vec<u32> = waits.map(|token| token.unwrap().id).collect();
            assert_eq!(rest, want[1..]);
        }
        let status = replicas.status().remove(0);
        assert_eq!((status.counters.empty_steps, usable(&status)), (0, status.pages.total));
    }
}

/// Masks that come some steps late, in the middle of guesses too, change no token.
#[test]
fn late_masks_change_no_token() {
    for speculation in [Speculation::Off, Speculation::Lookup(4), Speculation::Draft(file(), 3)] {
        let replicas = replicas(speculation);
        for seed in 0..4 {
            let want = free(&replicas, seed);
            let (request, go) = gated(seed);
            let late = replicas.submit(request).unwrap();
            // Two masks for each three tokens of another.
            let mut tokens = 0;
            let stop: arclight_engine::StopHook = Box::new(move |_| {
                tokens += 1;
                if tokens % 3 > 0 {
                    let _ = go.send(());
                }
                false
            });
            let stream = Request { limit: Some(60), stop: Some(stop), ..super::request(5, 2) };
            let stream = Request { end_tokens: Vec::new(), ..stream };
            assert_eq!(serve(&replicas, stream).tokens, 60);
            assert_eq!(late.wait().unwrap().0, want, "{seed}");
        }
    }
}

#[test]
fn an_answer_that_waits_for_a_mask_can_be_cancelled_and_has_its_deadline() {
    let replicas = replicas(Speculation::Off);
    let (request, go) = gated(2);
    let waits = replicas.submit(request).unwrap();
    // It is computed, and nothing but its mask is missing.
    while replicas.counters().computed_tokens < 30 {
        std::thread::yield_now();
    }
    drop(waits);
    assert_eq!(serve(&replicas, super::request(40, 4)).cached, 0);
    let status = replicas.status().remove(0);
    assert_eq!((status.running, usable(&status)), (0, status.pages.total));
    drop(go);
    let (request, _go) = gated(2);
    let deadline = Some(std::time::Instant::now() + Duration::from_millis(100));
    let late = replicas.submit(Request { deadline, ..request }).unwrap();
    let (tokens, outcome) = late.wait().unwrap();
    assert_eq!((tokens.len(), outcome.stopped), (0, StopReason::Deadline));
}

/// A constraint's own fault ends its answer alone.
#[test]
fn a_constraint_that_panics_ends_its_answer() {
    struct Panics;
    impl Constraint for Panics {
        fn allow(&mut self, _: &mut [u32]) -> Result<(), String> {
            panic!("at the first token")
        }
        fn accept(&mut self, _: u32) -> Result<(), String> {
            Ok(())
        }
    }
    let replicas = replicas(Speculation::Off);
    let request = Request { constraint: Some(Box::new(Panics)), ..request(5, 0) };
    let error = replicas.submit(request).unwrap().wait().unwrap_err().to_string();
    assert!(error.ends_with("it panicked: at the first token"), "{error}");
    serve(&replicas, super::request(5, 0));
}
