//! The machine's limits as tables.

use crate::bench_sync::report::Setup;
use crate::error::Error;
use crate::output::{Output, figure, words};
use crate::term;
use kernels::{Bf16Trial, Product};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// Everything that is found out.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    pub(super) version: &'static str,
    pub(super) cpu: String,
    /// The kernels that a model would get.
    pub(super) kernels: &'static str,
    pub(super) rounds: usize,
    pub(super) threads: Vec<ThreadsRow>,
    pub(super) peaks: Vec<PeakRow>,
}

/// What some threads read together, and how long they wait for each other.
#[derive(Debug, Serialize)]
pub(super) struct ThreadsRow {
    #[serde(flatten)]
    pub(super) setup: Setup,
    pub(super) read_bytes_per_second: f64,
    /// Of each node, all at the same time.
    pub(super) node_read_bytes_per_second: Vec<f64>,
    /// Between the threads of a node; `None` with one thread on each node.
    pub(super) local_wait_microseconds: Option<f64>,
    /// For all threads of several nodes.
    pub(super) global_wait_microseconds: Option<f64>,
}

/// The multiply peaks of an instruction set.
#[derive(Debug, Serialize)]
pub(super) struct PeakRow {
    pub(super) isa: &'static str,
    pub(super) threads: usize,
    /// By the names of the products that are done differently.
    pub(super) macs_per_second: BTreeMap<&'static str, f64>,
}

/// Prints what was found.
pub(super) fn print(
    out: &mut Output,
    found: &Found,
    trial: Option<&Bf16Trial>,
) -> Result<(), Error> {
    let Found { cpu, kernels, rounds, .. } = found;
    writeln!(out, "{cpu}, {kernels} kernels, {rounds} rounds\n")?;
    out.table(found.threads.iter().map(|row| {
        let rate = |bytes: &f64| format!("{:.1}", bytes / 1e9);
        let each: Vec<String> = match row.node_read_bytes_per_second.as_slice() {
            [_] => vec![],
            nodes => nodes.iter().map(rate).collect(),
        };
        let setup = &row.setup;
        let shared = (setup.cpus < setup.threads).then_some("threads share CPUs");
        let virtual_nodes = setup.virtual_nodes.then_some("nodes share memory");
        let but: Vec<_> = shared.into_iter().chain(virtual_nodes).collect();
        let wait = |microseconds: Option<f64>| microseconds.map_or_else(String::new, term::rate);
        [
            figure("threads", 7, setup.threads),
            figure("nodes", 5, setup.nodes),
            figure("read GB/s", 9, rate(&row.read_bytes_per_second)),
            words("each node", 14, each.join(" ")),
            figure("local wait µs", 13, wait(row.local_wait_microseconds)),
            figure("global wait µs", 14, wait(row.global_wait_microseconds)),
            words("", 0, but.join(", ")),
        ]
    }))?;
    writeln!(out, "\nMultiply-accumulates on registers, G/s:\n")?;
    let rows = found.peaks.iter().map(|row| {
        let [int4, int5, int6, int7, int8, bf16, f16, f32] = Product::ALL.map(|product| {
            let rate = row.macs_per_second.get(product.name());
            let rate = rate.map_or_else(String::new, |rate| format!("{:.1}", rate / 1e9));
            figure(product.name(), 7, rate)
        });
        let (isa, threads) =
            (words("instructions", 12, row.isa), figure("threads", 7, row.threads));
        [isa, threads, int4, int5, int6, int7, int8, bf16, f16, f32]
    });
    out.table(rows)?;
    writeln!(
        out,
        "\nint8 is what quantised weights take (with amxint8 in blocks of 32 columns, whose sums have to be \
         stored and scaled, which takes several times as long). With avx2 and avx512bw weights of few \
         bits take less: of up to 4 (Q4_0, Q4_K), of 5 (MXFP4), of 6 (Q6_K, Q5_K). f16, and bf16 but for \
         avx512bf16, are widened once for 8 tokens and multiplied as f32."
    )?;
    if let Some(trial) = trial {
        writeln!(
            out,
            "A model in BF16 gets {} on this CPU: {:.0} G/s with it and {:.0} without.",
            if trial.pays() { "avx512bf16" } else { "avx512vnni" },
            trial.pairs / 1e9,
            trial.widened / 1e9
        )?;
    }
    Ok(())
}
