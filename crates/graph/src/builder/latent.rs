//! Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1) with absorbed projections.
//!
//! All heads see one key of each token: a few elements with RoPE, and a *latent* of which keys and values of
//! heads would be made by a matrix of each head. Instead, queries are multiplied by the keys' matrix before
//! attention and what attention gives by the values' matrix behind it, so the cache holds latents only. A
//! head here is `[rope | latent]`; latents are keys and values at once.

use super::{Builder, Tensors};
use crate::error::Error;
use crate::op::{Attention, Given, Heads};
use crate::placement::Cut;
use crate::tensor::{Bundle, Domain};
use crate::weight::{ByHead, Layout, Matrix, MatrixId, Part, SplitBy, block_cols};
use gguf::TensorType;
use kernels::{ActKind, TILE_ROWS};

/// Query heads that are attended together, at most: as many as the rows of a tile.
const TOGETHER: usize = 16;

/// Sizes of latent attention.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LatentSizes {
    /// Query heads.
    pub heads: usize,
    /// Elements of a latent.
    pub rank: usize,
    /// Elements of queries and keys with RoPE.
    pub rope: usize,
    /// Elements of a head's query and key without it.
    pub nope: usize,
    /// Elements of a head's value.
    pub value: usize,
}

/// Where files have the matrices that make keys and values of latents.
#[derive(Copy, Clone, Debug)]
pub enum UpProjection<'n> {
    /// `[heads, rank, nope]` and `[heads, value, rank]`.
    Apart {
        /// Of keys, transposed.
        keys: &'n str,
        /// Of values.
        values: &'n str,
    },
    /// `[heads * (nope + value), rank]`.
    Fused(&'n str),
}

impl LatentSizes {
    /// Elements of a key.
    pub fn key(&self) -> usize {
        self.rope + self.rank
    }

    fn check(&self, of: ActKind) -> Result<(), Error> {
        let (unit, need) = match of {
            ActKind::F32 => (TILE_ROWS, "a multiple of 16"),
            ActKind::Bf16 | ActKind::Q8 => (32, "a multiple of 32 for its type of weights"),
        };
        for (what, value) in [
            ("attention.kv_lora_rank", self.rank),
            ("rope.dimension_count", self.rope),
            ("attention.key_length_mla without RoPE", self.nope),
            ("attention.value_length_mla", self.value),
        ] {
            if value == 0 || !value.is_multiple_of(unit) {
                return Err(Error::BadDimension { what, value, need });
            }
        }
        Ok(())
    }
}

