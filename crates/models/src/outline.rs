//! Models that have no weights yet.

use crate::{Error, Hparams, Model, Wanted, architecture, program};
use gguf::{Metadata, TensorType};
use graph::{Catalog, Shares};
use std::ops::Range;

/// A model's metadata, and what its file would say besides. Its graph is built as that of a file, and
/// tells which tensors the file has to have ([`graph::Graph::tensors`]).
#[derive(Clone, Copy)]
pub struct Outline<'a> {
    /// Architecture and hyper-parameters.
    pub metadata: &'a Metadata<'a>,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// The type of a matrix by its name and columns. Vectors are F32.
    pub ty: &'a dyn Fn(&str, usize) -> TensorType,
    /// Tensors that the model has and others of its architecture go without, such as a head.
    pub extras: &'a [&'a str],
    /// The same of tensors that every layer of theirs has, without the layer: `attn_q.bias`.
    pub of_layers: &'a [&'a str],
    /// Small tensors on which the graph itself depends, such as divisors of rotary angles.
    pub values: &'a [(&'a str, Vec<f32>)],
    /// Whether the layers that predict further tokens are wanted as well.
    pub predicts: bool,
}

impl Outline<'_> {
    /// Builds the graph for the memory nodes of `shares`.
    ///
    /// # Errors
    /// When the architecture or one of its features is not supported, or metadata is missing or
    /// implausible.
    pub fn build(&self, shares: impl Into<Shares>) -> Result<Model, Error> {
        self.of(shares.into(), None)
    }

    /// The same of a run of layers, as [`build_part`](crate::build_part) builds them.
    ///
    /// # Errors
    /// As [`Outline::build`], and when more than the residual stream goes from these layers to others.
    pub fn build_part(
        &self,
        shares: impl Into<Shares>,
        layers: Range<usize>,
    ) -> Result<Model, Error> {
        self.of(shares.into(), Some(layers))
    }

    fn of(&self, shares: Shares, part: Option<Range<usize>>) -> Result<Model, Error> {
        let hparams = Hparams::of(self.metadata, self.vocab)?;
        let wanted = Wanted { metadata: self.metadata, predicts: self.predicts, part };
        program(architecture(self.metadata)?, hparams, wanted, shares, self)
    }
}

/// Whether a tensor of several rows is none that is multiplied by: biases of experts and of distances, embeddings of
/// positions, norms of heads with weights of their own, and small tensors of recurrences and of several streams. Files
/// have these as F32, whatever their type.
pub fn is_vector(name: &str) -> bool {
    const KINDS: [&str; 10] = [
        "attn_rel_b",
        "attn_q_norm",
        "attn_k_norm",
        "ssm_conv1d",
        "shortconv.conv",
        "ssm_a",
        "ssm_d",
        "ssm_norm",
        "altup_correct_coef",
        "altup_predict_coef",
    ];
    let of_layer = name.strip_prefix("enc.").unwrap_or(name).strip_prefix("blk.");
    let kind = of_layer.and_then(|rest| rest.split_once('.'));
    let kind = kind.map(|(_, kind)| kind.strip_suffix(".weight").unwrap_or(kind));
    let tables = ["position_embd.weight", "token_types.weight"];
    let whole = tables.contains(&name) || name.ends_with(".bias");
    whole || kind.is_some_and(|kind| KINDS.contains(&kind))
}

impl Outline<'_> {
    fn in_layers(&self, name: &str) -> bool {
        let of_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        of_layer.is_some_and(|(_, tensor)| self.of_layers.contains(&tensor))
    }
}

impl Catalog for Outline<'_> {
    fn wanted(&self, name: &str, rows: usize, cols: usize) -> Result<TensorType, graph::Error> {
        Ok(if rows == 1 || is_vector(name) { TensorType::F32 } else { (self.ty)(name, cols) })
    }

    fn has(&self, name: &str) -> bool {
        self.extras.contains(&name)
            || self.in_layers(name)
            || self.values.iter().any(|(known, _)| *known == name)
    }

    fn values(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, graph::Error> {
        let Some((_, values)) = self.values.iter().find(|(known, _)| *known == name) else {
            return Ok(None);
        };
        if values.len() != len {
            let (name, got_cols) = (name.to_owned(), values.len());
            return Err(graph::Error::WrongShape {
                name,
                got_rows: 1,
                got_cols,
                rows: 1,
                cols: len,
            });
        }
        Ok(Some(values.clone()))
    }
}
