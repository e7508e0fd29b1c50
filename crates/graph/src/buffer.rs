//! Buffers: the activation memory that instructions read and write.
//!
//! A buffer is declared once per role and shared by all layers of the same parity, so the
//! activations of a model of any depth take two layers' worth of memory (the paper's double
//! buffer, §2.3). Sizes come from the model and the plan, never by hand.

use std::collections::HashMap;

/// Index of a buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct BufId(pub(crate) u32);

/// Who owns a copy of a buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    /// One copy per node, shared by its threads.
    Node,
    /// One copy per thread: private, nobody ever waits for it.
    Thread,
    /// One copy in all, written by every node and read by the caller.
    Host,
    /// Not memory of the activations: the pages of a state, tracked for hazards only.
    Cache,
}

/// How many rows a buffer has.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pool {
    /// The largest number of tokens of a step.
    Tokens,
    /// The largest number of outputs of a step.
    Outputs,
    /// The largest number of rows that are worked on privately.
    Private,
    /// So many for each token of the largest step.
    Slots(usize),
    /// So many for each row that is worked on privately.
    PrivateSlots(usize),
    /// The largest number of (token, KV range) pairs of split attention.
    States,
    /// None.
    Nothing,
}

/// A declared buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its role, for people.
    pub name: String,
    /// Who owns it.
    pub home: Home,
    /// How many rows.
    pub rows: Pool,
    /// Bytes of a row on each node, a multiple of 64.
    pub row_bytes: Vec<usize>,
}

/// All buffers of a graph.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    all: Vec<Buffer>,
    by_name: HashMap<(String, Home, Pool), BufId>,
    nodes: usize,
    logits_bytes: usize,
}

impl Buffers {
    /// No buffers yet; `vocab` sizes the logits.
    pub fn new(nodes: usize, vocab: usize) -> Buffers {
        let logits_bytes = vocab.next_multiple_of(kernels::TILE_ROWS) * size_of::<f32>();
        Buffers { nodes, logits_bytes, ..Buffers::default() }
    }

    /// The buffer of a role, declared on first use, as wide as its widest user.
    pub fn declare(&mut self, role: &str, home: Home, rows: Pool, row_bytes: &[usize]) -> BufId {
        let key = (role.to_owned(), home, rows);
        let id = *self.by_name.entry(key).or_insert_with(|| {
            let name = match home {
                Home::Thread => format!("own {role}"),
                _ => role.to_owned(),
            };
            self.all.push(Buffer { name, home, rows, row_bytes: vec![0; self.nodes] });
            BufId(self.all.len() as u32 - 1)
        });
        let buffer = &mut self.all[id.0 as usize];
        for (have, &want) in buffer.row_bytes.iter_mut().zip(row_bytes) {
            *have = (*have).max(want.next_multiple_of(64));
        }
        id
    }

    /// The logits of the step.
    pub fn logits(&mut self) -> BufId {
        let widths = vec![self.logits_bytes; self.nodes];
        self.declare("logits", Home::Host, Pool::Outputs, &widths)
    }

    /// The hidden states of the step, `width` f32 each.
    pub fn hidden(&mut self, width: usize) -> BufId {
        let bytes = width.next_multiple_of(kernels::TILE_ROWS) * size_of::<f32>();
        self.declare("hidden", Home::Host, Pool::Outputs, &vec![bytes; self.nodes])
    }

    /// Hidden states that later steps recall, `bytes` each: of the model's steps, and of those that predict.
    pub fn remembered(&mut self, bytes: &[usize]) -> [BufId; 2] {
        ["remembered", "predicted"].map(|role| self.declare(role, Home::Node, Pool::Tokens, bytes))
    }

    /// The pages of a state.
    pub fn state(&mut self, state: usize) -> BufId {
        self.declare(&format!("kv.{state}"), Home::Cache, Pool::Nothing, &[])
    }

    /// The cosines and sines of a rotary embedding for the step's tokens.
    pub fn rope(&mut self, rope: usize, row_bytes: usize) -> BufId {
        let widths = vec![row_bytes; self.nodes];
        self.declare(&format!("rope.{rope}"), Home::Node, Pool::Tokens, &widths)
    }

    /// A buffer's declaration.
    pub fn get(&self, id: BufId) -> &Buffer {
        &self.all[id.0 as usize]
    }

    /// All declarations, by index.
    pub fn iter(&self) -> impl Iterator<Item = &Buffer> {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_cache_lines_and_as_wide_as_their_widest_user() {
        // Threads that write different rows never write to one line.
        let mut buffers = Buffers::new(2, 300);
        let id = buffers.declare("sum", Home::Node, Pool::Tokens, &[4, 100]);
        assert_eq!(buffers.get(id).row_bytes, [64, 128]);
        assert_eq!(buffers.declare("sum", Home::Node, Pool::Tokens, &[65, 1]), id);
        assert_eq!(buffers.get(id).row_bytes, [128, 128]);
        let logits = buffers.logits();
        assert_eq!(buffers.get(logits).row_bytes, [1216, 1216]); // 304 f32
    }
}
