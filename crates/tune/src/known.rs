//! Published models and engines, with the origin of every number; the machines are in [`MACHINES`].
//!
//! *Fitted* numbers are chosen so that the model agrees with a sentence of a paper, which is named.
//! `docs/cost-model.md` lists them and shows what happens when they are wrong.

use crate::engine::{Engine, Placement};
use crate::machine::{MachineModel, Math};
pub use crate::machines::{Figure, KnownMachine, MACHINES, Origin, machine};
use crate::model::ModelShape;
use crate::step::{Pages, Waits};
use crate::waits::Barrier;

/// The ArcLight paper's machine: 4 nodes of 48 Kunpeng 920 cores, six DDR4 channels each.
pub fn kunpeng_920() -> MachineModel {
    MACHINES[0].model()
}

/// Arm's machine: 2 nodes of 64 Neoverse N2 cores.
pub fn neoverse_n2() -> MachineModel {
    MACHINES[1].model()
}

/// Qwen3-4B with Q4_0 matrices, a tied Q6_K head and a Q4_0 KV cache, as the ArcLight paper ran it
/// (shape: the model's published configuration; KV type: the paper's appendix A.3).
pub fn qwen3_4b_q4_0() -> ModelShape {
    let q4_0 = 18.0 / 32.0; // 32 weights: 16 bytes of nibbles and a half-precision scale
    let q6_k = 210.0 / 256.0;
    ModelShape {
        layers: 36,
        hidden: 2560,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        ff: 9728,
        ff_inputs: 2,
        vocab: 151_936,
        window: None,
        layer_weight: q4_0,
        layer_math: Math::Int8,
        head_weight: q6_k,
        head_math: Math::Int8,
        kv_element: q4_0,
    }
}

/// Llama 3 8B in Q4_0 as llama.cpp's tools write it, with a Q6_K head and a cache of half floats, as
/// Arm ran it.
pub fn llama3_8b_q4_0() -> ModelShape {
    ModelShape {
        layers: 32,
        hidden: 4096,
        ff: 14336,
        vocab: 128_256,
        kv_element: 2.0,
        ..qwen3_4b_q4_0()
    }
}

/// llama.cpp on ArcLight's machine: pages where the system put them, about half on node 0.
pub fn llama_cpp() -> Engine {
    Engine::unplaced(MACHINES[0].unplaced())
}

/// llama.cpp on Arm's machine: all pages on node 0.
pub fn llama_cpp_on_n2() -> Engine {
    Engine::unplaced(MACHINES[1].unplaced())
}

/// llama.cpp with Arm's patch: each thread's rows in its node, quantised inputs once per node, and a
/// barrier of which one thread per node crosses. Where the cache of keys and values lies the text does
/// not say; it is taken to go round the nodes.
pub fn llama_cpp_numa_aware() -> Engine {
    let hierarchical = |w: Waits| Waits { barrier: Barrier::Hierarchical, ..w };
    let flat = Engine::replicated();
    let (layer_waits, prompt_waits) =
        (hierarchical(flat.layer_waits), hierarchical(flat.prompt_waits));
    Engine { layer_waits, prompt_waits, ..flat }
}

/// ArcLight as published, Sync B: layers split, the LM head whole on node 0, 47 waits a layer, 23
/// of them on a counter of all threads (counted in its code).
pub fn arclight() -> Engine {
    let waits = Waits { local: 24, global: 23, barrier: Barrier::Flat };
    Engine {
        placement: Placement::Split,
        head: Some(Pages::first_touch(0, 1.0, 4).expect("all on one of four nodes")),
        layer_waits: waits,
        prompt_waits: waits,
        ..llama_cpp()
    }
}

/// ArcLight as published, Sync A: all 47 waits are for all threads.
pub fn arclight_sync_a() -> Engine {
    let waits = Waits { local: 0, global: 47, barrier: Barrier::Flat };
    Engine { layer_waits: waits, prompt_waits: waits, ..arclight() }
}
