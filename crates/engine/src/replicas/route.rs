//! Which replica serves a request: the rules, as functions of what is known of the replicas.
//!
//! A replica's pressure is the tokens that it would have yet to compute, the request's included but for
//! the beginning that it has computed for another, over its threads. A request goes
//!
//! 1. to the replica that served its session before, which has its keys and values, as long as its
//!    pressure is not more than [`MUCH`] times the least; if all its slots are taken and another
//!    replica has one free, only if waiting for one costs less than computing the prompt anew;
//! 2. otherwise to a replica with a free slot before one without, of those to the one of the least
//!    pressure, and of equal ones to one on the node where the caller runs, or the first.
//!
//! A replica with a free slot and nothing of its own to do takes the oldest request that waits for
//! a replica without one, except for those that rule 1 holds back.

use std::cmp::Ordering;

/// How many times as busy as the others a session's replica may be.
const MUCH: u64 = 4;

/// Tokens of a prompt that take as long as a step that decodes. A prompt's tokens share each read
/// of the weights, so it is many; where weights come from a cache or arithmetic is slow, it is few.
pub(crate) const PROMPT_TOKENS_PER_STEP: u64 = 16;

/// What the rules look at of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// Whether it is in service.
    pub alive: bool,
    /// Threads, at least one.
    pub threads: u64,
    /// Requests that it could begin at once.
    pub free: usize,
    /// Tokens that it has yet to compute.
    pub tokens: u64,
    /// Whether the caller runs on a node of it.
    pub near: bool,
    /// Tokens of the request's prompt that it has computed for another.
    pub computed: u64,
}

/// What they look at of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Tokens of its prompt.
    pub prompt: u64,
    /// Tokens of its answer, at most.
    pub answer: u64,
    /// The replica that served its session before.
    pub home: Option<usize>,
    /// Steps until that has a slot for it, at most.
    pub wait: u64,
}

/// The replica for a request; `None` if none is in service.
pub(crate) fn choose(lanes: &[Lane], work: &Work) -> Option<usize> {
    let alive = || (0..lanes.len()).filter(|&i| lanes[i].alive);
    let more = work.prompt.saturating_add(work.answer);
    let best = alive().min_by(|&a, &b| {
        let (a, b) = (&lanes[a], &lanes[b]);
        let key = |lane: &Lane| (lane.free == 0, !lane.near);
        let (full, far) = (key(a).0.cmp(&key(b).0), key(a).1.cmp(&key(b).1));
        full.then(pressure(a, b, more, 1)).then(far)
    })?;
    let Some(home) = work.home.filter(|&home| lanes.get(home).is_some_and(|l| l.alive)) else {
        return Some(best);
    };
    let stays = if lanes[home].free == 0 && lanes[best].free > 0 {
        is_short(work)
    } else {
        pressure(&lanes[home], &lanes[best], more, MUCH).is_le()
    };
    Some(if stays { home } else { best })
}

/// Whether a replica with a free slot may take a request that was routed to another one, which
/// `work` has for its home: unless that could begin it at once, or is its session's and worth the
/// wait.
pub(crate) fn may_take(alive: bool, work: &Work, session: bool) -> bool {
    !alive || work.wait > 0 && !(session && is_short(work))
}

/// The pressure of `a` compared with `times` that of `b`, when each gets `more` tokens.
fn pressure(a: &Lane, b: &Lane, more: u64, times: u64) -> Ordering {
    let tokens = |lane: &Lane| u128::from(lane.tokens) + u128::from(more - lane.computed.min(more));
    let (a, b) = (tokens(a) * u128::from(b.threads), tokens(b) * u128::from(a.threads));
    a.cmp(&(b * u128::from(times)))
}

