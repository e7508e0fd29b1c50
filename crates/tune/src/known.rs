//! Published machines, models and engines, with the origin of every number.
//!
//! *Taken* numbers are measured or stated by someone; *assumed* ones are typical of the hardware;
//! *fitted* ones are chosen so that the model agrees with a sentence of the ArcLight paper, which
//! is named. `docs/cost-model.md` lists them and shows what happens when they are wrong.

use crate::engine::{Engine, Placement};
use crate::machine::{CoreRead, MachineModel, parse_matrix};
use crate::model::ModelShape;
use crate::step::{Pages, Waits};
use crate::waits::{Barrier, WaitModel};

/// GB/s that the cores of a node (row) read from a memory (column). Taken: ArcLight, table 1.
pub const KUNPENG_920_GB_S: &str = "
    102  26  24  23
     26 103  23  22
     24  23 103  26
     23  22  26 101
";

/// Share of the model's pages on node 0 when llama.cpp runs on the paper's machine.
///
/// Fitted: the largest gain of ArcLight over it is to be 46 % (ArcLight, abstract).
pub const HOME_SHARE: f64 = 0.525;

/// The ArcLight paper's machine: 4 nodes of 48 Kunpeng 920 cores, six DDR4 channels each.
pub fn kunpeng_920() -> MachineModel {
    let read = parse_matrix(KUNPENG_920_GB_S).expect("the table above is square");
    let core = CoreRead {
        // Fitted: one node speeds up until all of its 48 cores are used (ArcLight, section 4), so
        // 102 GB/s need at least 46 of them.
        local: 2.2e9,
        // Fitted: on one node ArcLight is "slightly" ahead of spread pages at every thread count.
        remote: 1.8e9,
    };
    let waits = WaitModel {
        // Fitted: Sync B gains about 5 tokens/s over Sync A (ArcLight, section 4). Atomics are
        // executed at the line's home (ARMv8.1 LSE), so a remote arrival occupies it as long.
        arrival: 3e-9,
        remote_arrival: 3e-9,
        // Assumed: a core-to-core transfer through the die's last-level cache.
        line: 60e-9,
        // Taken: about 0.4 us for a remote transfer, from a public discussion of another machine.
        remote_line: 400e-9,
    };
    MachineModel::new(vec![48; 4], read, core, waits).expect("the numbers above are positive")
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
        vocab: 151_936,
        layer_weight: q4_0,
        head_weight: q6_k,
        kv_element: q4_0,
    }
}

/// llama.cpp on the paper's machine: pages where the system put them, [`HOME_SHARE`] on node 0.
pub fn llama_cpp() -> Engine {
    let pages = Pages::first_touch(0, HOME_SHARE, 4).expect("the share lies in 0..=1");
    Engine::unplaced(pages)
}

/// ArcLight as published, Sync B: layers split, the LM head whole on node 0, 47 waits a layer, 23
/// of them on a counter of all threads (counted in its code).
pub fn arclight() -> Engine {
    Engine {
        placement: Placement::Split,
        head: Some(Pages::first_touch(0, 1.0, 4).expect("all on one of four nodes")),
        layer_waits: Waits { local: 24, global: 23, barrier: Barrier::Flat },
    }
}

/// ArcLight as published, Sync A: all 47 waits are for all threads.
pub fn arclight_sync_a() -> Engine {
    let layer_waits = Waits { local: 0, global: 47, barrier: Barrier::Flat };
    Engine { layer_waits, ..arclight() }
}
