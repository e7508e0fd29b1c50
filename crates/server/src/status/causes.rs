//! The causes in `/status.json`: the counts of engines as facts for the crate `why`, and its reasons as JSON.

use super::rates::Group;
use arclight_engine::Company;
use schemars::JsonSchema;
use serde::Serialize;
use why::server::Engine;
use why::threads::{Contention, GroupWork, Work};

/// One reason.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Reason {
    /// A sentence with its figure.
    text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mend: Vec<String>,
    /// Whether it costs speed; otherwise it only tells how things are.
    costs: bool,
}

impl From<why::server::Reason> for Reason {
    fn from(why::server::Reason { text, mend, costs }: why::server::Reason) -> Reason {
        Reason { text, mend, costs }
    }
}

/// The work of an engine between two samples.
pub(super) struct Worked {
    /// The groups that computed, each with its node and its read limit.
    pub(super) groups: Vec<(Option<u32>, Group, Option<f64>)>,
    /// Whether groups take turns at a sequence.
    pub(super) pipeline: bool,
    pub(super) steps: u64,
    /// Bytes of the machine's caches.
    pub(super) cache_bytes: u64,
}

impl From<Worked> for Engine {
    fn from(Worked { groups, pipeline, steps, cache_bytes }: Worked) -> Engine {
        let mut nodes: Vec<_> = groups.iter().map(|(node, ..)| node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let apart = nodes.len() == groups.len();
        let rates = || groups.iter().map(|(_, group, _)| group);
        let read: u64 = rates().map(|group| group.read_bytes).sum();
        let least_working = rates().map(|group| group.working).reduce(f64::min);
        let most_stolen = rates().filter_map(|group| group.stolen).reduce(f64::max);
        let of =
            |(at, (node, group, limit)): (usize, (Option<u32>, Group, Option<f64>))| GroupWork {
                node: node.unwrap_or(at as u32),
                read: group.read_bytes_per_second,
                limit,
                remote: group.remote,
                misplaced: group.misplaced,
                waiting: group.waiting_node + group.waiting_machine,
                waiting_machine: group.waiting_machine,
                threads: group.threads,
            };
        let work = Work {
            groups: groups.into_iter().enumerate().map(of).collect(),
            apart,
            pipeline,
            // Unknown without steps.
            step_bytes: read.checked_div(steps).unwrap_or(u64::MAX),
            cache_bytes,
            ..Work::default()
        };
        Engine { work, least_working, most_stolen }
    }
}

pub(super) fn contention(company: Company) -> Contention {
    let Company { left_out, steps, steps_without, watched, delayed } = company;
    Contention { left_out, steps, steps_without, watched, delayed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_groups_become_the_work_of_an_engine() {
        let group = |working, stolen| Group {
            read_bytes_per_second: 7e9,
            remote: Some(0.25),
            working,
            waiting_node: 0.125,
            waiting_machine: 0.25,
            stolen,
            read_bytes: 500,
            misplaced: Some((1, 100)),
            threads: Vec::new(),
        };
        let engine = |nodes: [Option<u32>; 2], steps| {
            let groups = [group(0.5, None), group(0.625, Some(0.5))];
            let groups =
                nodes.into_iter().zip(groups).map(|(node, group)| (node, group, Some(9e9)));
            let groups = groups.collect();
            Engine::from(Worked { groups, pipeline: true, steps, cache_bytes: 64 })
        };
        let apart = engine([Some(4), Some(6)], 10);
        assert_eq!((apart.least_working, apart.most_stolen), (Some(0.5), Some(0.5)));
        let Work { groups, apart, pipeline, step_bytes, cache_bytes, .. } = apart.work;
        assert_eq!((apart, pipeline, step_bytes, cache_bytes), (true, true, 100, 64));
        let expected = GroupWork {
            node: 6,
            read: 7e9,
            limit: Some(9e9),
            remote: Some(0.25),
            misplaced: Some((1, 100)),
            waiting: 0.375,
            waiting_machine: 0.25,
            threads: Vec::new(),
        };
        assert_eq!(groups[1], expected);
        // Groups without nodes have their numbers, and share a memory.
        let shared = engine([None, None], 0).work;
        assert_eq!((shared.apart, shared.step_bytes, shared.groups[1].node), (false, u64::MAX, 1));
    }

    #[test]
    fn a_reason_without_remedies_has_no_list_of_them() {
        let json = |mend: &[&str]| {
            let mend = mend.iter().map(|&text| text.to_owned()).collect();
            let reason = why::server::Reason { text: "Slow.".to_owned(), mend, costs: true };
            serde_json::to_string(&Reason::from(reason)).unwrap()
        };
        assert_eq!(json(&[]), r#"{"text":"Slow.","costs":true}"#);
        assert_eq!(json(&["wait"]), r#"{"text":"Slow.","mend":["wait"],"costs":true}"#);
    }
}
