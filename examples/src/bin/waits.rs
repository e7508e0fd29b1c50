//! Chapter 4 of the tutorial: the stages of a layer, and the waits between them.
#![forbid(unsafe_code)]

use arclight_engine::{BatchEntry, Engine, LoadOptions, ModelFile, Outputs};
use arclight_examples::{Ended, model_path, run};
use graph::{Graph, LayerListing, Plan, Scope, Sync, Variant};
use std::process::ExitCode;
use topology::{CpuId, Group};

fn main() -> ExitCode {
    run(|| {
        let file = ModelFile::open(model_path())?;
        let gguf = file.gguf()?;
        println!("nodes  waits of a layer: by derivation   if all were global");
        for nodes in [1, 2, 4] {
            let model = models::build(&gguf, nodes)?;
            let [derived, global] = [Sync::Derived, Sync::Global].map(|sync| {
                let (all, global) = layer(&model.graph, &plan(nodes, sync)).waits();
                format!("{all}, {global} of them global")
            });
            println!("{nodes:>5}  {derived:>33}   {global:>19}");
        }

        println!();
        let model = models::build(&gguf, 2)?;
        stages(&model.graph, &layer(&model.graph, &plan(2, Sync::Derived)));
        println!();
        [Sync::Derived, Sync::Global].into_iter().try_for_each(|sync| measure(&file, sync))
    })
}

/// A plan for nodes of one thread each, on no CPU in particular: it is for looking at, not for running.
fn plan(nodes: usize, sync: Sync) -> Plan {
    let group = Group::unbound(vec![CpuId(0)]);
    Plan { sync, ..Plan::new(vec![group; nodes]) }
}

/// The second layer, compiled for a step of one token.
fn layer<'a>(graph: &'a Graph, plan: &Plan) -> LayerListing<'a> {
    LayerListing::new(graph, plan, Variant::DECODE, 1)
}

/// What a thread does between two waits, and the reason for each wait.
fn stages(graph: &Graph, layer: &LayerListing<'_>) {
    for (number, stage) in layer.stages().iter().enumerate() {
        let names: Vec<String> = (stage.instrs.iter())
            .map(|instr| match instr.matrix() {
                Some(matrix) => format!("{} {}", instr.name(), graph.matrix(matrix).name),
                None => instr.name().to_owned(),
            })
            .collect();
        println!("stage {}: {}", number + 1, names.join(", "));
        if let Some(wait) = &stage.wait {
            let who = match wait.scope {
                Scope::Local => "its node",
                Scope::Global => "all nodes",
            };
            println!("    wait for {who}: {}", layer.buffer(wait.because).name);
        }
    }
}

/// Takes a step of one token on two nodes, and counts the waits of a thread.
fn measure(file: &ModelFile, sync: Sync) -> Ended {
    let (nodes, threads, context, stats) = (Some(2), Some(2), Some(256), true);
    let options = LoadOptions { nodes, threads, context, sync, stats, ..LoadOptions::default() };
    let mut engine = Engine::load(file, &options, &mut |_| {})?;
    let sequence = engine.new_sequence()?;
    engine.step(&[BatchEntry { sequence, tokens: &[1], outputs: Outputs::Last }])?;
    let activity = engine.activity();
    let [local, global] = [&activity.threads[0].local, &activity.threads[0].global];
    let (local, global, same) = (local.count, global.count, activity.waits_as_compiled());
    println!("{sync:?}: {local} local waits, {global} global ones, as compiled: {same}");
    Ok(())
}
