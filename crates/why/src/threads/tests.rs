//! Every cause with planted figures: its sentence, what helps, and what is not said.

use super::*;
use std::time::Duration;

const STEP: u64 = 1 << 30;

/// A group whose threads work so long; each has as much of the weights, and the node gives half of what it can.
fn group(node: u32, working: &[f64]) -> GroupWork {
    let thread = |(at, &working): (usize, &f64)| ThreadWork {
        cpu: CpuId(10 * node + at as u32),
        working,
        held: 0.0,
        weights: 1000,
    };
    let mean = working.iter().sum::<f64>() / working.len() as f64;
    GroupWork {
        node,
        read: 6e9 * mean,
        limit: Some(10e9),
        remote: Some(0.0),
        misplaced: Some((0, 1000)),
        waiting: 1.0 - mean,
        waiting_machine: 0.0,
        threads: working.iter().enumerate().map(thread).collect(),
    }
}

fn work(groups: Vec<GroupWork>) -> Work {
    Work { groups, apart: true, step_bytes: STEP, cache_bytes: 1 << 20, ..Work::default() }
}

/// The only cause, which must say what helps.
#[track_caller]
fn only(work: &Work) -> String {
    let all = work.causes();
    assert_eq!(all.len(), 1, "{all:#?}");
    assert!(!all[0].mend.is_empty(), "{all:#?}");
    all[0].text.clone()
}

#[test]
fn nothing_is_said_of_what_works_well() {
    let fine = work(vec![group(0, &[0.95, 0.95]), group(1, &[0.95, 0.95])]);
    assert_eq!(fine.causes(), []);
    assert_eq!(Work::default().causes(), []);
}

#[test]
fn a_slow_node_is_named_with_what_it_reads() {
    // Half the bandwidth: twice the time.
    let mut slow = work(vec![group(0, &[0.45, 0.43]), group(1, &[0.9, 0.88])]);
    slow.groups[1].read = slow.groups[0].read;
    assert_eq!(
        only(&slow),
        "Waiting takes 34 % of the time, most of it for node 1: its threads work 89 % of the time and read 3.0 \
         GB/s meanwhile, those of others 44 % and 6.0 GB/s."
    );
    // It is the node also where it has one thread.
    let one = work(vec![group(0, &[0.4]), group(3, &[0.9])]);
    assert!(only(&one).contains("most of it for node 3: its threads work 90 %"), "{}", only(&one));
    // Also where its threads wait, too, for what is nobody's fault: of the 43 % for which others wait, 26 are its work.
    let mut both = work(vec![group(0, &[0.5]), group(1, &[0.76])]);
    (both.groups[0].waiting, both.groups[1].waiting) = (0.43, 0.17);
    assert!(
        only(&both).contains("Waiting takes 30 % of the time, most of it for node 1"),
        "{}",
        only(&both)
    );
    // A pipeline's nodes wait for each other by design.
    let turns = Work { pipeline: true, ..slow };
    assert!(only(&turns).ends_with("the nodes of a pipeline take turns at a sequence."));
}

#[test]
fn a_slow_core_is_named_with_its_node() {
    let slow = work(vec![group(0, &[0.4, 0.4]), group(1, &[0.4, 0.9])]);
    assert_eq!(
        only(&slow),
        "Waiting takes 48 % of the time, most of it for thread 3 (CPU 11, node 1): it works 90 % of the time, the others \
         40 % on average."
    );
    assert!(slow.causes()[0].mend[0].contains("--cpus"));
    // Also where it waits, too, since the other takes over what it has not begun: that one waits for 62 %, of which 35
    // are the slow one's work.
    let mut shared = work(vec![group(0, &[0.35, 0.7])]);
    shared.groups[0].waiting = 0.45;
    assert!(
        only(&shared).contains("Waiting takes 45 % of the time, most of it for thread 1"),
        "{}",
        only(&shared)
    );
}

