//! Figures for Prometheus, under the names that vLLM uses where it has them (`vllm:`), and of the
//! machine's memory nodes under our own (`arclight:`).

use crate::adapters::AdaptersInUse;
use crate::model::Model;
use crate::normal::Finish;
use crate::status::Recent;
use arclight_engine::{GroupStatus, ReplicaStatus};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec,
    Opts, Registry, TextEncoder,
};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime};

const SHORT: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 10.0,
];
const LONG: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 320.0, 640.0,
];

/// How an answer can end, as `finished_reason` has it.
const ENDS: [&str; 5] = ["stop", "length", "tool_calls", "abort", "error"];

/// Why making a metric cannot fail: tests make all of them.
const VALID: &str = "names and labels are constant and valid";

/// Counts since the server was started.
pub(crate) struct Metrics {
    first: Histogram,
    between: Histogram,
    per_token: Histogram,
    whole: Histogram,
    ended: IntCounterVec,
    reloads: IntCounter,
    /// The last of them, for `/status.json`.
    pub(crate) recent: Recent,
    /// Those that answers name.
    pub(crate) adapters: AdaptersInUse,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let histogram = |name, help, bounds: &[f64]| {
            let opts = HistogramOpts::new(format!("vllm:{name}_seconds"), help);
            Histogram::with_opts(opts.buckets(bounds.to_vec())).expect(VALID)
        };
        let opts = Opts::new("vllm:request_success_total", "Answers by how they ended");
        let ended = IntCounterVec::new(opts, &["finished_reason"]).expect(VALID);
        // Those that have not occurred are there with 0.
        ENDS.iter().for_each(|end| drop(ended.with_label_values(&[end])));
        let per_token = "Mean time between the tokens of an answer";
        Metrics {
            first: histogram("time_to_first_token", "From request to first token", LONG),
            between: histogram("inter_token_latency", "Between two tokens", SHORT),
            per_token: histogram("time_per_output_token", per_token, SHORT),
            whole: histogram("e2e_request_latency", "From request to last token", LONG),
            ended,
            reloads: IntCounter::new(
                "arclight:model_reloads_total",
                "Loads of a model, or of a replica, that had failed",
            )
            .expect(VALID),
            recent: Recent::default(),
            adapters: AdaptersInUse::default(),
        }
    }
}

/// When a choice was submitted, had its first token, and its last.
type Times = (Instant, Option<Instant>, Instant);

impl Metrics {
    /// A token came; times before it and with it.
    pub(crate) fn token(&self, (submitted, before, last): Times, (.., now): Times) {
        match before {
            None => self.first.observe((now - submitted).as_secs_f64()),
            Some(_) => self.between.observe((now - last).as_secs_f64()),
        }
    }

    /// A choice ended.
    pub(crate) fn finished(&self, finish: &Finish, (submitted, _, last): Times) {
        self.end(finish.reason.word());
        self.whole.observe((last - submitted).as_secs_f64());
        if finish.tokens > 1 {
            self.per_token.observe(finish.rest.as_secs_f64() / (finish.tokens - 1) as f64);
        }
    }

    /// An answer failed after it had begun.
    pub(crate) fn failed(&self) {
        self.end("error");
    }

    /// A choice was dropped before its end, by the client or because it had enough.
    pub(crate) fn cancelled(&self) {
        self.end("abort");
    }

    /// The model, or one of its replicas, had failed and works again.
    pub(crate) fn reloaded(&self) {
        self.reloads.inc();
    }

    fn end(&self, reason: &str) {
        self.ended.with_label_values(&[reason]).inc();
    }

    /// The adapters of a model and which of them are in use, as gateways read it: at this time.
    fn adapters(&self, page: &Page, model: &Model) {
        let all = model.replicas.adapters();
        if all.is_empty() {
            return;
        }
        let used = self.adapters.numbers().into_iter().filter_map(|at| all.get(at as usize));
        let names: Vec<&str> = used.map(|one| one.name.as_str()).collect();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        page.facts(
            "vllm:lora_requests_info",
            "Adapters: how many there are, those of answers that run or wait; the time",
            &[
                ("max_lora", &all.len().to_string()),
                ("running_lora_adapters", &names.join(",")),
                ("waiting_lora_adapters", ""),
            ],
            now.map_or(0.0, |time| time.as_secs_f64()),
        );
    }

