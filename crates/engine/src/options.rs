//! How a model is to be loaded.

use graph::KvType;

/// Options of [`Engine::load`](crate::Engine::load). The default asks the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Memory nodes to use. More than the machine has makes virtual nodes. Default: all usable.
    pub nodes: Option<usize>,
    /// Threads. Default: one per physical core that this process may use.
    pub threads: Option<usize>,
    /// Tokens that one sequence can hold. Default: what the model was trained for, if its KV cache
    /// fits in half of the machine's memory, otherwise what does.
    pub context: Option<usize>,
    /// Sequences that can exist at once. Default: 1.
    pub sequences: Option<usize>,
    /// Tokens in a step: a longer prompt is taken in chunks. Default: 512.
    pub step_tokens: Option<usize>,
    /// Rows of logits in a step. Default: one per sequence.
    pub step_outputs: Option<usize>,
    /// How keys and values are stored. Default: f16.
    pub kv: KvType,
    /// Leaves the affinity of threads alone.
    pub no_pin: bool,
}
