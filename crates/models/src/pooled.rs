//! What becomes of the hidden states of a text: how they are pooled, and what files have behind that.
//!
//! A model that ranks has a classifier (`cls`), whose first number is the score of a text. Embedding models may have
//! dense layers (`dense_2`, `dense_3` of EmbeddingGemma). These are small, so they are f32, and their sums f64.

use crate::{Error, Hparams};
use gguf::{Gguf, Tensor};

/// How the hidden states of a text become one vector.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The first token's, which stands for the text in models that look both ways (CLS).
    First,
    /// The last token's, which has seen all others.
    Last,
    /// The mean of all tokens'.
    Mean,
}

/// Tensors that are no part of the graph.
pub(crate) const TENSORS: [&str; 7] = [
    "cls.weight",
    "cls.bias",
    "cls.norm.weight",
    "cls.output.weight",
    "cls.output.bias",
    "dense_2.weight",
    "dense_3.weight",
];

impl Pooling {
    /// What a file asks for. One that says nothing has texts that are read (mean) or written (last token).
    ///
    /// # Errors
    /// When it asks for a kind that does not exist.
    pub fn of(gguf: &Gguf<'_>) -> Result<Pooling, Error> {
        let metadata = gguf.metadata();
        let arch = metadata.str("general.architecture")?;
        let key = format!("{arch}.pooling_type");
        // Files of T5's encoder do not say it.
        let reads = arch == "t5encoder"
            || metadata.opt_bool(&format!("{arch}.attention.causal"))? == Some(false);
        Ok(match metadata.opt_u32(&key)? {
            None | Some(0) if reads => Pooling::Mean,
            None | Some(0 | 3) => Pooling::Last,
            Some(1) => Pooling::Mean,
            Some(2) => Pooling::First,
            Some(RANK) if arch == "modern-bert" => {
                match metadata.opt_u32(&format!("{arch}.classifier.pooling_type"))? {
                    Some(2) => Pooling::First,
                    _ => Pooling::Mean,
                }
            }
            Some(RANK) if reads => Pooling::First,
            Some(RANK) => Pooling::Last,
            Some(other) => {
                return Err(Error::UnsupportedFeature { key, value: other.to_string() });
            }
        })
    }
}

/// What a model that ranks makes of a text: numbers of which the first is its score, and no vector.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Score {
    /// A logit: its logistic function is a share of one.
    Logit,
    /// A share of one.
    Share,
}

impl Score {
    /// What a file's model gives; `None` if it does not rank texts.
    ///
    /// # Errors
    /// When the file says it in another form.
    pub fn of(gguf: &Gguf<'_>) -> Result<Option<Score>, Error> {
        let metadata = gguf.metadata();
        let arch = metadata.str("general.architecture")?;
        let ranks = metadata.opt_u32(&format!("{arch}.pooling_type"))? == Some(RANK);
        let score = if arch.starts_with("qwen3") { Score::Share } else { Score::Logit };
        Ok(ranks.then_some(score))
    }

    /// A score as a share of one.
    pub fn share(self, score: f32) -> f32 {
        match self {
            Score::Logit => (1.0 / (1.0 + (-f64::from(score)).exp())) as f32,
            Score::Share => score,
        }
    }
}

/// Reads all values of a tensor.
pub type Values<'v> = dyn Fn(&Tensor<'_>, &mut [f32]) -> Result<(), gguf::Error> + 'v;

/// `pooling_type` of a model that ranks.
const RANK: u32 = 4;

/// What is made of a text's vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    layers: Vec<Layer>,
    /// Whether the last layer's numbers become shares of one.
    shares: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Layer {
    weight: Vec<f32>, // [outputs, inputs]
    inputs: usize,
    bias: Option<Vec<f32>>,
    then: Then,
    norm: Option<(Vec<f32>, f32)>, // LayerNorm's weights and epsilon
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Nothing,
    Tanh,
    Gelu,
}

