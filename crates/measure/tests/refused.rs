//! Counters where a sandbox forbids the call that opens them.

#[path = "../../memory/tests/seccomp/mod.rs"]
mod seccomp;

use arclight_measure::counters::{Controllers, Counters, Event};
use seccomp::without_call;

#[test]
fn forbidden_counters_are_unavailable_with_the_reason() {
    for (errno, part) in
        [(libc::EACCES, ": sudo sysctl|a container or sandbox"), (libc::ENOSYS, "sandbox hides it")]
    {
        let counters =
            without_call(libc::SYS_perf_event_open, errno, || Counters::of_threads(&[0]));
        assert_eq!(counters.events().count(), 0);
        assert_eq!(counters.refused().len(), Event::ALL.len());
        for refusal in counters.refused() {
            let text = refusal.to_string();
            assert!(text.starts_with(&format!("{}: ", refusal.event.name())), "{text}");
            assert!(part.split('|').any(|part| text.contains(part)), "{text}");
        }
    }
    let machine = topology::Machine::read().unwrap();
    without_call(libc::SYS_perf_event_open, libc::EPERM, || Controllers::open(&machine))
        .expect_err("no controller is counted without the call");
}