/// Whether waiting for a slot at home costs less than computing the prompt elsewhere.
fn is_short(work: &Work) -> bool {
    work.wait.saturating_mul(PROMPT_TOKENS_PER_STEP) <= work.prompt
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDLE: Lane =
        Lane { alive: true, threads: 8, free: 4, tokens: 0, near: false, computed: 0 };
    const NEW: Work = Work { prompt: 100, answer: 100, home: None, wait: 0 };

    fn busy(tokens: u64) -> Lane {
        Lane { tokens, free: 2, ..IDLE }
    }

    fn full(tokens: u64) -> Lane {
        Lane { tokens, free: 0, ..IDLE }
    }

    #[test]
    fn new_requests_go_where_least_is_left_to_do() {
        assert_eq!(choose(&[busy(500), busy(300), busy(400)], &NEW), Some(1));
        // A free slot is worth more than a short queue.
        assert_eq!(choose(&[full(10), busy(9000)], &NEW), Some(1));
        // Twice the threads take twice the work.
        let wide = Lane { threads: 16, ..busy(700) };
        assert_eq!(choose(&[busy(300), wide], &NEW), Some(1));
        assert_eq!(choose(&[IDLE, Lane { threads: 16, ..IDLE }], &NEW), Some(1));
    }

    #[test]
    fn what_is_computed_already_counts_for_less() {
        let knows = |tokens, computed| Lane { computed, ..busy(tokens) };
        assert_eq!(choose(&[busy(300), knows(350, 64)], &NEW), Some(1));
        // Not if that is less than what it has more to do.
        assert_eq!(choose(&[busy(300), knows(365, 64)], &NEW), Some(0));
        assert_eq!(choose(&[full(0), knows(0, 96)], &NEW), Some(1));
    }

    #[test]
    fn between_equals_the_callers_node_decides() {
        let near = Lane { near: true, ..busy(300) };
        assert_eq!(choose(&[busy(300), near, busy(300)], &NEW), Some(1));
        assert_eq!(choose(&[busy(299), near], &NEW), Some(0));
        assert_eq!(choose(&[IDLE, IDLE], &NEW), Some(0));
    }

    #[test]
    fn sessions_return_unless_their_replica_is_much_busier() {
        let work = Work { home: Some(1), ..NEW };
        // 600 more than 200 is four times as much.
        assert_eq!(choose(&[IDLE, busy(600)], &work), Some(1));
        assert_eq!(choose(&[IDLE, busy(601)], &work), Some(0));
        // All are full: then it waits at home as well as elsewhere.
        assert_eq!(choose(&[full(100), full(500)], &Work { wait: 500, ..work }), Some(1));
        assert_eq!(choose(&[full(100), full(5000)], &Work { wait: 5000, ..work }), Some(0));
        // A home that is gone.
        let dead = Lane { alive: false, ..IDLE };
        assert_eq!(choose(&[busy(5000), dead], &work), Some(0));
        assert_eq!(choose(&[busy(5000)], &work), Some(0));
        assert_eq!(choose(&[dead], &work), None);
    }

    #[test]
    fn a_session_waits_for_a_slot_if_that_is_quicker_than_its_prompt() {
        let work = |wait| Work { home: Some(0), wait, prompt: 160, ..NEW };
        assert_eq!(choose(&[full(50), IDLE], &work(10)), Some(0));
        assert_eq!(choose(&[full(50), IDLE], &work(11)), Some(1));
        assert!(!may_take(true, &work(10), true));
        assert!(may_take(true, &work(11), true));
        // Its session is nowhere, or somewhere else.
        assert!(may_take(true, &work(10), false));
    }

    #[test]
    fn who_can_begin_at_once_is_left_alone() {
        assert!(!may_take(true, &NEW, false));
        assert!(may_take(false, &NEW, true));
    }

    fn any_lane() -> impl Strategy<Value = Lane> {
        let numbers = (1u64..64, 0usize..3, 0u64..5000);
        (prop::bool::weighted(0.8), numbers, any::<bool>()).prop_map(
            |(alive, (threads, free, tokens), near)| Lane {
                alive,
                threads,
                free,
                tokens,
                near,
                computed: 0,
            },
        )
    }

    fn any_work() -> impl Strategy<Value = Work> {
        let home = prop::option::of(0usize..6);
        (1u64..4000, 0u64..4000, home, 0u64..500).prop_map(|(prompt, answer, home, wait)| Work {
            prompt,
            answer,
            home,
            wait,
        })
    }

    proptest! {
        #[test]
        fn every_choice_keeps_the_rules(lanes in prop::collection::vec(any_lane(), 1..6), work in any_work()) {
            let Some(chosen) = choose(&lanes, &work) else {
                prop_assert!(lanes.iter().all(|l| !l.alive));
                return Ok(());
            };
            let lane = &lanes[chosen];
            prop_assert!(lane.alive);
            let others = || lanes.iter().filter(|l| l.alive);
            if work.home == Some(chosen) {
                return Ok(());
            }
            // Not at home: then nobody alive is better.
            prop_assert!(lane.free > 0 || others().all(|l| l.free == 0));
            let more = (work.prompt + work.answer) as f64;
            let load = |l: &Lane| (l.tokens as f64 + more) / l.threads as f64;
            for other in others().filter(|l| (l.free > 0) == (lane.free > 0)) {
                // Exact numbers below 2^53, and quotients that are equal or differ by 1 / 64^2.
                prop_assert!(load(lane) <= load(other) + 1e-9);
                let equal = (load(lane) - load(other)).abs() < 1e-9;
                prop_assert!(!equal || lane.near || !other.near);
            }
        }

        /// More to do never attracts a request.
        #[test]
        fn load_repels(lanes in prop::collection::vec(any_lane(), 1..6), work in any_work(), more in 1u64..9000) {
            let Some(chosen) = choose(&lanes, &work) else { return Ok(()) };
            for other in (0..lanes.len()).filter(|&i| i != chosen && work.home != Some(chosen)) {
                let mut heavier = lanes.clone();
                heavier[other].tokens += more;
                // Home is judged against the best, which is where the request goes.
                prop_assert_eq!(choose(&heavier, &work), Some(chosen));
            }
        }
    }
}
