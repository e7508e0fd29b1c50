//! Figures for Prometheus, under the names that vLLM uses where it has them (`vllm:`), and of the
//! machine's memory nodes under our own (`arclight:`).

use crate::normal::{Finish, Reason};
use crate::state::Model;
use arclight_engine::{GroupStatus, ReplicaStatus};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Counts of observations by their size.
struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last is for what is above them all.
    counts: Vec<AtomicU64>,
    /// In microseconds.
    sum: AtomicU64,
}

const SHORT: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 10.0,
];
const LONG: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 320.0, 640.0,
];

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = self.bounds.partition_point(|&bound| bound < seconds);
        self.counts[at].fetch_add(1, Relaxed);
        self.sum.fetch_add(time.as_micros() as u64, Relaxed);
    }
}

/// Counts since the server was started.
pub(crate) struct Metrics {
    first: Histogram,
    between: Histogram,
    per_token: Histogram,
    whole: Histogram,
    stopped: [AtomicU64; 3],
    failed: AtomicU64,
    cancelled: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            first: Histogram::new(LONG),
            between: Histogram::new(SHORT),
            per_token: Histogram::new(SHORT),
            whole: Histogram::new(LONG),
            stopped: Default::default(),
            failed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
        }
    }
}

/// When a choice was submitted, had its first token, and its last.
type Times = (Instant, Option<Instant>, Instant);

impl Metrics {
    /// A token came; times before it and with it.
    pub(crate) fn token(&self, (submitted, before, last): Times, (.., now): Times) {
        match before {
            None => self.first.observe(now - submitted),
            Some(_) => self.between.observe(now - last),
        }
    }

    /// A choice ended.
    pub(crate) fn finished(&self, finish: &Finish, (submitted, _, last): Times) {
        let reason = match finish.reason {
            Reason::Stop => 0,
            Reason::Length => 1,
            Reason::ToolCalls => 2,
        };
        self.stopped[reason].fetch_add(1, Relaxed);
        self.whole.observe(last - submitted);
        if finish.tokens > 1 {
            self.per_token.observe(finish.rest / (finish.tokens - 1) as u32);
        }
    }

    /// An answer failed after it had begun.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// A choice was dropped before its end: the client has gone, or had enough.
    pub(crate) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self, name: &str, model: Option<&Model>) -> String {
        let mut page = Page { name, text: String::new() };
        if let Some(model) = model {
            page.engine(model);
        }
        let get = |of: &AtomicU64| of.load(Relaxed) as f64;
        let reasons = ["stop", "length", "tool_calls"].map(|r| format!("finished_reason=\"{r}\""));
        let mut ended: Vec<(&str, f64)> =
            reasons.iter().zip(&self.stopped).map(|(r, n)| (r.as_str(), get(n))).collect();
        ended.push(("finished_reason=\"abort\"", get(&self.cancelled)));
        ended.push(("finished_reason=\"error\"", get(&self.failed)));
        page.counter("vllm:request_success", "Answers by how they ended", &ended);
        page.histogram(
            "vllm:time_to_first_token_seconds",
            "From request to first token",
            &self.first,
        );
        page.histogram("vllm:inter_token_latency_seconds", "Between two tokens", &self.between);
        page.histogram(
            "vllm:time_per_output_token_seconds",
            "Mean time between the tokens of an answer",
            &self.per_token,
        );
        page.histogram(
            "vllm:e2e_request_latency_seconds",
            "From request to last token",
            &self.whole,
        );
        page.text
    }
}

/// A page in Prometheus' text format.
struct Page<'n> {
    name: &'n str,
    text: String,
}

