//! `arclight plan --hosts`: a model over several such machines, with links between them.

use super::args::PlanArgs;
use super::layout::Layout;
use super::machine::Target;
use super::model::NamedModel;
use crate::error::Error;
use crate::output::{Output, figure, words};
use crate::term;
use crate::wrap::wrap;
use arclight_engine::KvTypes;
use graph::{Graph, Keep};
use serde_json::{Value, json};
use std::io::Write;
use std::ops::Range;
use tune::hosts::{self, Flow, HostLimit, HostLink};
use tune::{Engine, Job, best};

/// Tokens in a step, as the engine takes a prompt.
const STEP: usize = 512;

/// What a host has, and how long its part of the work takes.
struct Host {
    layers: Range<usize>,
    weights: usize,
    cache: usize,
    threads: usize,
    /// Seconds of a step of one sequence, of a step of one group, and of a prompt.
    one: f64,
    group: f64,
    prompt: f64,
}

/// A model on several machines of one kind.
pub(super) struct Cluster<'a> {
    pub(super) args: &'a PlanArgs,
    pub(super) target: &'a Target,
    pub(super) model: &'a NamedModel,
    pub(super) layout: Layout,
}

/// Predicts and prints.
pub(super) fn run(cluster: &Cluster<'_>, out: &mut Output) -> Result<(), Error> {
    let Cluster { args, target, model, layout } = *cluster;
    let kv = args.kv.types();
    let whole = args.model.graph(None)?;
    let cut = models::stages(&whole, layout.hosts)
        .map_err(|source| Error::Model { path: model.name.clone().into(), source })?;
    let row = (whole.hparams.hidden * size_of::<f32>()) as f64;
    let group = hosts::group(args.batch, layout.hosts);
    let part = hosts::part(STEP, layout.hosts).min(args.prompt);
    let engine = Engine::tensor_parallel();
    let mut all = Vec::with_capacity(cut.len());
    for layers in cut {
        let graph = args.model.graph(Some(layers.clone()))?.graph;
        let graphs = args.model.part(layers.clone(), kv)?;
        let fastest = |job| best(&target.model, &engine, &graphs, job).map_err(Error::usage);
        let decode = Job::decode(args.context);
        let one = fastest(decode)?;
        let grouped = fastest(Job { sequences: group, ..decode })?;
        let (tokens, context) = (args.prompt, args.context);
        let prompt = fastest(Job { tokens, context, chunk: part, sequences: 1 })?;
        let tokens = args.context + args.prompt;
        all.push(Host {
            layers,
            weights: graph.matrices().iter().map(|matrix| matrix.node_bytes(0)).sum(),
            cache: cache(&graph, kv, tokens) * args.batch,
            threads: prompt.threads.iter().sum(),
            one: one.prediction.seconds,
            group: grouped.prediction.seconds,
            prompt: prompt.prediction.seconds,
        });
    }
    let times = |of: fn(&Host) -> f64| all.iter().map(of).collect::<Vec<f64>>();
    let flows = Flows {
        one: hosts::decoding(&times(|host| host.one), 1, row, layout.link),
        many: hosts::decoding(&times(|host| host.group), args.batch, row, layout.link),
        prompt: hosts::prompt(&times(|host| host.prompt), (args.prompt, part), row, layout.link),
    };
    if out.data(&json(cluster, &all, &flows), &["/hosts"])? {
        return Ok(());
    }
    print(cluster, out, &all, &flows)
}

/// Bytes of what is kept of a sequence of so many tokens.
fn cache(graph: &Graph, kv: KvTypes, tokens: usize) -> usize {
    let class = |(class, keep): (usize, &Keep)| match keep.is_paged() {
        true => {
            let held = keep.window().map_or(tokens, |window| window.min(tokens));
            held * graph.kv_bytes_per_token(0, kv, class)
        }
        false => graph.page_bytes(0, kv, class),
    };
    graph.classes().iter().enumerate().map(class).sum()
}

