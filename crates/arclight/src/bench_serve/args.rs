//! The options of `bench-serve`, and the plan that they make.

use crate::args::{List, count, counts};
use crate::error::Error;
use crate::output::OutputArgs;
use clap::{Args, ValueEnum, ValueHint};
use loadgen::{Arrivals, Endpoint, Intruder, Lengths, Load, Options, Slo, Trace, Workload};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Duration;

/// Where a key is taken from when no option gives one. Not `ARCLIGHT_API_KEY`: that is the list of
/// keys that a server takes, and both may run in one environment.
const KEY: &str = "ARCLIGHT_BENCH_API_KEY";
/// Requests of the single-sequence mode, as in Sandwich, section 7.1.
const ONE_BY_ONE: usize = 90;
/// Requests of a rate or a number of streams.
const REQUESTS: usize = 200;
/// Tokens that an intruder writes: it is there to be read.
const INTRUDER_OUTPUT: usize = 8;

/// Measure a server under load
///
/// Sends requests to any server that speaks OpenAI's API and reports how long answers took: to the
/// first token (TTFT), per token after it (TPOT), between tokens (ITL), and in all (E2E). Without
/// --rate and --concurrency, 90 requests follow each other.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchServeArgs {
    /// Address of the server, as in http://localhost:8080
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(super) url: String,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) requests: RequestArgs,
    #[command(flatten)]
    pub(super) server: ServerArgs,
    #[command(flatten)]
    slo: SloArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Write distributions and attainment into this file as a plot, in SVG
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(super) plot: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Which mode?
  one by one     how fast is an answer when nobody else asks? (the default)
  --concurrency  how much does the server do with N answers on the way at all times?
  --rate         what do users feel who come when they like, and how many may come? Requests are
                 sent at their time, whether or not others have been answered; times count from
                 then, so that a request which had to wait to be sent does not look fast

Examples:
  arclight bench-serve http://localhost:8080
  arclight bench-serve http://localhost:8080 --concurrency 1,4,16 --input-len 512 --output-len 128
  arclight bench-serve http://localhost:8080 --rate 0.5,1,2,4 --slo-ttft 2000 --slo-tpot 100 \\
      --slo-scale 0.5,1,2 --plot out.svg -o json > out.json
  arclight bench-serve http://localhost:8080 --concurrency 4 --intruder-len 8192
                                          what does a long prompt do to the others?

A file for --dataset has a request per line, in JSON:
  {\"prompt\": \"Once upon a time\", \"output_len\": 64}
  {\"input_len\": 512, \"output_len\": 64}
  {\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"output_len\": 64}   (--endpoint chat)

docs/serving-bench.md defines every figure and describes the JSON.";

/// How requests follow each other.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArgs {
    /// Requests per second that arrive by chance; several are measured one after another
    #[arg(long, value_name = "R,...", value_parser = numbers, conflicts_with = "concurrency")]
    rate: Option<Numbers>,
    /// Shape of the gamma-distributed times between arrivals: 1 is Poisson, less comes in bursts,
    /// more is even; their coefficient of variation is 1/sqrt(SHAPE)
    #[arg(long, value_name = "SHAPE", value_parser = number, default_value = "1", requires = "rate")]
    burstiness: f64,
    /// Answers on the way at all times; several are measured one after another
    #[arg(long, value_name = "N,...", value_parser = counts)]
    concurrency: Option<List>,
    /// Requests of each rate or concurrency [default: 90 one by one, else 200; or as many as the
    /// --dataset has]
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    requests: Option<usize>,
    /// Requests before the first that count
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) warmup: usize,
    /// Also send a prompt of N tokens every now and then, and tell what it does to the others
    #[arg(long, value_name = "N", value_parser = count)]
    intruder_len: Option<usize>,
    /// Seconds from one such prompt to the next
    #[arg(long, value_name = "S", value_parser = number, default_value = "10", requires = "intruder_len")]
    intruder_every: f64,
}

/// What is asked.
#[derive(Args, Debug)]
#[command(next_help_heading = "Requests")]
pub(super) struct RequestArgs {
    /// Published trace whose prompt and answer lengths are drawn: sharegpt, sharegpt-short,
    /// sharegpt-multiturn, azure-conv, azure-code or lmsys-chat
    #[arg(long, value_name = "NAME", value_parser = trace, hide_possible_values = true, default_value = "sharegpt")]
    trace: Trace,
    /// Tokens of every prompt, instead of those of the trace
    #[arg(long, value_name = "N", value_parser = count)]
    input_len: Option<usize>,
    /// Tokens of every answer, instead of those of the trace or where the --dataset has none
    #[arg(long, value_name = "N", value_parser = count)]
    output_len: Option<usize>,
    /// Draw no longer prompts from the trace
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "input_len")]
    max_input_len: Option<usize>,
    /// Draw no longer answers from the trace
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "output_len")]
    max_output_len: Option<usize>,
    /// Take prompts or lengths from a file, a request per line in JSON
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        conflicts_with_all = ["trace", "input_len", "max_input_len", "max_output_len"]
    )]
    dataset: Option<PathBuf>,
    /// Begin all prompts with the same N tokens, before their own, for the server's prefix cache
    #[arg(long, value_name = "N", default_value = "0")]
    pub(super) prefix_len: usize,
    /// Seed of arrivals, lengths and words: the same seed sends the same
    #[arg(long, value_name = "N", default_value = "0")]
    pub(super) seed: u64,
}