    /// All figures of a model.
    pub(crate) fn families(
        &self,
        name: &str,
        model: Option<&Model>,
        failed: bool,
    ) -> Vec<MetricFamily> {
        let labels = HashMap::from([("model_name".to_owned(), name.to_owned())]);
        let page = Page(Registry::new_custom(None, Some(labels)).expect(VALID));
        if let Some(model) = model {
            page.engine(model);
            self.adapters(&page, model);
        }
        let help = "Whether the model has no replica that works, and is to be loaded again";
        page.gauge("arclight:model_failed", help, f64::from(u8::from(failed)));
        page.add(self.reloads.clone());
        page.add(self.ended.clone());
        for histogram in [&self.first, &self.between, &self.per_token, &self.whole] {
            page.add(histogram.clone());
        }
        page.0.gather()
    }
}

/// The text that Prometheus reads, of several models' figures.
/// A family of one figure.
pub(crate) fn gauge(name: &str, help: &str, value: f64) -> MetricFamily {
    let gauge = Gauge::new(format!("arclight:{name}"), help).expect(VALID);
    gauge.set(value);
    gauge.collect().remove(0)
}

/// The same of one that only grows.
pub(crate) fn count(name: &str, help: &str, value: f64) -> MetricFamily {
    let counter = Counter::new(format!("arclight:{name}"), help).expect(VALID);
    counter.inc_by(value);
    counter.collect().remove(0)
}

