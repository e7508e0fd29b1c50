//! `placed`: the same logits, the right pages and the compiled waits, at several thread counts.

use crate::error::Error;
use crate::load::LoadArgs;
use crate::placement;
use crate::script::{self, Rows};
use arclight_engine::Engine;
use clap::Args;
use std::path::PathBuf;

/// Logits of other numbers of nodes may differ from one node's by this much, because sums have
/// another order. The bound is asked for; f32 has some hundred steps in it at a logit of 10.
const TOLERANCE: f32 = 1e-4;

#[derive(Args, Debug)]
pub(crate) struct PlacedArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// What `logits` wrote; without it the model is only loaded
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Thread counts, one load each
    #[arg(long, value_name = "N,..", value_delimiter = ',', required = true)]
    threads: Vec<usize>,
    /// Memory nodes that the model must be shared by
    #[arg(long, value_name = "N")]
    pub(crate) expect_nodes: usize,
    /// Binding is refused here: there must be a warning, and first touch must have done the work
    #[arg(long)]
    pub(crate) refused: bool,
}

/// Runs the command.
pub(crate) fn run(args: &PlacedArgs) -> Result<(), Error> {
    let mut first: Option<Rows> = None;
    let mut faults = vec![];
    for &threads in &args.threads {
        let (rows, mut found) = once(args, threads)?;
        match (&first, rows) {
            (Some(first), Some(rows)) if !rows.same_bits(first) => {
                let by = rows.distance(first);
                found.push(format!("other bits than with {} threads, by {by:e}", args.threads[0]));
            }
            (None, rows) => first = rows,
            _ => {}
        }
        faults.extend(found.into_iter().map(|f| format!("{threads} threads: {f}")));
    }
    for fault in &faults {
        println!("fault: {fault}");
    }
    match faults.len() {
        0 => Ok(()),
        1 => Err(Error::Unmet(faults.remove(0))),
        n => Err(Error::Unmet(format!("{} (and {} more)", faults[0], n - 1))),
    }
}

/// Loads, looks, runs the script, looks again: the logits and what is wrong.
fn once(args: &PlacedArgs, threads: usize) -> Result<(Option<Rows>, Vec<String>), Error> {
    let mut engine = args.load.load_telling(Some(threads), true, &mut |_| {})?;
    let groups = &engine.plan().groups;
    let got: usize = groups.iter().map(|g| g.cpus.len()).sum();
    let mut nodes: Vec<_> = groups.iter().filter_map(|g| g.node).collect();
    nodes.dedup();
    println!("{threads} threads, {} on {} nodes", engine.report().mode, nodes.len());
    let mut faults = vec![];
    if nodes.len() != args.expect_nodes {
        let want = args.expect_nodes;
        faults.push(format!("the model is on {} memory nodes, not {want}", nodes.len()));
    }
    if got != threads {
        faults.push(format!("{got} threads were started"));
    }
    if args.refused && !engine.report().warnings.iter().any(|w| w.contains("not bound")) {
        faults.push("nothing was said about memory that is not bound".to_owned());
    }

    faults.extend(placement::faults(args, &mut engine, "after load")?);
    let Some(reference) = &args.reference else { return Ok((None, faults)) };
    let reference = Rows::read(reference, engine.hparams().vocab)?;
    engine.reset_activity();
    let rows = script::run(&mut engine, Some(&reference.continuation()))?;
    faults.extend(waits(&mut engine));
    faults.extend(placement::faults(args, &mut engine, "after 64 tokens")?);

    let distance = rows.distance(&reference);
    if distance.is_nan() || distance > TOLERANCE {
        let largest = reference.largest();
        faults.push(format!(
            "logits differ from one node's by {distance:e}, more than {TOLERANCE:e} \
             (they reach {largest:.1})"
        ));
    }
    let same = if rows.same_bits(&reference) { "equal" } else { "other" };
    println!("    logits: {distance:e} from one node's, {same} bits");
    Ok((Some(rows), faults))
}

/// Whether every thread waited as often as its program says.
fn waits(engine: &mut Engine) -> Option<String> {
    let activity = engine.activity();
    let plan = engine.plan();
    for (place, team) in plan.teams().into_iter().enumerate() {
        let measured = activity.threads[team.start];
        let book = activity.counts.waits_from(0, place);
        println!(
            "    waits of place {place} in {} steps: {} local and {} global compiled, {} and {} \
             measured",
            activity.counts.steps,
            book.local,
            book.global,
            measured.local.count,
            measured.global.count,
        );
    }
    (!activity.waits_as_compiled()).then(|| "threads did not wait as often as compiled".to_owned())
}
