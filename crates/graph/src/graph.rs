//! A model's graph: the static list of its operators, and the tables whose entries they name by number.

use crate::keep::{KV_CLASSES, Keep};
use crate::operator::Node;
use crate::step::Ids;
use crate::tables::Tables;
use crate::tensor::{Bundle, BundleInfo};
use crate::weight::{Matrix, MatrixId, TensorSpec};
use kernels::KV_PAGE;
use std::ops::Range;

/// A model's graph: operators in the order of execution, weights, states.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(crate) tables: Tables,
    pub(crate) ops: Vec<Node>,
    pub(crate) classes: Vec<Keep>,
    pub(crate) vocab: usize,
    pub(crate) types: usize, // of tokens; 0 if they have none
    /// Operators of the model; those behind them predict further tokens.
    pub(crate) model_ops: Option<usize>,
    pub(crate) tensors: Vec<TensorSpec>, // as they were first asked for
}

impl Graph {
    /// Number of memory nodes that the graph was built for.
    pub fn nodes(&self) -> usize {
        self.tables.nodes()
    }

    /// Vocabulary size: width of a row of logits.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Ids that a step's tokens may have: the vocabulary, once for each type of tokens. Token `id` of type `t` is
    /// `t * vocab + id`.
    pub fn ids(&self) -> usize {
        self.vocab * self.types.max(1)
    }

    pub(crate) fn token_ids(&self) -> Ids {
        Ids { vocab: self.vocab, types: self.types.max(1), width: 0 }
    }

    /// Bundle metadata.
    pub fn bundle(&self, b: Bundle) -> &BundleInfo {
        self.tables.bundle(b)
    }

    /// Matrix metadata.
    pub fn matrix(&self, m: MatrixId) -> &Matrix {
        self.tables.matrix(m)
    }

    /// All matrices.
    pub fn matrices(&self) -> &[Matrix] {
        &self.tables.matrices
    }

    /// The operators in the order of execution: the static list.
    pub fn ops(&self) -> &[Node] {
        &self.ops
    }

    /// The operators that make logits of tokens.
    pub fn model_ops(&self) -> Range<usize> {
        0..self.model_ops.unwrap_or(self.ops.len())
    }

    /// The operators that predict further tokens, if there are such.
    pub fn predicting_ops(&self) -> Option<Range<usize>> {
        self.model_ops.map(|first| first..self.ops.len())
    }

    /// The tensors of the file that this graph is made of, each once.
    pub fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    /// Settles on sequences of up to `context` tokens. Rotary embeddings are for all of their positions:
    /// keys that are in the cache already could not change with the length. A window in which all of
    /// them fit is none.
    pub fn set_context(&mut self, context: usize) {
        for rope in &mut self.tables.ropes {
            if let Some((_, inv_freq)) = rope.long.take_if(|(above, _)| context > *above) {
                rope.inv_freq = inv_freq;
            }
        }
        for state in &mut self.tables.states {
            match state.keep {
                Keep::Window(held) | Keep::Chunk(held) if held >= context => state.keep = Keep::All,
                Keep::Text { near } if near >= Some(context - 1) => {
                    state.keep = Keep::Text { near: None };
                }
                _ => {}
            }
        }
        self.classify();
    }

    /// Sorts the states into classes: one for each way to keep, in the order of the operators.
    pub(crate) fn classify(&mut self) {
        self.classes.clear();
        for state in &mut self.tables.states {
            let known = self.classes.iter().position(|keep| *keep == state.keep);
            state.class = known.unwrap_or_else(|| {
                self.classes.push(state.keep);
                self.classes.len() - 1
            });
        }
        assert!(self.classes.len() <= KV_CLASSES, "classes of {:?}", self.classes);
    }

    /// What is kept in the pages of each class. Layers of a class share its pages.
    pub fn classes(&self) -> &[Keep] {
        &self.classes
    }

    /// Whether tokens see those behind them, so that a step has whole texts.
    pub fn reads_texts(&self) -> bool {
        self.classes.iter().any(|keep| keep.is_text())
    }

    /// The windows of the classes that keep something of tokens; a sequence holds no more pages of them
    /// than its window spans.
    pub fn windows(&self) -> Vec<Option<usize>> {
        let paged = self.classes.iter().filter(|keep| keep.is_paged());
        paged.map(|keep| keep.window()).collect()
    }

    /// Number of states in a class.
    pub fn class_layers(&self, class: usize) -> usize {
        self.tables.states.iter().filter(|state| state.class == class).count()
    }

    /// Bytes of a page of a class on `node`.
    pub fn page_bytes(&self, node: usize, kv: impl Into<crate::KvTypes>, class: usize) -> usize {
        let (layers, kv) =
            (self.tables.states.iter().filter(|state| state.class == class), kv.into());
        layers.map(|state| state.page_bytes(node, kv)).sum()
    }

    /// Bytes of one token's keys and values on `node`, in the layers of a class.
    pub fn kv_bytes_per_token(
        &self,
        node: usize,
        kv: impl Into<crate::KvTypes>,
        class: usize,
    ) -> usize {
        if self.classes[class].is_paged() { self.page_bytes(node, kv, class) / KV_PAGE } else { 0 }
    }
}