struct Flows {
    one: Flow,
    many: Flow,
    prompt: Flow,
}

fn limit(flow: &Flow) -> String {
    match flow.limit {
        HostLimit::Host(host) => format!("host {}", host + 1),
        HostLimit::Link => "the link".to_owned(),
        HostLimit::Round => "the way round".to_owned(),
    }
}

fn print(
    cluster: &Cluster<'_>,
    out: &mut Output,
    hosts: &[Host],
    flows: &Flows,
) -> Result<(), Error> {
    let Cluster { args, target, model, layout } = *cluster;
    let HostLink { bandwidth, latency } = layout.link;
    writeln!(out, "machine  {}, {} of them", target.title, layout.hosts)?;
    writeln!(
        out,
        "link     {} Gbit/s, {} µs from one to the next",
        term::rate(bandwidth * 8.0 / 1e9),
        term::rate(latency * 1e6)
    )?;
    writeln!(out, "model    {}", model.name)?;
    for note in &target.notes {
        for (i, line) in wrap(note).iter().enumerate() {
            writeln!(out, "{:<8} {line}", if i == 0 { "note" } else { "" })?;
        }
    }
    writeln!(out)?;
    let rows = hosts.iter().enumerate().map(|(at, host)| {
        let ms = |seconds: f64| term::rate(seconds * 1e3);
        [
            figure("host", 4, at + 1),
            words("layers", 9, format!("{} to {}", host.layers.start, host.layers.end - 1)),
            figure("weights", 9, term::size(host.weights)),
            figure("cache", 9, term::size(host.cache)),
            figure("threads", 7, host.threads),
            figure("token ms", 8, ms(host.one)),
            figure("group ms", 8, ms(host.group)),
            figure("prompt ms", 9, ms(host.prompt)),
        ]
    });
    out.table(rows)?;
    let sequences = match args.batch {
        1 => "one sequence".to_owned(),
        several => format!(
            "{several} sequences in groups of {}",
            tune::hosts::group(several, layout.hosts)
        ),
    };
    writeln!(out)?;
    let lines = [
        (format!("decoding one sequence after {}", args.context), &flows.one),
        (format!("decoding {sequences} after {}", args.context), &flows.many),
        (format!("prompt of {} after {}", args.prompt, args.context), &flows.prompt),
    ];
    let lines = lines.into_iter().enumerate().filter(|(at, _)| *at != 1 || args.batch > 1);
    let rows = lines.map(|(_, (what, flow))| {
        [
            words("", 48, what),
            figure("tokens/s", 9, term::rate(flow.tokens_per_second)),
            figure("round ms", 9, term::rate(flow.round * 1e3)),
            words("limited by", 0, limit(flow)),
        ]
    });
    Ok(out.table(rows)?)
}

fn json(cluster: &Cluster<'_>, hosts: &[Host], flows: &Flows) -> Value {
    let Cluster { args, target, model, layout } = *cluster;
    let flow = |flow: &Flow| {
        json!({
            "tokens_per_second": flow.tokens_per_second,
            "round_seconds": flow.round,
            "limit": limit(flow),
        })
    };
    let host = |host: &Host| {
        json!({
            "layers": [host.layers.start, host.layers.end],
            "weight_bytes": host.weights,
            "cache_bytes": host.cache,
            "threads": host.threads,
            "token_seconds": host.one,
            "group_seconds": host.group,
            "prompt_seconds": host.prompt,
        })
    };
    json!({
        "machine": target.title,
        "notes": target.notes,
        "model": model.name,
        "link_bytes_per_second": layout.link.bandwidth,
        "link_latency_seconds": layout.link.latency,
        "batch": args.batch,
        "context": args.context,
        "prompt_tokens": args.prompt,
        "hosts": hosts.iter().map(host).collect::<Vec<_>>(),
        "decode_one": flow(&flows.one),
        "decode": flow(&flows.many),
        "prompt": flow(&flows.prompt),
    })
}