impl Builder<'_> {
    /// Shares the query heads between the nodes, so that the columns of the output projection, `(name,
    /// rows)`, are cut in whole quantisation blocks.
    ///
    /// # Errors
    /// When there is no such projection, or sizes do not fill tiles.
    pub fn latent_heads(&self, of: &LatentSizes, output: (&str, usize)) -> Result<Heads, Error> {
        of.check(ActKind::F32)?;
        let (q, value) = (of.heads, of.value);
        let block = block_cols(self.catalog.wanted(output.0, output.1, q * value)?);
        let unit = (1..=q).find(|u| (u * value).is_multiple_of(block)).unwrap_or(q);
        let q_cut = Cut::heads(q, 1, unit, value, &self.shares);
        let together = (1..=TOGETHER).rev().find(|n| q.is_multiple_of(*n)).unwrap_or(1);
        Ok(Heads { q, kv: q / together, dim: of.key(), q_cut, shared: true, given: Given::Nothing })
    }

    /// Declares a matrix that every node has.
    ///
    /// # Errors
    /// As [`Catalog::wanted`](crate::Catalog::wanted).
    pub fn on_every_node(
        &mut self,
        what: &str,
        tensor: &str,
        (rows, cols): (usize, usize),
    ) -> Result<MatrixId, Error> {
        let cut = Cut::replicated(vec![0..rows; self.graph.nodes()]);
        let parts = self.stack(Tensors::Apart([tensor]), [(rows, cut)], cols)?;
        Ok(self.add_matrix(what, SplitBy::Rows, parts))
    }

    /// Declares the matrix of latents and what RoPE rotates of keys, which every node has: `[rank + rope,
    /// hidden]`.
    ///
    /// # Errors
    /// As [`Catalog::wanted`](crate::Catalog::wanted).
    pub fn latents(
        &mut self,
        tensor: &str,
        of: &LatentSizes,
        hidden: usize,
    ) -> Result<MatrixId, Error> {
        let ty = self.wanted(tensor, of.key(), hidden)?;
        let scale = self.scale(tensor, ty, 1)?;
        // What files have last comes first.
        let part = |(first, rows): (usize, usize)| Part {
            first,
            scale,
            cut: Cut::replicated(vec![0..rows; self.graph.nodes()]),
            ..Part::plain(tensor, ty, (rows, hidden), Cut::replicated(Vec::new()))
        };
        let parts = [(of.rank, of.rope), (0, of.rank)].map(part).to_vec();
        Ok(self.add_matrix("latents", SplitBy::Rows, parts))
    }

    /// Declares the matrix of queries, `[heads * (nope + rope), cols]`, rows cut by heads.
    ///
    /// # Errors
    /// As [`Catalog::wanted`](crate::Catalog::wanted).
    pub fn latent_queries(
        &mut self,
        tensor: &str,
        of: &LatentSizes,
        cols: usize,
        heads: &Heads,
    ) -> Result<MatrixId, Error> {
        let each = of.nope + of.rope;
        let rows = (of.heads * each, heads.q_cut.scaled(each));
        let parts = self.stack(Tensors::Apart([tensor]), [rows], cols)?;
        Ok(self.add_matrix("queries", SplitBy::Rows, parts))
    }

    /// Declares the matrices that are absorbed, by head: what queries are multiplied by before attention, and
    /// what attention gives behind it.
    ///
    /// # Errors
    /// As [`Catalog::wanted`](crate::Catalog::wanted), or when sizes are no whole blocks of activations.
    pub fn absorbed(
        &mut self,
        from: UpProjection<'_>,
        of: &LatentSizes,
        heads: &Heads,
    ) -> Result<(MatrixId, MatrixId), Error> {
        let LatentSizes { heads: q, rank, rope, nope, value } = *of;
        let cut = |rows: usize| heads.q_cut.scaled(rows);
        let plain = |name: &str, ty, (rows, cols), cut| Part {
            cut,
            ..Part::plain(name, ty, (rows, cols), Cut::replicated(Vec::new()))
        };
        let (keys, values) = match from {
            UpProjection::Apart { keys, values } => {
                let (k, v) = (
                    self.wanted_bank(keys, q, rank, nope)?,
                    self.wanted_bank(values, q, value, rank)?,
                );
                (
                    plain(keys, k, (q * rank, nope), cut(rank)),
                    plain(values, v, (q * value, rank), cut(value)),
                )
            }
            UpProjection::Fused(name) => {
                let step = nope + value;
                let ty = self.wanted(name, q * step, rank)?;
                // Columns of blocks are no blocks.
                let turned = match ty {
                    TensorType::F32 | TensorType::BF16 => ty,
                    _ => TensorType::F16,
                };
                (
                    Part {
                        layout: Layout::Columns { len: rank, step },
                        ..plain(name, turned, (q * rank, nope), cut(rank))
                    },
                    Part {
                        first: nope,
                        layout: Layout::Runs { len: value, step },
                        ..plain(name, ty, (q * value, rank), cut(value))
                    },
                )
            }
        };
        for part in [&keys, &values] {
            of.check(kernels::act_kind(part.ty))?;
        }
        let mut add = |name: &str, part, by_head| {
            let (name, parts, split) = (name.to_owned(), vec![part], SplitBy::Rows);
            self.add(Matrix { name, parts, split, bank: None, by_head: Some(by_head), clamp: None })
        };
        let (each, key) = (nope + rope, of.key());
        let (input, carried) = ((each, 0..nope), nope..each);
        let keys = add("absorbed", keys, ByHead { rows: rank, input, output: key, carried });
        let (input, carried) = ((key, rope..key), 0..0);
        let values = add("values", values, ByHead { rows: value, input, output: value, carried });
        Ok((keys, values))
    }

    /// Declares the output projection, `[hidden, heads * value]`: columns cut by heads.
    ///
    /// # Errors
    /// As [`Catalog::wanted`](crate::Catalog::wanted).
    pub fn latent_output(
        &mut self,
        tensor: &str,
        of: &LatentSizes,
        hidden: usize,
        heads: &Heads,
    ) -> Result<MatrixId, Error> {
        let cols = of.heads * of.value;
        let ty = self.wanted(tensor, hidden, cols)?;
        let (scale, cut) = (self.scale(tensor, ty, 1)?, heads.q_cut.scaled(of.value));
        let part = Part { scale, ..Part::plain(tensor, ty, (hidden, cols), cut) };
        Ok(self.add_matrix("attn_output", SplitBy::Cols, vec![part]))
    }

    /// The product with a matrix that every node has: replicated.
    pub fn linear_everywhere(&mut self, x: Bundle, matrix: MatrixId) -> Bundle {
        self.everywhere_product(x, matrix)
    }

    /// Attention of absorbed queries over latents, whose cache is made here. Gives `[rope | latent]` of each
    /// head, of which the former means nothing.
    pub fn latent_attention(&mut self, q: Bundle, latents: Bundle, spec: Attention) -> Bundle {
        assert!(spec.heads.shared, "latents are the keys of all heads");
        assert_eq!(self.graph.bundle(latents).domain, Domain::Tokens);
        self.attend(q, Some(latents), spec)
    }
}
