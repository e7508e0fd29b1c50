//! `arclight plan`: how fast a machine, a model and a placement would be, by the model of time in
//! `tune`, and which cores this machine's memory and multipliers have work for.
//!
//! The machine is one that comes with the program, one that was exported or described, or the one at
//! hand, which is measured for some seconds. Nothing is loaded and nothing is computed but time.
//!
//! Limits: those of the model (`docs/cost-model.md`): one sequence, no jitter.

mod args;
pub(crate) mod at_hand;
mod engines;
mod hosts;
mod layout;
mod list;
pub(crate) mod machine;
pub(crate) mod model;
mod outcome;
mod plot;
mod scaling;
mod table;

use crate::error::Error;
use crate::output::Output;
use crate::replace;
use crate::term::note;
use crate::topo;
pub(crate) use args::PlanArgs;
use at_hand::AtHand;
use hosts::Cluster;
use machine::{Target, find};
use outcome::{Outcome, Question};

/// Runs the command.
pub(crate) fn run(args: &PlanArgs) -> Result<(), Error> {
    let mut out = Output::new(args.output);
    if args.machines {
        return list::print(&mut out, args.machine.as_deref());
    }
    if args.scaling {
        return scaling::run(args, &mut out);
    }
    // Whatever is wrong with the model is told before the machine is measured.
    let model = args.model.read(args.kv.types())?;
    let (target, at_hand) = target(args)?;
    let question = Question {
        prompt: args.prompt,
        answer: args.tokens,
        context: args.context,
        batch: args.batch,
        threads: args.threads.as_ref().map(|list| list.0.as_slice()),
    };
    if let Some(layout) = args.hosts.layout() {
        let cluster = Cluster { args, target: &target, model: &model, layout };
        return hosts::run(&cluster, &mut out);
    }
    let outcome = Outcome::of(&target, &model, &args.engine, &question)?;
    if let Some(path) = &args.plot {
        let svg = plot::svg(&target, &model, &outcome)?;
        replace::bytes(path, svg.as_bytes()).map_err(|e| Error::write(path, e))?;
    }
    let mut data = outcome.json(&target, &model);
    data["plan"] = at_hand.as_ref().and_then(|hand| hand.json(&target, &outcome)).into();
    if !out.data(&data, &["/rows"])? {
        table::head(&mut out, &target, &model, &outcome)?;
        if let Some(hand) = &at_hand {
            hand.print(&mut out, &target, &model, &outcome)?;
        }
        table::speeds(&mut out, &target, &outcome)?;
    }
    if let Some(path) = &args.plot {
        note!("drawn to {}", path.display());
    }
    Ok(())
}

/// The machine that the options name; for the machine at hand also its measurements.
fn target(args: &PlanArgs) -> Result<(Target, Option<AtHand>), Error> {
    if let Some(name) = &args.machine {
        return Ok((Target::known(find(name)?), None));
    }
    let described = topo::described(args.topology.as_deref(), args.synthetic.as_deref())?;
    let (bandwidth, like) = (args.bandwidth.as_deref(), args.like.as_deref());
    if let Some(machine) = described {
        return Ok((Target::described(&machine, bandwidth, like)?, None));
    }
    if bandwidth.is_some() || like.is_some() {
        let text = "--bandwidth and --like are for a machine that --topology or --synthetic \
                    describes; the machine at hand is measured";
        return Err(Error::Usage(text.to_owned()));
    }
    at_hand::measure().map(|(target, at_hand)| (target, Some(at_hand)))
}