#[test]
fn a_slow_core_is_named_where_others_do_its_work() {
    // A step of 257 ms: one works 114 and waits 143, for the other alone, which works 174 and leaves its waits late.
    let mut shared = work(vec![group(0, &[0.444, 0.677])]);
    shared.groups[0].waiting = 0.44;
    let nobody = shared.clone();
    assert!(only(&nobody).starts_with("Waiting takes 44 % of the time."), "{}", only(&nobody));
    shared.groups[0].threads[0].held = 0.02;
    shared.groups[0].threads[1].held = 0.53;
    assert_eq!(
        only(&shared),
        "Waiting takes 44 % of the time, most of it for thread 1 (CPU 1, node 0): for 53 % of the time all others waited \
         for it alone."
    );
    assert!(shared.causes()[0].mend[0].contains("--cpus"));
    // Who waits for each other by turns waits for nobody.
    shared.groups[0].threads[0].held = 0.3;
    assert_eq!(shared.causes(), nobody.causes());
    // One alone waits for nobody, whatever is counted.
    let mut alone = work(vec![group(0, &[0.5])]);
    alone.groups[0].threads[0].held = 0.5;
    assert!(only(&alone).starts_with("Waiting takes 50 % of the time."), "{}", only(&alone));
}

#[test]
fn work_that_is_dealt_unevenly_is_told_apart_from_a_slow_core() {
    let mut uneven = work(vec![group(0, &[0.4, 0.4, 0.4, 0.8])]);
    uneven.groups[0].threads[3].weights = 2000;
    let text = only(&uneven);
    assert!(
        text.ends_with(
            "the others 40 % on average, because it has 2.0 times as much of the weights."
        ),
        "{text}"
    );
    assert!(uneven.causes()[0].mend[0].contains("arclight tune"));
    // A tenth more of the weights is not why it takes twice as long.
    uneven.groups[0].threads[3].weights = 1100;
    assert!(only(&uneven).ends_with("the others 40 % on average."));
    // Of a node as well.
    let mut node = work(vec![group(0, &[0.4, 0.4]), group(1, &[0.85, 0.85])]);
    node.groups[1].threads.iter_mut().for_each(|thread| thread.weights = 2000);
    assert!(
        only(&node).ends_with("because each has 2.0 times as much of the weights."),
        "{}",
        only(&node)
    );
}

#[test]
fn waits_that_are_nobodys_fault_are_counted() {
    let mut waits = work(vec![group(0, &[0.7, 0.7]), group(1, &[0.7, 0.7])]);
    waits.waits = Some((5.0, 80e-6));
    assert_eq!(
        only(&waits),
        "Waiting takes 30 % of the time, in 5 waits a step of 80 µs on average."
    );
    waits.waits = None;
    waits.groups.iter_mut().for_each(|group| group.waiting_machine = 0.25);
    assert_eq!(only(&waits), "Waiting takes 30 % of the time, most of it for other nodes (25 %).");
}

#[test]
fn memory_near_its_limit_bounds_the_work_unless_caches_serve_it() {
    let mut near = work(vec![group(0, &[0.9])]);
    near.groups[0].read = 8.1e9;
    assert_eq!(
        only(&near),
        "Memory bounds the work: node 0 is read at 8.1 GB/s of the 10.0 GB/s that it can deliver, 81 % of it (90 % while \
         its threads work)."
    );
    let cached = Work { cache_bytes: 2 * STEP, ..near.clone() };
    assert!(only(&cached).starts_with("Computing bounds it: "));
    // At 95 % of the limit over all the time, and by that beyond it while threads work.
    near.groups[0].read = 9.5e9;
    assert!(only(&near).ends_with("10.0 GB/s that it can deliver, 95 % of it."));
    // A limit that is beaten says nothing.
    near.groups[0].read = 10.1e9;
    assert_eq!(near.causes(), []);
    let why = near.of_limit(&near.groups[0]);
    assert_eq!(why, Err(NoShare::Memory));
    assert!(near.nothing(0.9, 0.1, why).text.ends_with(
        "and of memory it is faster than the probe of the memory, which was disturbed: no share."
    ));
    near.groups[0].limit = None;
    assert_eq!(near.causes(), []);
}

