//! The operators, one file each: what a definition states, what its instructions touch and cost, and one thread's
//! work. A new one is a file here, a `mod` line, and a method of the [`Builder`](crate::Builder).

mod attention;
mod blend;
mod choose;
mod concat;
mod convolution;
mod embed;
mod experts_down;
mod experts_up;
mod gated;
mod gather;
mod hidden;
mod linear;
mod logits;
mod lora;
mod merge;
mod modulation;
mod norm;
mod pipeline;
mod quantize;
mod recurrence;
mod remember;
mod residual;
mod rope_table;
mod rows;
mod scatter;
mod select;
mod streams;
mod tell;

pub(crate) use attention::AttentionOp;
pub(crate) use blend::BlendOp;
pub(crate) use choose::ChooseOp;
pub(crate) use concat::ConcatOp;
pub(crate) use convolution::ConvolutionOp;
pub(crate) use embed::EmbedOp;
pub(crate) use experts_down::ExpertsDownOp;
pub(crate) use experts_up::ExpertsUpOp;
pub(crate) use gated::GatedOp;
pub(crate) use gather::GatherInstr;
pub(crate) use hidden::HiddenOp;
pub(crate) use linear::LinearOp;
pub(crate) use logits::LogitsOp;
pub(crate) use merge::MergeOp;
pub(crate) use modulation::ModulationOp;
pub(crate) use norm::NormOp;
pub(crate) use pipeline::{ReceiveInstr, SendInstr};
pub(crate) use recurrence::RecurrenceOp;
pub(crate) use remember::{RecallOp, RememberOp};
pub(crate) use residual::ResidualOp;
pub(crate) use rope_table::RopeTableInstr;
pub(crate) use rows::RowsOp;
pub(crate) use scatter::ScatterInstr;
pub(crate) use select::SelectOp;
pub use streams::Streams;
pub(crate) use streams::StreamsOp;

use crate::op::Activation;

/// What nearly every operator names.
mod prelude {
    pub(super) use crate::book::{Entry, FLOAT, Memory, Per, RowsOf, What, slot};
    pub(super) use crate::buffer::BufId;
    pub(super) use crate::claims::{Claims, Gather, ITEMS, Operand, Reach, Work};
    pub(super) use crate::exec::Run;
    pub(super) use crate::instr::{Instruction, Multiplies};
    pub(super) use crate::operator::{Lowering, Node, Operator};
    pub(super) use crate::places::Scratch;
    pub(super) use crate::squares::Squares;
    pub(super) use crate::tables::Tables;
    pub(super) use crate::tensor::{Bundle, Domain};
    pub(super) use crate::weight::{MatrixId, VectorId};
    pub(super) use std::ops::Range;
}

/// The name of a product with a function of it, or of a gated one.
fn product_name(f: Activation, gated: bool) -> &'static str {
    match (f, gated) {
        (Activation::Silu, false) => "matmul+silu",
        (Activation::Gelu, false) => "matmul+gelu",
        (Activation::SquaredRelu, false) => "matmul+squared_relu",
        (Activation::ClampedSilu, false) => "matmul+clamped_silu",
        (Activation::Sigmoid, false) => "matmul+sigmoid",
        (Activation::GeluErf, false) => "matmul+gelu_erf",
        (Activation::QuickGelu, false) => "matmul+quick_gelu",
        (Activation::QuickGelu, true) => "matmul+quick_geglu",
        (Activation::Relu, false) => "matmul+relu",
        (Activation::Clamp(_), false) => "matmul+clamp",
        (Activation::Xielu(_), false) => "matmul+xielu",
        (Activation::GeluErf, true) => "matmul+geglu_erf",
        (Activation::Relu, true) => "matmul+reglu",
        (Activation::Clamp(_), true) => "matmul+clamp_gated",
        (Activation::Xielu(_), true) => "matmul+xielu_gated",
        (Activation::Silu, true) => "matmul+swiglu",
        (Activation::Gelu, true) => "matmul+geglu",
        (Activation::SquaredRelu, true) => "matmul+squared_reglu",
        (Activation::ClampedSilu, true) => "matmul+clamped_swiglu",
        (Activation::Sigmoid, true) => "matmul+sigmoid_gated",
    }
}
