//! Everything that a benchmark finds out, as JSON. `docs/serving-bench.md` describes the schema.

use crate::effect::Effect;
use crate::record::Record;
use crate::run::{Load, Run};
use crate::slo::{Attainment, Goodput, Slo};
use crate::stats::Figures;
use serde::{Serialize, Serializer};

/// What was measured, and how.
#[derive(Clone, Debug, Serialize)]
pub struct Head {
    /// Name and version of the schema.
    pub schema: &'static str,
    /// Of the generator.
    pub version: &'static str,
    /// The server's address.
    pub url: String,
    /// Path of the interface.
    pub endpoint: String,
    /// The model that was asked, if the server has names.
    pub model: Option<String>,
    /// `tokenize`, `usage` or `guess`: how prompts got their length.
    pub counts_by: &'static str,
    /// The server took `ignore_eos` and `min_tokens`.
    pub exact_length: bool,
    /// What was asked, for people.
    pub workload: String,
    /// Tokens that all prompts begin with.
    pub prefix: usize,
    /// Of all random numbers.
    pub seed: u64,
}

impl Head {
    /// The schema's name.
    pub const SCHEMA: &'static str = "arclight-bench-serve/1";
}

/// One run and its figures.
#[derive(Clone, Debug, Serialize)]
pub struct Level {
    /// How requests followed each other.
    #[serde(serialize_with = "load")]
    pub load: Load,
    /// Requests that were to be sent.
    pub planned: usize,
    /// The user has ended it.
    pub interrupted: bool,
    /// Figures.
    pub figures: Figures,
    /// Shares of requests within the bounds, by scale.
    pub attainment: Vec<Attainment>,
    /// The strictest scale at which the target is met.
    pub strictest_scale: Option<f64>,
    /// What intruders did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Every request.
    pub requests: Vec<Record>,
    /// Every intruder.
    pub intruders: Vec<Record>,
}

/// The result of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was measured.
    #[serde(flatten)]
    pub head: Head,
    /// Bounds, if there are any.
    #[serde(serialize_with = "slo")]
    pub slo: Option<Slo>,
    /// What the bounds are multiplied by.
    pub scales: Vec<f64>,
    /// Runs.
    pub levels: Vec<Level>,
    /// By scale, of runs in an open loop.
    pub goodput: Vec<Goodput>,
}

impl Report {
    /// Without runs as yet.
    pub fn new(head: Head, slo: Option<Slo>, scales: Vec<f64>) -> Report {
        Report { head, slo, scales, levels: Vec::new(), goodput: Vec::new() }
    }

    /// Adds a run, and gives its figures.
    pub fn add(&mut self, run: Run) -> &Level {
        let at = |&scale: &f64| self.slo?.attainment(&run.records, scale);
        let level = Level {
            load: run.load,
            planned: run.planned,
            interrupted: run.interrupted,
            figures: Figures::of(&run),
            attainment: self.scales.iter().filter_map(at).collect(),
            strictest_scale: self.slo.and_then(|slo| slo.strictest(&run.records)),
            effect: Effect::of(&run),
            requests: run.records,
            intruders: run.intruders,
        };
        self.levels.push(level);
        self.goodput = self.goodputs();
        self.levels.last().expect("one was added")
    }

    fn goodputs(&self) -> Vec<Goodput> {
        let Some(slo) = self.slo else { return Vec::new() };
        let of = |(i, &scale): (usize, &f64)| {
            let rate = |level: &Level| match level.load {
                Load::Open(arrivals) => Some((arrivals.rate(), *level.attainment.get(i)?)),
                Load::Closed(_) => None,
            };
            let rates: Vec<_> = self.levels.iter().filter_map(rate).collect();
            (!rates.is_empty()).then(|| slo.goodput(scale, &rates))
        };
        self.scales.iter().enumerate().filter_map(of).collect()
    }
}

fn load<S: Serializer>(load: &Load, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(tag = "kind", rename_all = "lowercase")]
    enum Written {
        Open { rate: f64, burstiness: f64 },
        Closed { streams: usize },
    }
    match *load {
        Load::Open(arrivals) => {
            Written::Open { rate: arrivals.rate(), burstiness: arrivals.shape() }
        }
        Load::Closed(streams) => Written::Closed { streams },
    }
    .serialize(serializer)
}

fn slo<S: Serializer>(slo: &Option<Slo>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Written {
        ttft_ms: f64,
        tpot_ms: f64,
        target: f64,
    }
    slo.map(|slo| Written { ttft_ms: slo.ttft * 1e3, tpot_ms: slo.tpot * 1e3, target: slo.target })
        .serialize(serializer)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::arrivals::Arrivals;
    use crate::record::Reason;
    use crate::record::tests::{done, failed};

    pub(crate) fn head() -> Head {
        Head {
            schema: Head::SCHEMA,
            version: "0",
            url: "http://h".into(),
            endpoint: "v1/completions".into(),
            model: None,
            counts_by: "guess",
            exact_length: true,
            workload: "w".into(),
            prefix: 0,
            seed: 1,
        }
    }

    #[test]
    fn everything_is_in_the_file() {
        let slo = Slo::new(1000.0, 500.0, 90.0).unwrap();
        let mut report = Report::new(head(), Some(slo), vec![0.1, 1.0]);
        for rate in [1.0, 2.0] {
            let late =
                if rate == 2.0 { failed(2.0, Reason::Connect) } else { done(2.0, 0.0, &[2.5]) };
            report.add(Run {
                load: Load::Open(Arrivals::new(rate, 0.5).unwrap()),
                records: vec![done(1.0, 0.0, &[1.5, 1.75]), late],
                intruders: vec![],
                planned: 2,
                seconds: 3.0,
                interrupted: false,
            });
        }
        report.add(Run {
            load: Load::Closed(4),
            records: vec![],
            intruders: vec![],
            planned: 2,
            seconds: 0.0,
            interrupted: true,
        });
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["schema"], "arclight-bench-serve/1");
        assert_eq!(json["slo"]["ttft_ms"], 1000.0);
        assert_eq!(json["levels"][0]["load"]["burstiness"], 0.5);
        assert_eq!(json["levels"][2]["load"]["streams"], 4);
        assert_eq!(json["levels"][2]["figures"]["requests_per_second"], 0.0);
        assert_eq!(json["levels"][0]["attainment"][1]["both"], 1.0);
        assert_eq!(json["levels"][1]["attainment"][1]["both"], 0.5);
        let request = &json["levels"][0]["requests"][0];
        assert_eq!((&request["ttft_ms"], &request["tpot_ms"]), (&500.0.into(), &250.0.into()));
        assert_eq!(json["levels"][1]["requests"][1]["reason"], "no connection");
        assert_eq!(json["goodput"][0]["rate"], serde_json::Value::Null);
        assert_eq!(json["goodput"][1]["rate"], 1.0);
        assert_eq!(json["goodput"][1]["at_least"], false);
    }
}