/// How the server is asked.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
pub(super) struct ServerArgs {
    /// Interface: completions, or chat, where the server adds its template to each prompt
    #[arg(long, value_name = "NAME", value_enum, hide_possible_values = true, default_value_t = EndpointArg::Completions)]
    endpoint: EndpointArg,
    /// Model to ask [default: the first that the server lists]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Key for the server [default: what ARCLIGHT_BENCH_API_KEY holds]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Seconds that an answer may take before it counts as failed
    #[arg(long, value_name = "S", value_parser = number, default_value = "600")]
    timeout: f64,
    /// Let answers end where the model ends them, instead of at their length
    #[arg(long)]
    pub(super) allow_eos: bool,
    /// Fields to add to every request, as in '{"temperature": 1}'
    #[arg(long, value_name = "JSON", value_parser = object)]
    body: Option<Object>,
}

/// What is fast enough.
#[derive(Args, Debug)]
#[command(next_help_heading = "Objectives")]
struct SloArgs {
    /// Milliseconds until the first token that are fast enough
    #[arg(long, value_name = "MS", value_parser = number, requires = "slo_tpot")]
    slo_ttft: Option<f64>,
    /// Milliseconds per token after it that are fast enough
    #[arg(long, value_name = "MS", value_parser = number, requires = "slo_ttft")]
    slo_tpot: Option<f64>,
    /// Multiply both bounds by each of these: less than 1 is stricter
    #[arg(long, value_name = "X,...", value_parser = numbers, default_value = "1", requires = "slo_ttft")]
    slo_scale: Numbers,
    /// Percent of the requests that must meet both bounds
    #[arg(long, value_name = "PERCENT", value_parser = number, default_value = "90", requires = "slo_ttft")]
    slo_target: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EndpointArg {
    Completions,
    Chat,
}

/// Numbers given as one value, `0.5,1,2`.
#[derive(Clone, Debug, PartialEq)]
struct Numbers(Vec<f64>);

/// Fields of a body.
#[derive(Clone, Debug, PartialEq)]
struct Object(Map<String, Value>);

fn number(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(n) if n.is_finite() && n > 0.0 => Ok(n),
        _ => Err(format!("{text:?} is no positive number")),
    }
}

fn numbers(text: &str) -> Result<Numbers, String> {
    text.split(',').map(number).collect::<Result<_, _>>().map(Numbers)
}

fn trace(text: &str) -> Result<Trace, String> {
    let named = |trace: &Trace| trace.name() == text;
    Trace::ALL.into_iter().find(named).ok_or_else(|| {
        let names: Vec<&str> = Trace::ALL.into_iter().map(Trace::name).collect();
        format!("there are {}", names.join(", "))
    })
}

fn object(text: &str) -> Result<Object, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(Object(map)),
        Ok(_) => Err("it must be an object, as in {\"temperature\": 1}".to_owned()),
        Err(e) => Err(format!("it is no JSON: {e}")),
    }
}

/// Everything that is measured.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) loads: Vec<Load>,
    pub(super) workload: Workload,
    /// What is asked, for people.
    pub(super) words: String,
    pub(super) requests: usize,
    pub(super) intruder: Option<Intruder>,
    pub(super) slo: Option<Slo>,
    pub(super) scales: Vec<f64>,
}

impl Plan {
    pub(super) fn of(args: &BenchServeArgs) -> Result<Plan, Error> {
        let LoadArgs { rate, burstiness, concurrency, requests, intruder_len, .. } = &args.load;
        let mut default = REQUESTS;
        let loads = match (rate, concurrency) {
            (Some(Numbers(rates)), _) => {
                let open = |&rate| Arrivals::new(rate, *burstiness).map(Load::Open);
                rates.iter().map(open).collect::<Result<_, _>>()?
            }
            (None, Some(List(all))) => all.iter().copied().map(Load::Closed).collect(),
            (None, None) => {
                default = ONE_BY_ONE;
                vec![Load::Closed(1)]
            }
        };
        let (workload, words) = args.workload()?;
        if let Workload::Listed(all) = &workload {
            default = all.len();
        }
        let SloArgs { slo_ttft, slo_tpot, slo_scale, slo_target } = &args.slo;
        let slo = match (slo_ttft, slo_tpot) {
            (Some(ttft), Some(tpot)) => Some(Slo::new(*ttft, *tpot, *slo_target)?),
            _ => None,
        };
        Ok(Plan {
            loads,
            workload,
            words,
            requests: requests.unwrap_or(default),
            intruder: intruder_len.map(|input| Intruder {
                input,
                output: INTRUDER_OUTPUT,
                every: seconds(args.load.intruder_every),
            }),
            scales: if slo.is_some() { slo_scale.0.clone() } else { Vec::new() },
            slo,
        })
    }
}