impl Page<'_> {
    /// What the replicas tell, all together.
    fn engine(&mut self, model: &Model) {
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
        // What only the prefix cache holds is given up whenever somebody needs it.
        let used = total - sum(&|s| s.pages.free + s.pages.cached);
        let share = if total > 0.0 { used / total } else { 0.0 };
        self.gauge(
            "vllm:kv_cache_usage_perc",
            "Share of the KV pages that are in use, 0 to 1",
            share,
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
            self.counter(name, help, &[("", value as f64)]);
        }
        self.nodes(&status);
    }

    /// What the threads on each memory node have done. Two groups of threads may be on one node.
    fn nodes<'s>(&mut self, status: &'s [ReplicaStatus]) {
        let replicas = status.iter().enumerate();
        let steps = |of: &dyn Fn(&ReplicaStatus) -> f64| -> Vec<(String, f64)> {
            replicas.clone().map(|(at, s)| (format!("replica=\"{at}\""), of(s))).collect()
        };
        self.counter("arclight:steps", "Steps", &steps(&|s| s.counters.steps as f64));
        let time = steps(&|s| s.counters.step_time.as_secs_f64());
        self.counter("arclight:step_seconds", "Time in steps", &time);
        let groups = || {
            let groups = |(at, s): (usize, &'s ReplicaStatus)| {
                std::iter::repeat(at).zip(s.groups.iter().enumerate())
            };
            replicas.clone().flat_map(groups).map(|(at, (group, g))| {
                let node = g.node.map_or_else(String::new, |node| node.0.to_string());
                (format!("replica=\"{at}\",group=\"{group}\",node=\"{node}\""), g)
            })
        };
        type Of = dyn Fn(&GroupStatus) -> Option<f64>;
        let each = |of: &Of| -> Vec<(String, f64)> {
            groups().filter_map(|(labels, g)| Some((labels, of(g)?))).collect()
        };
        self.counter(
            "arclight:node_read_bytes",
            "Weights, keys and values that the threads of a node read",
            &each(&|g| Some(g.read as f64)),
        );
        self.counter(
            "arclight:node_remote_bytes",
            "Bytes that they read from or wrote to the memory of other nodes",
            &each(&|g| g.remote.map(|bytes| bytes as f64)),
        );
        self.counter(
            "arclight:node_busy_seconds",
            "Time that they worked, all together",
            &each(&|g| Some(g.busy.as_secs_f64())),
        );
        self.counter(
            "arclight:node_tasks",
            "Tiles of attention that they ran where threads share them",
            &each(&|g| Some(g.tasks as f64)),
        );
        self.counter(
            "arclight:node_stolen_tasks",
            "Of these, tiles that were dealt to another thread",
            &each(&|g| Some(g.stolen_tasks as f64)),
        );
        let scopes = groups().flat_map(|(labels, g)| {
            let scope =
                |name, waits: Duration| (format!("{labels},scope=\"{name}\""), waits.as_secs_f64());
            [scope("node", g.local_waits), scope("machine", g.global_waits)]
        });
        self.counter(
            "arclight:node_wait_seconds",
            "Time that they waited, all together, for their own node or for all",
            &scopes.collect::<Vec<_>>(),
        );
    }

    fn head(&mut self, metric: &str, help: &str, kind: &str) {
        let _ = writeln!(self.text, "# HELP {metric} {help}\n# TYPE {metric} {kind}");
    }

    fn line(&mut self, metric: &str, labels: &str, value: f64) {
        let name = self.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let comma = if labels.is_empty() { "" } else { "," };
        let _ = writeln!(self.text, "{metric}{{model_name=\"{name}\"{comma}{labels}}} {value}");
    }

    fn gauge(&mut self, metric: &str, help: &str, value: f64) {
        self.head(metric, help, "gauge");
        self.line(metric, "", value);
    }

    fn counter<L: AsRef<str>>(&mut self, metric: &str, help: &str, values: &[(L, f64)]) {
        let metric = format!("{metric}_total");
        self.head(&metric, help, "counter");
        for (labels, value) in values {
            self.line(&metric, labels.as_ref(), *value);
        }
    }

    fn histogram(&mut self, metric: &str, help: &str, of: &Histogram) {
        self.head(metric, help, "histogram");
        let mut total = 0;
        let bounds = of.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&of.counts) {
            total += count.load(Relaxed);
            self.line(&format!("{metric}_bucket"), &format!("le=\"{bound}\""), total as f64);
        }
        self.line(&format!("{metric}_sum"), "", of.sum.load(Relaxed) as f64 / 1e6);
        self.line(&format!("{metric}_count"), "", total as f64);
    }
}
