//! Measurements of the machine.
//!
//! [`probe`] measures read bandwidth, load latency and the effect of page sizes on the calling thread. [`counters`]
//! reads the counters of the CPU, the kernel and the memory controllers.
//!
//! Nothing here runs inside a step of a model: loading, `arclight topo`, `arclight tune`, reports and benches use it.
//! Buffers are arenas of the crate `memory`, and its errors are returned as they are.
//!
//! Limits: on systems other than Linux there are no counters; [`counters::Unavailable`] and [`counters::Refusal`] give
//! the reason. Reads use AVX2 or AVX-512 on x86-64 and the target's base instruction set on other CPUs.

pub mod counters;
pub mod probe;
mod sys;
