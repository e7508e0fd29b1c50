//! Micro-kernels that were written elsewhere: loaded from shared objects, and tried before use.
//!
//! `include/arclight_kernel.h` is the interface: a list of kernels, each for matrices of one type, that multiply a
//! tile of rows by some tokens. [`load`] reads the list, checks all that it says, and compares each kernel with
//! the scalar twin on random blocks. What passes is one of [`kernels::MatKernel`], beside the family.
//!
//! The tolerance is none: bits must be the scalar kernel's. Sums of integers are exact in any order, and the order
//! of what is rounded is given; a program whose kernels differed in a bit would answer differently by its
//! schedules, its threads and what else is in a step.
//!
//! Types are those whose layout the header describes. A file is code: whoever loads one has it run as this
//! program. Loaded files stay.

mod error;
mod interface;
mod load;
mod product;
mod trial;

pub use error::{Difference, Error, Fault};
pub use load::{load, types};
