//! Compilation: instructions become stages with derived waits.
//!
//! Two accesses of one buffer conflict when at least one writes. The conflict needs no wait when
//! both are dealt alike (the same thread touches the same elements), a local wait when both stay on
//! a node, and a global one when either reaches across nodes. A wait that already stands between
//! the two serves. Read-after-write, write-after-read and write-after-write are treated alike, so
//! buffer reuse is covered by the same rule.

use crate::buffer::{BufId, Buffers, Home};
use crate::claims::{Deal, Reach};
use crate::instr::Instr;
use crate::plan::Sync;
use std::collections::HashMap;
pub use threads::Scope;

/// Instructions that a thread runs without waiting, and the wait that follows them.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// In order.
    pub instrs: Vec<Instr>,
    /// The product whose tiles threads may take over from each other: the last one, if there is one and nothing else
    /// is shared so. Another set of tasks before the wait would want a wait of its own.
    pub shared: Option<usize>,
    /// Who is waited for afterwards; `None` at the end of the step, where all threads join anyway.
    pub wait: Option<Wait>,
}

/// A derived wait and its reason.
#[derive(Clone, Debug)]
pub struct Wait {
    /// For whom.
    pub scope: Scope,
    /// The buffer whose conflict demanded it.
    pub because: BufId,
}

struct Seen {
    at: usize, // index of the instruction
    write: bool,
    reach: Reach,
}

/// Groups instructions into stages for `nodes` nodes.
pub fn compile(instrs: Vec<Instr>, buffers: &Buffers, nodes: usize, sync: Sync) -> Vec<Stage> {
    let mut stages = vec![Stage::default()];
    let mut seen: HashMap<BufId, Vec<Seen>> = HashMap::new();
    // Instructions before these indices are ordered before whatever comes next.
    let (mut local_from, mut global_from) = (0, 0);
    for (at, instr) in instrs.into_iter().enumerate() {
        let mut need: Option<Wait> = None;
        for access in instr.accesses() {
            if buffers.get(access.buffer).home == Home::Thread {
                continue;
            }
            for earlier in seen.get(&access.buffer).into_iter().flatten() {
                if !(earlier.write || access.write) {
                    continue;
                }
                let Some(scope) = scope(earlier.reach, access.reach, nodes) else { continue };
                let served = match scope {
                    Scope::Local => earlier.at < local_from,
                    Scope::Global => earlier.at < global_from,
                };
                let wider = need.as_ref().is_none_or(|w| w.scope == Scope::Local);
                if !served && wider {
                    need = Some(Wait { scope, because: access.buffer });
                }
            }
        }
        if let Some(mut wait) = need {
            if sync == Sync::Global && nodes > 1 {
                wait.scope = Scope::Global;
            }
            local_from = at;
            if wait.scope == Scope::Global || nodes == 1 {
                global_from = at;
            }
            stages.last_mut().expect("never empty").wait = Some(wait);
            stages.push(Stage::default());
        }
        for access in instr.accesses() {
            let list = seen.entry(access.buffer).or_default();
            // What a global wait has ordered can conflict no more.
            list.retain(|s| s.at >= global_from);
            list.push(Seen { at, write: access.write, reach: access.reach });
        }
        stages.last_mut().expect("never empty").instrs.push(instr);
    }
    stages.iter_mut().for_each(|stage| stage.shared = shared(&stage.instrs));
    stages
}

/// [`Stage::shared`] of these. What a product writes is nobody's but by [`Deal::Items`], so a wait stands between it
/// and whoever reads it, whichever thread of the group has multiplied.
fn shared(instrs: &[Instr]) -> Option<usize> {
    if instrs.iter().any(|instr| instr.does.has_tasks()) {
        return None;
    }
    instrs.iter().rposition(|instr| instr.matrix().is_some())
}

fn scope(a: Reach, b: Reach, nodes: usize) -> Option<Scope> {
    match (a, b) {
        (Reach::Round, _) | (_, Reach::Round) => None,
        (Reach::Own(x), Reach::Own(y)) if x == y && x != Deal::Items => None,
        (Reach::All, _) | (_, Reach::All) if nodes > 1 => Some(Scope::Global),
        _ => Some(Scope::Local),
    }
}

/// Waits of a list of stages: `(all, global)`.
pub fn count_waits(stages: &[Stage]) -> (usize, usize) {
    let waits = stages.iter().filter_map(|s| s.wait.as_ref());
    let global = waits.clone().filter(|w| w.scope == Scope::Global).count();
    (waits.count(), global)
}