impl Projection {
    /// That of a file, if it has one. `read` reads its tensors, whose data may not be in the file yet.
    ///
    /// # Errors
    /// When its tensors have the wrong shape or values that cannot be read.
    pub fn read(gguf: &Gguf<'_>, read: &Values<'_>) -> Result<Option<Projection>, Error> {
        let values = |name: &str| -> Result<Option<Vec<f32>>, Error> {
            let Some(tensor) = gguf.tensor(name) else { return Ok(None) };
            let mut values = vec![0.0; tensor.elements()];
            read(tensor, &mut values)?;
            Ok(Some(values))
        };
        let hparams = Hparams::read(gguf)?;
        let arch = &*hparams.arch;
        let mut layers = Vec::new();
        let mut width = hparams.hidden;
        for (name, then) in [
            ("cls", if arch == "modern-bert" { Then::Gelu } else { Then::Tanh }),
            ("cls.output", Then::Nothing),
            ("dense_2", Then::Nothing),
            ("dense_3", Then::Nothing),
        ] {
            let Some(tensor) = gguf.tensor(&format!("{name}.weight")) else { continue };
            let wrong = |got_rows, got_cols, rows, cols| {
                let name = tensor.name().to_owned();
                Error::Graph(graph::Error::WrongShape { name, got_rows, got_cols, rows, cols })
            };
            let (rows, cols) = (tensor.rows(), tensor.cols());
            if cols != width {
                return Err(wrong(rows, cols, rows, width));
            }
            let weight = values(tensor.name())?.unwrap_or_default();
            let bias = values(&format!("{name}.bias"))?;
            let norm = values(&format!("{name}.norm.weight"))?;
            for own in bias.iter().chain(&norm) {
                if own.len() != rows {
                    return Err(wrong(1, own.len(), 1, rows));
                }
            }
            let norm = norm.map(|weight| (weight, hparams.norm_eps));
            layers.push(Layer { weight, inputs: cols, bias, then, norm });
            width = rows;
        }
        let shares = Score::of(gguf)? == Some(Score::Share);
        Ok((!layers.is_empty()).then_some(Projection { layers, shares }))
    }

    /// What it makes of a vector.
    pub fn apply(&self, vector: &[f32]) -> Vec<f32> {
        let mut x: Vec<f64> = vector.iter().map(|&x| f64::from(x)).collect();
        for layer in &self.layers {
            x = layer.apply(&x);
        }
        if self.shares {
            let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            x.iter_mut().for_each(|x| *x = (*x - most).exp());
            let sum: f64 = x.iter().sum();
            x.iter_mut().for_each(|x| *x /= sum);
        }
        x.into_iter().map(|x| x as f32).collect()
    }
}

impl Layer {
    fn apply(&self, x: &[f64]) -> Vec<f64> {
        let product = |row: &[f32]| row.iter().zip(x).map(|(&w, &x)| f64::from(w) * x).sum::<f64>();
        let mut y: Vec<f64> = self.weight.chunks_exact(self.inputs).map(product).collect();
        if let Some(bias) = &self.bias {
            y.iter_mut().zip(bias).for_each(|(y, &bias)| *y += f64::from(bias));
        }
        for y in &mut y {
            *y = match self.then {
                Then::Nothing => *y,
                Then::Tanh => y.tanh(),
                Then::Gelu => {
                    let inner = (2.0 / std::f64::consts::PI).sqrt() * (*y + 0.044_715 * y.powi(3));
                    0.5 * *y * (1.0 + inner.tanh())
                }
            };
        }
        if let Some((weight, eps)) = &self.norm {
            let n = y.len() as f64;
            let mean = y.iter().sum::<f64>() / n;
            let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n;
            let scale = (variance + f64::from(*eps)).sqrt().recip();
            y.iter_mut().zip(weight).for_each(|(y, &w)| *y = (*y - mean) * scale * f64::from(w));
        }
        y
    }
}