pub(crate) fn respond(families: Vec<MetricFamily>) -> Response {
    let mut by_name: BTreeMap<String, MetricFamily> = BTreeMap::new();
    for mut family in families {
        match by_name.entry(family.name().to_owned()) {
            Entry::Vacant(free) => drop(free.insert(family)),
            Entry::Occupied(mut all) => {
                all.get_mut().mut_metric().append(&mut family.take_metric());
            }
        }
    }
    let all: Vec<MetricFamily> = by_name.into_values().collect();
    let text = TextEncoder::new().encode_to_string(&all).expect("a string takes any text");
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// The values of a metric's labels, and the figure.
type Sample = (Vec<String>, f64);

/// All metrics at one time.
struct Page(Registry);

impl Page {
    /// The state of all replicas together.
    fn engine(&self, model: &Model) {
        let status = model.replicas.status();
        let sum =
            |of: &dyn Fn(&ReplicaStatus) -> usize| status.iter().map(of).sum::<usize>() as f64;
        self.gauge(
            "vllm:num_requests_running",
            "Answers that are being given",
            sum(&|s| s.running),
        );
        self.gauge(
            "vllm:num_requests_waiting",
            "Answers that wait in the queue",
            sum(&|s| s.waiting),
        );
        let total = sum(&|s| s.pages.total);
        // Pages that only the prefix cache holds are given up as soon as a request needs them.
        let used = total - sum(&|s| s.pages.free + s.pages.cached);
        let share = if total > 0.0 { used / total } else { 0.0 };
        self.gauge(
            "vllm:kv_cache_usage_perc",
            "Share of the KV pages that are in use, 0 to 1",
            share,
        );
        let pages = (total as u64).to_string();
        let size = arclight_engine::KV_PAGE.to_string();
        self.facts(
            "vllm:cache_config_info",
            "The KV cache: tokens of a block, and blocks of all replicas",
            &[("block_size", &size), ("num_gpu_blocks", &pages)],
            1.0,
        );
        let done = model.replicas.counters();
        let counters = [
            ("vllm:prompt_tokens", "Tokens of prompts", done.prompt_tokens),
            ("vllm:generation_tokens", "Tokens of answers", done.generated_tokens),
            (
                "vllm:prefix_cache_queries",
                "Tokens looked for in the prefix cache",
                done.prompt_tokens,
            ),
            ("vllm:prefix_cache_hits", "Tokens found in the prefix cache", done.cached_tokens),
            (
                "arclight:prefix_cache_disk_hits",
                "Those of them that were read from disk",
                done.restored_tokens,
            ),
            (
                "vllm:num_preemptions",
                "Answers that gave up their pages for others",
                done.preemptions,
            ),
            ("vllm:spec_decode_num_draft_tokens", "Tokens guessed ahead", done.drafted_tokens),
            (
                "vllm:spec_decode_num_accepted_tokens",
                "Of those, the right ones",
                done.accepted_tokens,
            ),
        ];
        for (name, help, value) in counters {
            self.counter(name, help, &[], &[(Vec::new(), value as f64)]);
        }
        let failed = status.iter().filter(|replica| replica.failure.is_some()).count() as f64;
        self.gauge("arclight:replicas_failed", "Replicas that are out of service", failed);
        self.nodes(&status);
    }

    /// What the threads on each memory node have done. Two groups of threads may be on one node.
    fn nodes<'s>(&self, status: &'s [ReplicaStatus]) {
        let replicas = status.iter().enumerate();
        let steps = |of: &dyn Fn(&ReplicaStatus) -> f64| -> Vec<Sample> {
            replicas.clone().map(|(at, s)| (vec![at.to_string()], of(s))).collect()
        };
        let count = steps(&|s| s.counters.steps as f64);
        self.counter("arclight:steps", "Steps", &["replica"], &count);
        let time = steps(&|s| s.counters.step_time.as_secs_f64());
        self.counter("arclight:step_seconds", "Time in steps", &["replica"], &time);
        let between = steps(&|s| s.counters.between_time.as_secs_f64());
        self.counter(
            "arclight:between_steps_seconds",
            "Time between steps while requests were running: sampling, and work of a single thread",
            &["replica"],
            &between,
        );
        let empty = steps(&|s| s.counters.empty_steps as f64);
        self.counter(
            "arclight:empty_steps",
            "Steps that had nothing to compute although requests waited: faults of the scheduler",
            &["replica"],
            &empty,
        );
        let without = steps(&|s| s.company.steps_without.as_secs_f64());
        self.counter(
            "arclight:steps_without_cores_seconds",
            "Of it, time in steps that went without cores that other programs were busy on",
            &["replica"],
            &without,
        );
        let groups = || {
            let groups = |(at, s): (usize, &'s ReplicaStatus)| {
                std::iter::repeat(at).zip(s.groups.iter().enumerate())
            };
            replicas.clone().flat_map(groups).map(|(at, (group, g))| {
                let node = g.node.map_or_else(String::new, |node| node.0.to_string());
                (vec![at.to_string(), group.to_string(), node], g)
            })
        };
        type Of = dyn Fn(&GroupStatus) -> Option<f64>;
        let each = |name, help, of: &Of| {
            let samples = groups().filter_map(|(labels, g)| Some((labels, of(g)?)));
            self.counter(name, help, &["replica", "group", "node"], &samples.collect::<Vec<_>>());
        };
        each(
            "arclight:node_read_bytes",
            "Weights, keys and values that the threads of a node read",
            &|g| Some(g.read as f64),
        );
        each(
            "arclight:node_remote_bytes",
            "Bytes that they read from or wrote to the memory of other nodes",
            &|g| g.remote.map(|bytes| bytes as f64),
        );
        each("arclight:node_busy_seconds", "Time that they worked, all together", &|g| {
            Some(g.busy.as_secs_f64())
        });
        each(
            "arclight:node_tasks",
            "Tiles that they ran where threads share them, of attention and of products",
            &|g| Some(g.tasks as f64),
        );
        each(
            "arclight:node_stolen_tasks",
            "Of these, tiles that were dealt to another thread",
            &|g| Some(g.stolen_tasks as f64),
        );
        each(
            "arclight:node_left_tasks",
            "Tiles left in a queue when one was taken from it, added up over all that were taken",
            &|g| Some(g.left_tasks as f64),
        );
        let scopes = groups().flat_map(|(labels, g)| {
            let scope = |name: &str, waits: Duration| {
                ([&labels[..], &[name.to_owned()]].concat(), waits.as_secs_f64())
            };
            [scope("node", g.local_waits), scope("machine", g.global_waits)]
        });
        self.counter(
            "arclight:node_wait_seconds",
            "Time that they waited, all together, for their own node or for all",
            &["replica", "group", "node", "scope"],
            &scopes.collect::<Vec<_>>(),
        );
    }

    /// What is told by labels.
    fn facts(&self, metric: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let (names, values): (Vec<&str>, Vec<&str>) = labels.iter().copied().unzip();
        let gauge = GaugeVec::new(Opts::new(metric, help), &names).expect(VALID);
        gauge.with_label_values(&values).set(value);
        self.add(gauge);
    }

    fn gauge(&self, metric: &str, help: &str, value: f64) {
        let gauge = Gauge::new(metric, help).expect(VALID);
        gauge.set(value);
        self.add(gauge);
    }

    fn counter(&self, metric: &str, help: &str, labels: &[&str], samples: &[Sample]) {
        let counters = CounterVec::new(Opts::new(format!("{metric}_total"), help), labels);
        let counters = counters.expect(VALID);
        for (labels, value) in samples {
            counters.with_label_values(labels).inc_by(*value);
        }
        self.add(counters);
    }

    fn add(&self, metric: impl Collector + 'static) {
        self.0.register(Box::new(metric)).expect(VALID);
    }
}
