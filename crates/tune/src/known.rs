//! Published models and engines, with the origin of every number; the machines are in [`MACHINES`].
//!
//! *Fitted* numbers are chosen so that the model agrees with a sentence of a paper, which is named.
//! `docs/cost-model.md` lists them and shows what happens when they are wrong.

use crate::engine::Engine;
use crate::machine::MachineModel;
pub use crate::machines::{Figure, KnownMachine, MACHINES, Origin, Shared, machine};
use crate::model::ModelGraphs;
use crate::step::{Pages, Waits};
use crate::waits::Barrier;
use graph::KvType;

/// The ArcLight paper's machine: 4 nodes of 48 Kunpeng 920 cores, six DDR4 channels each.
pub fn kunpeng_920() -> MachineModel {
    named("kunpeng-920").model()
}

/// Arm's machine: 2 nodes of 64 Neoverse N2 cores.
pub fn neoverse_n2() -> MachineModel {
    named("neoverse-n2").model()
}

/// Qwen3-4B with Q4_0 matrices, a tied Q6_K head and a Q4_0 KV cache, as the ArcLight paper ran it
/// (KV type: the paper's appendix A.3).
pub fn qwen3_4b_q4_0() -> ModelGraphs<'static> {
    published("qwen3-4b:q4_0", KvType::Q4_0)
}

/// Llama 3 8B in Q4_0 as llama.cpp's tools write it, with a Q6_K head and a cache of half floats, as
/// Arm ran it.
pub fn llama3_8b_q4_0() -> ModelGraphs<'static> {
    published("llama3-8b:q4_0", KvType::F16)
}

fn named(name: &str) -> &'static KnownMachine {
    machine(name).expect("the table has it")
}

fn published(name: &str, kv: KvType) -> ModelGraphs<'static> {
    ModelGraphs::published(name.parse().expect("a published model"), kv)
}

/// llama.cpp on ArcLight's machine: pages where the system put them, about half on node 0.
pub fn llama_cpp() -> Engine {
    Engine::unplaced(named("kunpeng-920").unplaced())
}

/// llama.cpp on Arm's machine: all pages on node 0.
pub fn llama_cpp_on_n2() -> Engine {
    Engine::unplaced(named("neoverse-n2").unplaced())
}

/// llama.cpp with Arm's patch: each thread's rows in its node, quantised inputs once per node, and a
/// barrier of which one thread per node crosses. Where the cache of keys and values lies the text does
/// not say; it is taken to go round the nodes.
pub fn llama_cpp_numa_aware() -> Engine {
    let flat = Engine::replicated();
    let hierarchical = |waits| Waits { barrier: Barrier::Hierarchical, ..waits };
    Engine { operators: flat.operators.map(hierarchical), ..flat }
}

/// ArcLight as published, Sync B, on a machine of so many nodes: layers split, the LM head whole on node 0,
/// 47 waits a layer, 23 of them on a counter of all threads (counted in its code).
pub fn arclight(nodes: usize) -> Engine {
    let waits = Waits { local: 24, global: 23, barrier: Barrier::Flat };
    let home = Pages::first_touch(0, 1.0, nodes).expect("all on one of the nodes");
    Engine { head: Some(home), operators: Some(waits), ..Engine::tensor_parallel() }
}

/// ArcLight as published, Sync A: all 47 waits are for all threads.
pub fn arclight_sync_a(nodes: usize) -> Engine {
    let waits = Waits { local: 0, global: 47, barrier: Barrier::Flat };
    Engine { operators: Some(waits), ..arclight(nodes) }
}
