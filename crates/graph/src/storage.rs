//! Where buffers and KV pages lie: blocks of the nodes' arenas.
//!
//! An arena per node holds the two activation halves and the private buffers of the node's threads,
//! another the KV pages. Their sizes follow from the declarations; nothing is allocated after load.

use crate::buffer::{BufId, Buffers, Home, Pool};
use crate::builder::Graph;
use crate::cache::{self, CacheLayout, KvType};
use crate::error::Error;
use crate::plan::Plan;
use memory::{Arena, ArenaOptions, Block, HugePages};

/// The largest step that an executor is sized for, and how it keeps keys and values.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How keys and values are stored.
    pub kv: KvType,
    /// Tokens in a step.
    pub tokens: usize,
    /// Rows of logits in a step.
    pub outputs: usize,
    /// KV pages.
    pub pages: usize,
    /// (Token, KV range) pairs of split attention.
    pub ranges: usize,
}

/// Bytes that a model's state takes on one node.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeBytes {
    /// Packed weights and vectors.
    pub weights: usize,
    /// KV pages.
    pub kv: usize,
    /// Activations, double-buffered, and the threads' private buffers.
    pub activations: usize,
}

const ALIGN: usize = 64;

/// Blocks of all buffers, scratch and caches.
pub(crate) struct Storage {
    arenas: Vec<Arena>,
    shared: Vec<Vec<Option<Block>>>,  // [buffer][node]
    private: Vec<Vec<Option<Block>>>, // [buffer][thread]
    caches: Vec<Vec<CacheLayout>>,    // [node][layer]
    scratch: Vec<Block>,              // [thread]
    strides: Vec<Vec<usize>>,         // [buffer][node], bytes
    host: Vec<bool>,                  // [buffer]
    bytes: Vec<NodeBytes>,
}

impl Storage {
    /// Allocates everything for `plan`; `scratch` f32 per thread for kernels.
    pub(crate) fn new(
        graph: &Graph,
        buffers: &Buffers,
        plan: &Plan,
        limits: Limits,
        private_rows: usize,
        scratch: usize,
    ) -> Result<Storage, Error> {
        let rows = |pool: Pool| match pool {
            Pool::Tokens => limits.tokens,
            Pool::Outputs => limits.outputs,
            Pool::Private => private_rows,
            Pool::States => limits.ranges,
            Pool::Nothing => 0,
        };
        let threads = plan.threads();
        let count = buffers.iter().count();
        let mut storage = Storage {
            arenas: Vec::new(),
            shared: vec![vec![None; graph.nodes()]; count],
            private: vec![vec![None; threads]; count],
            caches: Vec::new(),
            scratch: Vec::new(),
            strides: buffers.iter().map(|b| b.row_bytes.clone()).collect(),
            host: buffers.iter().map(|b| b.home == Home::Host).collect(),
            bytes: Vec::new(),
        };
        let mut thread = 0;
        for (node, group) in plan.groups.iter().enumerate() {
            let activations: usize = buffers
                .iter()
                .map(|b| {
                    let one = rows(b.rows) * b.row_bytes.get(node).copied().unwrap_or(0);
                    match b.home {
                        Home::Node => one + ALIGN,
                        Home::Thread => (one + ALIGN) * group.cpus.len(),
                        Home::Host if node == 0 => one + ALIGN,
                        Home::Host | Home::Cache => 0,
                    }
                })
                .sum::<usize>()
                + (scratch * size_of::<f32>() + ALIGN) * group.cpus.len();
            // Small pages: most steps use the first rows of each buffer only.
            let options =
                ArenaOptions { node: group.node, huge: HugePages::Off, name: "activations" };
            let mut arena = Arena::new(activations, &options)?;
            for (id, b) in buffers.iter().enumerate() {
                let one = rows(b.rows) * b.row_bytes.get(node).copied().unwrap_or(0);
                match b.home {
                    Home::Node => storage.shared[id][node] = Some(arena.alloc(one, ALIGN)?),
                    Home::Host if node == 0 => {
                        storage.shared[id][0] = Some(arena.alloc(one, ALIGN)?);
                    }
                    Home::Host | Home::Cache => {}
                    Home::Thread => {
                        for rank in 0..group.cpus.len() {
                            storage.private[id][thread + rank] = Some(arena.alloc(one, ALIGN)?);
                        }
                    }
                }
            }
            for _ in &group.cpus {
                storage.scratch.push(arena.alloc(scratch * size_of::<f32>(), ALIGN)?);
            }
            storage.arenas.push(arena);
            let (arena, layers) = cache::allocate(graph, node, group.node, limits)?;
            storage.bytes.push(NodeBytes { weights: 0, kv: arena.used(), activations });
            storage.arenas.push(arena);
            storage.caches.push(layers);
            thread += group.cpus.len();
        }
        Ok(storage)
    }

    /// The copy of a buffer that `thread` of `node` works on.
    pub(crate) fn of(&self, buf: BufId, node: usize, thread: usize) -> Block {
        let id = buf.0 as usize;
        self.private[id][thread]
            .or(self.shared[id][node])
            .or(self.shared[id][0])
            .expect("a buffer of this graph")
    }

    /// The copy of a shared buffer on `node`.
    pub(crate) fn on(&self, buf: BufId, node: usize) -> Block {
        self.shared[buf.0 as usize][node].expect("a shared buffer")
    }

    /// Bytes from one row of a buffer to the next on `node`.
    pub(crate) fn stride(&self, buf: BufId, node: usize) -> usize {
        self.strides[buf.0 as usize][node]
    }

    /// Whether a buffer is the caller's.
    pub(crate) fn is_host(&self, buf: BufId) -> bool {
        self.host[buf.0 as usize]
    }

    /// KV pages of a layer on a node.
    pub(crate) fn cache(&self, layer: usize, node: usize) -> &CacheLayout {
        &self.caches[node][layer]
    }

    /// Kernel scratch of a thread.
    pub(crate) fn scratch(&self, thread: usize) -> Block {
        self.scratch[thread]
    }

    /// Bytes per node.
    pub(crate) fn bytes(&self) -> &[NodeBytes] {
        &self.bytes
    }

    /// What the kernel refused when the arenas were made.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.arenas.iter().flat_map(|a| a.warnings().iter().map(ToString::to_string))
    }
}