impl BenchServeArgs {
    fn workload(&self) -> Result<(Workload, String), Error> {
        let RequestArgs { trace, input_len, output_len, max_input_len, max_output_len, .. } =
            self.requests;
        if let Some(path) = &self.requests.dataset {
            let chat = self.server.endpoint == EndpointArg::Chat;
            let words = format!("requests of {}", path.display());
            return Ok((Workload::read(path, output_len, chat)?, words));
        }
        let input = input_len.map_or(Lengths::Inputs(trace), Lengths::Fixed);
        let output = output_len.map_or(Lengths::Outputs(trace), Lengths::Fixed);
        let side = |lengths: Lengths, most: Option<usize>| match (lengths, most) {
            (Lengths::Fixed(n), _) => format!("{n} tokens"),
            (lengths, None) => format!("as in {lengths}"),
            (lengths, Some(most)) => format!("as in {lengths} up to {most} tokens"),
        };
        let words = match (input_len, output_len, max_input_len, max_output_len) {
            (None, None, None, None) => format!("lengths as in {trace}"),
            _ => format!(
                "prompts {}, answers {}",
                side(input, max_input_len),
                side(output, max_output_len)
            ),
        };
        let (most_input, most_output) = (max_input_len, max_output_len);
        Ok((Workload::Drawn { input, output, most_input, most_output }, words))
    }

    pub(super) fn options(&self) -> Options {
        let ServerArgs { endpoint, model, timeout, allow_eos, body, .. } = &self.server;
        Options {
            endpoint: match endpoint {
                EndpointArg::Completions => Endpoint::Completions,
                EndpointArg::Chat => Endpoint::Chat,
            },
            model: model.clone(),
            allow_eos: *allow_eos,
            extra: body.clone().map(|body| body.0).unwrap_or_default(),
            timeout: seconds(*timeout),
        }
    }

    /// The key, if there is one.
    pub(super) fn key(&self) -> Option<String> {
        let given = self.server.api_key.clone();
        given.or_else(|| std::env::var(KEY).ok()).filter(|key| !key.is_empty())
    }
}

/// A time of any length: an age of the universe is as good as for ever.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(u64::from(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> Result<Plan, Error> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: BenchServeArgs,
        }
        let line = [&["x", "http://h"], args].concat();
        Plan::of(&<Line as clap::Parser>::parse_from(line).args)
    }

    #[test]
    fn modes() {
        let one = plan(&[]).unwrap();
        assert_eq!((one.loads, one.requests), (vec![Load::Closed(1)], 90));
        let streams = plan(&["--concurrency", "1,16"]).unwrap();
        assert_eq!(streams.loads, [Load::Closed(1), Load::Closed(16)]);
        assert_eq!(streams.requests, 200);
        let open = plan(&["--rate", "0.5,2", "--burstiness", "0.25", "-n", "7"]).unwrap();
        let at = |rate| Load::Open(Arrivals::new(rate, 0.25).unwrap());
        assert_eq!((open.loads, open.requests), (vec![at(0.5), at(2.0)], 7));
        assert!(open.slo.is_none() && open.scales.is_empty() && open.intruder.is_none());
    }

    #[test]
    fn lengths_and_objectives() {
        let p = plan(&["--input-len", "5", "--max-output-len", "50", "--trace", "azure-conv"]);
        let p = p.unwrap();
        assert_eq!(p.words, "prompts 5 tokens, answers as in azure-conv up to 50 tokens");
        assert_eq!(plan(&[]).unwrap().words, "lengths as in sharegpt");
        let p = plan(&["--slo-ttft", "200", "--slo-tpot", "20", "--slo-scale", "0.5, 1"]).unwrap();
        assert_eq!((p.scales, p.slo), (vec![0.5, 1.0], Some(Slo::new(200.0, 20.0, 90.0).unwrap())));
        let p = plan(&["--intruder-len", "8192", "--intruder-every", "2.5"]).unwrap();
        assert_eq!(p.intruder.map(|i| (i.input, i.every.as_millis())), Some((8192, 2500)));
    }
}
