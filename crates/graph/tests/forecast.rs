//! A forecast is what the executor's books say after the step.

mod run;

use arclight_graph::{
    Executor, Extent, Forecast, Graph, KvType, Limits, Memory, Mode, Outputs, PageId, PageTable,
    Per, PlaceCounts, Plan, Scope, Shares, Sync, WaitCounts, What,
};
use gguf::{Gguf, TensorType};
use kernels::KV_PAGE;
use testkit::TinyModel;
use topology::{CpuId, Group};

/// A context with room for the attention states of 32 tokens of the first range of keys.
const CONTEXT: usize = 2048;
const PAGES: usize = CONTEXT / KV_PAGE;

/// What a step of a sequence costs by the forecast, but for lookups: places, and waits in each.
fn foreseen(
    graph: &Graph,
    plan: &Plan,
    (tokens, past): (usize, usize),
) -> Vec<(PlaceCounts, WaitCounts)> {
    let forecast = Forecast::new(graph, plan, KvType::F16, CONTEXT, 1).unwrap();
    let parts = forecast.parts(1, tokens, past);
    // The books leave out that all join in the end.
    let meetings = forecast.meetings(parts.len()) as u64 - 1;
    let waits = WaitCounts { local: 0, global: meetings };
    let mut all = vec![(PlaceCounts::default(), waits); plan.places()];
    for (variant, extent) in parts {
        let programs = forecast.programs(variant);
        let alone = programs.len() > 1;
        for (at, stage) in
            programs.iter().enumerate().flat_map(|(at, p)| p.iter().map(move |s| (at, s)))
        {
            let places = if alone { at..at + 1 } else { 0..plan.places() };
            for (of, place) in places.enumerate() {
                let (counts, waits) = &mut all[place];
                match stage.wait {
                    Some(Scope::Local) => waits.local += 1,
                    Some(Scope::Global) => waits.global += 1,
                    None => {}
                }
                for task in &stage.tasks {
                    add(counts, &task.lines[of], place, &extent);
                }
            }
        }
    }
    all
}

fn add(counts: &mut PlaceCounts, lines: &[arclight_graph::Line], place: usize, extent: &Extent) {
    for line in lines.iter().filter(|line| !matches!(line.per, Per::Lookup(..))) {
        let units = extent.units(line.per);
        counts.exchanged += line.exchanged(place) * units;
        match line.what {
            What::Read(Memory::Weights(_), _) => counts.weights += line.amount * units,
            What::Read(Memory::State(_), _) => counts.kv += line.amount * units,
            _ => {}
        }
    }
}

fn graph(gguf: &Gguf<'_>, plan: &Plan) -> Graph {
    let threads = plan.groups.iter().map(|group| group.cpus.len()).collect();
    let shares = if plan.graph_nodes() > 1 { Shares::new(threads) } else { Shares::from(1) };
    models::build(gguf, shares).unwrap().graph
}

fn executor(gguf: &Gguf<'_>, plan: &Plan) -> Executor {
    let graph = graph(gguf, plan);
    let mut pages = [0; 4];
    pages[..graph.windows().len()].fill(PAGES);
    let (kv, ranges) = (KvType::F16.into(), graph.attention_states(CONTEXT, 1));
    let limits = Limits { kv, tokens: 512, outputs: 1, pages, ranges };
    run::executor(gguf, graph, plan.clone(), limits)
}

#[test]
fn steps_cost_what_was_foreseen() {
    let (one, three) = (vec![CpuId(0)], vec![CpuId(0); 3]);
    let uneven = [one, three].map(Group::unbound);
    let plans = [
        run::plan(1),
        run::plan(2),
        Plan { scatter_elements: 1 << 10, ..run::plan(3) },
        Plan { sync: Sync::Global, ..run::plan(2) },
        Plan { mode: Mode::Pipeline, ..run::plan(2) },
        Plan { mode: Mode::Mirror, ..run::plan(2) },
        Plan { pin: false, ..Plan::new(uneven.to_vec()) },
    ];
    let window = TinyModel { window: Some(64), ..TinyModel::gemma2(TensorType::Q4_0) };
    for model in [TinyModel::qwen3(TensorType::Q4_K), TinyModel::olmo2(TensorType::BF16), window] {
        let bytes = model.gguf();
        let gguf = Gguf::parse(&bytes).unwrap();
        for plan in &plans {
            let mut executor = executor(&gguf, plan);
            let graph = graph(&gguf, plan);
            let table = PageTable { first: 0, pages: (0..PAGES as u32).map(PageId).collect() };
            let tables = vec![table; graph.windows().len()];
            // Many tokens, some, and one, in the first range of keys and in a later one.
            let mut past = 0;
            for tokens in [1, 5, 20, 300, 90, 3, 1] {
                let ids: Vec<u32> = (0..tokens as u32).collect();
                executor.reset_counts();
                let _ = run::step(&mut executor, &ids, past, &tables, Outputs::Last).count();
                let counts = executor.counts();
                let what = format!("{}: {:?}, {tokens} after {past}", model.arch, plan.mode);
                let all = foreseen(&graph, plan, (tokens, past));
                for (place, (foreseen, waits)) in all.into_iter().enumerate() {
                    let (real, exchanged) = (counts.places[place], counts.places[place].exchanged);
                    // Rows of the embedding, 1 KiB each, come on top where they lie elsewhere.
                    let lookups = exchanged - foreseen.exchanged;
                    assert!(
                        lookups.is_multiple_of(1 << 10) && lookups <= (tokens << 10) as u64,
                        "{what}"
                    );
                    assert_eq!(
                        PlaceCounts { exchanged: foreseen.exchanged, ..real },
                        foreseen,
                        "{what}"
                    );
                    assert_eq!(counts.waits[0][place], waits, "{what}, place {place}");
                }
                past += tokens;
            }
        }
    }
}
