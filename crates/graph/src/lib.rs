//! Bundles, placements, the static list, compilation to stages, the executor.
//!
//! A model is a short program over the [`Builder`]. Its operands are bundles: one tensor, or one
//! per memory node; every bundle has a declared [`Placement`]. The graph is lowered to
//! instructions over buffers, the waits between them are derived from what each instruction
//! touches, and the [`Executor`] walks the result with a pool of pinned threads.
//!
//! Nothing above this crate knows of nodes or threads; nothing below it knows what a model is.
//!
//! Sources: the ArcLight paper (§2.2 to §3.4 and §A.1) for bundles, the static list, the double
//! buffer and the two ways to synchronise; flash-decoding for the split of attention.

mod adapter;
mod adapting;
mod bank;
mod book;
mod buffer;
mod builder;
mod carry;
mod claims;
mod compile;
mod deal;
mod error;
mod exec;
mod executor;
mod facts;
mod forecast;
mod graph;
mod headers;
mod inset;
mod instr;
mod keep;
mod leave;
mod levels;
mod list;
mod listing;
mod load;
mod logits;
mod lower;
mod op;
mod operator;
mod operators;
mod placement;
mod places;
mod plan;
pub mod profile;
mod programs;
mod recurrent;
mod relative;
mod router;
mod schedule;
mod shape;
mod squares;
mod stages;
mod state;
mod step;
mod storage;
mod sum;
mod switch;
mod tables;
mod tally;
mod tensor;
mod timing;
mod variant;
mod weight;

pub use adapter::{Adapted, LowMatrix, LowRank};
pub use bank::{Bank, Members};
pub use book::{
    Choice, Counts, Dealt, Demand, Extent, Line, Memory, Needs, Per, PlaceCounts, RowsOf,
    WaitCounts, What,
};
pub use buffer::{BufId, Buffer, Buffers};
pub use builder::{
    Builder, ConvolutionOf, LatentSizes, RecurrenceOf, RecurrentRows, RecurrentSizes, TensorRows,
    Tensors, UpProjection,
};
pub use carry::Sharing;
pub use claims::{Access, Deal, Gather, Operand, Reach, Work};
pub use compile::{Scope, Stage, Wait, compile, count_waits};
pub use error::{AdapterFault, Error, ScheduleFault};
pub use executor::Executor;
pub use forecast::{Forecast, Task, TaskStage};
pub use graph::Graph;
pub use headers::{Element, Header, Rows};
pub use inset::{Inset, Spot, Together};
pub use instr::Instr;
pub use keep::{KV_CLASSES, Keep};
pub use list::Append;
pub use listing::LayerListing;
pub use load::PackProgress;
pub use logits::Logits;
pub use lower::lower;
pub use op::{
    Activation, Added, Attention, Expert, Given, Heads, Merging, Norm, NormOver, Rope, RopeId,
    RopeStyle, Temperature, TileSums, Xielu,
};
pub use operator::{Node, Op};
pub use operators::Streams;
pub use placement::{Cut, Placement, Shares, share};
pub use plan::{FormLimits, Mode, Phase, Plan, StepShape, Sync};
pub use profile::Profile;
pub use recurrent::{
    Above, ChannelRun, Convolution, HeadNorm, Modulation, Recurrence, RecurrentColumns,
    RecurrentHeads, Rule,
};
pub use router::{Gate, GroupScore, Groups, MOST_CHOSEN, Router};
pub use schedule::{Schedule, Schedules};
pub use shape::{Grid, MatrixShape, Product, ShapeError, Slice, largest_slice};
pub use squares::TensorSquares;
pub use state::{KvType, KvTypes, StateShape};
pub use step::{Outputs, PageCopy, PageId, PageTable, Recalled, Save, SeqInput};
pub use storage::{Limits, NodeBytes};
pub use sum::Sum;
pub use tensor::{Bundle, BundleInfo, Domain};
pub use timing::{ShapeUse, usual_slice};
pub use variant::{AttnForm, Variant};
pub use weight::{
    ByHead, Catalog, Clamp, Layout, Matrix, MatrixId, PackBytes, Part, SplitBy, TensorSpec, Turns,
    Vector, VectorId, WeightSource, WeightView,
};