#[test]
fn who_mostly_waits_is_not_bound_by_memory_first() {
    let mut both = work(vec![group(0, &[0.3])]);
    both.groups[0].read = 2.9e9;
    let texts: Vec<String> = both.causes().into_iter().map(|cause| cause.text).collect();
    assert!(
        texts[0].starts_with("Waiting takes 70 %") && texts[1].starts_with("Memory bounds"),
        "{texts:#?}"
    );
    both.groups[0] = GroupWork { read: 7e9, ..group(0, &[0.75]) };
    assert!(both.causes()[0].text.starts_with("Memory bounds"));
}

#[test]
fn pages_elsewhere_and_remote_reads_have_their_shares() {
    let mut far = work(vec![group(0, &[0.95]), group(1, &[0.95])]);
    far.groups[1].misplaced = Some((120, 1000));
    assert_eq!(
        only(&far),
        "12 % of the pages meant for node 1 lie on others (120 of 1000), and are read from there."
    );
    far.groups[1].remote = Some(0.31);
    let all = far.causes();
    assert_eq!(all[1].text, "31 % of the bytes are in another node's memory.");
    assert!(all[1].mend[0].contains("--numa tp"));
    // Virtual nodes share a memory.
    let virtual_nodes = Work { apart: false, ..far.clone() };
    assert_eq!(virtual_nodes.causes().len(), 1);
    far.groups[1].misplaced = Some((9, 1000));
    assert_eq!(far.causes().len(), 1);
}

#[test]
fn computing_has_the_share_of_the_peak() {
    let mut busy = work(vec![group(0, &[0.96, 0.94])]);
    busy.groups[0].read = 1e9;
    assert_eq!(
        only(&busy),
        "Computing bounds it: threads work 95 % of the time, and memory is read at 11 % of its limit."
    );
    busy.of_peak = Some(0.83);
    assert!(
        only(&busy).contains(
            "95 % of the time, at 83 % of the multiplications that the cores can do, and"
        )
    );
}

#[test]
fn work_without_a_cause_has_the_figures_of_its_report() {
    let fine = work(vec![group(0, &[0.9])]);
    assert_eq!(
        fine.nothing(0.9, 0.1, Ok(0.54)).to_string(),
        "Nothing stands out: threads work 90 % of the time and wait 10 %, and memory is read at 54 % of its limit."
    );
    let cached = Work { cache_bytes: 2 * STEP, ..fine };
    assert!(
        cached.nothing(0.9, 0.1, Ok(0.0)).text.ends_with("what a step reads fits into the caches.")
    );
}

#[test]
fn what_is_between_steps_is_told_from_a_quarter_of_the_time_on() {
    assert_eq!(between(0.2, 0.02, 0.005), None);
    let half = between(0.5, 0.025, 0.025).unwrap();
    assert!(
        half.text.ends_with("a step takes 25.0 ms, and what is between two 25.0 ms."),
        "{half}"
    );
    assert!(half.to_string().contains(" What helps: grammars"), "{half}");
}

#[test]
fn cores_that_others_are_busy_on_are_named() {
    let seconds = Duration::from_secs;
    let mut company =
        Contention { steps: seconds(90), watched: seconds(100), ..Contention::default() };
    assert_eq!(company.cause(), None);
    company.delayed.insert(CpuId(2), seconds(1));
    company.delayed.insert(CpuId(7), seconds(3));
    let text = company.cause().unwrap().text;
    assert!(text.starts_with("The thread on CPU 7 was not let run for 3.0 % of"), "{text}");
    company.steps_without = seconds(64);
    company.left_out = vec![CpuId(2), CpuId(7)];
    let text = company.cause().unwrap().text;
    let words = "busy on CPUs 2, 7: the steps of 71 % of the time went without them, which is faster than to wait for them.";
    assert!(text.ends_with(words), "{text}");
    // On trial only: most steps were taken with the core.
    company.delayed.insert(CpuId(7), seconds(48));
    company.steps_without = seconds(12);
    let text = company.cause().unwrap().text;
    let words = "CPU 7 was not let run for 48 % of the time: the others waited for it, or took over what it had not begun.";
    assert!(text.ends_with(words), "{text}");
    assert_eq!(Contention::default().cause(), None);
}
