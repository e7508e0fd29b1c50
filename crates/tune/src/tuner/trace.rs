//! What a machine is tuned for: requests, and the few kinds of steps that they come down to.
//!
//! A request is a prompt and an answer. `b` of them are served together as the engine does it: a
//! prompt in chunks of at most the step's limit, which gives the first token of the answer, then a
//! token in every step; whoever is done makes room for the next in the queue. Measuring all of those
//! steps would take as long as serving them, so steps are counted by the power of two nearest to
//! their tokens, with the mean of their depths: ten kinds at most with a limit of 512. A trace is
//! then worth the sum of weight × seconds of its kinds.
//!
//! Limits: a chunk of a prompt is a step of its own, where the engine lets sequences that decode
//! join it; requests are all there from the start; prefix hits are not known here.

use crate::Error;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Lengths of a request, tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Tokens of the prompt, at least 1.
    pub prompt: u32,
    /// Tokens of the answer, the first of which comes with the prompt's last step; at least 1.
    pub output: u32,
}

/// A kind of step, and how many of them a trace has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepKind {
    /// Tokens in the step.
    pub tokens: u32,
    /// Tokens of the sequence before them, on average.
    pub depth: u32,
    /// Steps of this kind.
    pub weight: f64,
}

/// Requests, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    requests: Vec<Request>,
}

impl Trace {
    /// A trace of some requests.
    ///
    /// # Errors
    /// [`Error::EmptyTrace`] when there are none, or one has no prompt or no answer.
    pub fn new(requests: Vec<Request>) -> Result<Trace, Error> {
        let some = |r: &Request| r.prompt > 0 && r.output > 0;
        if requests.is_empty() || !requests.iter().all(some) {
            return Err(Error::EmptyTrace);
        }
        Ok(Trace { requests })
    }

    /// Reads a log: a JSON object a line with `prompt_tokens` and `output_tokens` (or
    /// `completion_tokens`), or with an OpenAI `usage` object of these. What else it has does not
    /// matter; empty lines are skipped.
    ///
    /// # Errors
    /// [`Error::BadRequest`] with the line; [`Error::EmptyTrace`].
    pub fn from_log(text: &str) -> Result<Trace, Error> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let read =
            |(at, line)| request(line).map_err(|reason| Error::BadRequest { line: at + 1, reason });
        Trace::new(lines.map(read).collect::<Result<_, _>>()?)
    }

    /// What it takes to serve `together` requests at a time with at most `chunk` tokens in a step:
    /// kinds of steps by their tokens, ascending. Zeros count as ones.
    pub fn steps(&self, together: usize, chunk: u32) -> Vec<StepKind> {
        let (together, chunk) = (together.max(1), chunk.max(1));
        let mut sums = Sums { chunk, kinds: BTreeMap::new() };
        let mut queue = self.requests.iter();
        // Of each sequence the tokens that are there and those still to come.
        let mut running: Vec<(u64, u64)> = vec![];
        loop {
            for request in queue.by_ref().take(together - running.len()) {
                sums.prompt(request.prompt);
                running.push((request.prompt.into(), u64::from(request.output) - 1));
            }
            running.retain(|&(_, left)| left > 0);
            if running.is_empty() && queue.len() == 0 {
                break;
            }
            if running.len() < together && queue.len() > 0 {
                continue;
            }
            // Until the first is done nothing changes but the depth.
            let steps = running.iter().map(|&(_, left)| left).min().unwrap_or(0);
            let there = running.iter().map(|&(depth, _)| depth).sum::<u64>() as f64;
            let depth = there / running.len() as f64 + (steps - 1) as f64 / 2.0;
            sums.add(running.len() as u64, depth, steps as f64);
            for (depth, left) in &mut running {
                (*depth, *left) = (*depth + steps, *left - steps);
            }
        }
        sums.kinds()
    }
}

/// Steps by kind: how many, and the sum of their depths.
struct Sums {
    chunk: u32,
    kinds: BTreeMap<u32, (f64, f64)>,
}

impl Sums {
    fn prompt(&mut self, tokens: u32) {
        let whole = tokens / self.chunk;
        if whole > 0 {
            let depth = f64::from(whole - 1) / 2.0 * f64::from(self.chunk);
            self.add(self.chunk.into(), depth, whole.into());
        }
        let rest = tokens % self.chunk;
        if rest > 0 {
            self.add(rest.into(), (tokens - rest).into(), 1.0);
        }
    }

    fn add(&mut self, tokens: u64, depth: f64, steps: f64) {
        let kind = nearest_power(tokens).min(self.chunk);
        let (count, depths) = self.kinds.entry(kind).or_default();
        *count += steps;
        *depths += depth * steps;
    }

    fn kinds(self) -> Vec<StepKind> {
        let kind = |(tokens, (weight, depths)): (u32, (f64, f64))| StepKind {
            tokens,
            depth: (depths / weight).round() as u32,
            weight,
        };
        self.kinds.into_iter().map(kind).collect()
    }
}

/// The power of two with the smallest ratio to `n`; at most 2³¹.
fn nearest_power(n: u64) -> u32 {
    let power = (n.max(1) as f64).log2().round().min(31.0);
    1 << power as u32
}

fn request(line: &str) -> Result<Request, String> {
    let value: Value = serde_json::from_str(line).map_err(|e| format!("no JSON: {e}"))?;
    let object = value.as_object().ok_or("not a JSON object")?;
    let object = match object.get("usage") {
        Some(usage) => usage.as_object().ok_or("\"usage\" is no object")?,
        None => object,
    };
    let output =
        if object.contains_key("output_tokens") || !object.contains_key("completion_tokens") {
            "output_tokens"
        } else {
            "completion_tokens"
        };
    Ok(Request { prompt: tokens(object, "prompt_tokens")?, output: tokens(object, output)? })
}

fn tokens(object: &Map<String, Value>, key: &str) -> Result<u32, String> {
    let value = object.get(key).ok_or_else(|| format!("{key:?} is missing"))?;
    let number = value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0);
    number.ok_or_else(|| format!("{key:?} is {value}, not a number of tokens from 1 on"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(trace: &Trace, together: usize) -> Vec<(u32, u32, f64)> {
        trace.steps(together, 512).iter().map(|k| (k.tokens, k.depth, k.weight)).collect()
    }

    #[test]
    fn a_request_alone_is_chunks_and_single_tokens() {
        let trace = Trace::new(vec![Request { prompt: 1100, output: 11 }]).unwrap();
        // 512 after 0, 512 after 512, 76 after 1024; ten tokens after 1100 to 1109.
        assert_eq!(kinds(&trace, 1), [(1, 1105, 10.0), (64, 1024, 1.0), (512, 256, 2.0)]);
        let one = Trace::new(vec![Request { prompt: 1, output: 1 }]).unwrap();
        assert_eq!(kinds(&one, 8), [(1, 0, 1.0)]);
    }

    #[test]
    fn requests_together_share_steps_and_the_next_takes_a_free_place() {
        let of = |output| Request { prompt: 100, output };
        let trace = Trace::new(vec![of(11), of(21), of(11)]).unwrap();
        // Ten steps of the first two, then ten of the second and the third.
        let together = kinds(&trace, 2);
        assert_eq!((together[0].0, together[0].2), (2, 20.0));
        assert_eq!(together[1], (128, 0, 3.0));
        // One after the other: 10 + 20 + 10.
        assert_eq!(kinds(&trace, 1)[0].2, 40.0);
        // Three at a time leave the second alone in the end: 10 of three (nearest: 4), 10 of one.
        let three = kinds(&trace, 3);
        assert_eq!([(three[0].0, three[0].2), (three[1].0, three[1].2)], [(1, 10.0), (4, 10.0)]);
        assert_eq!((three[1].1, three[0].1), (105, 115));
    }

    #[test]
    fn logs_of_two_forms_are_read_and_errors_name_the_line() {
        let log = "{\"prompt_tokens\": 12, \"output_tokens\": 3, \"model\": \"m\"}\n\n\
                   {\"usage\": {\"prompt_tokens\": 7, \"completion_tokens\": 9}, \"id\": 1}\n\
                   {\"prompt_tokens\": 5, \"completion_tokens\": 6}\n";
        let read: Vec<(u32, u32)> =
            Trace::from_log(log).unwrap().requests.iter().map(|r| (r.prompt, r.output)).collect();
        assert_eq!(read, [(12, 3), (7, 9), (5, 6)]);
        let good = "{\"prompt_tokens\": 12, \"output_tokens\": 3}\n";
        for (bad, words) in [
            ("[1]", "not a JSON object"),
            ("{", "no JSON"),
            ("{\"prompt_tokens\": 12}", "\"output_tokens\" is missing"),
            ("{\"prompt_tokens\": -1, \"output_tokens\": 3}", "\"prompt_tokens\" is -1"),
            ("{\"prompt_tokens\": 1, \"output_tokens\": 0}", "\"output_tokens\" is 0"),
            ("{\"prompt_tokens\": 1, \"output_tokens\": 4294967296}", "4294967296"),
            ("{\"usage\": 3}", "\"usage\" is no object"),
        ] {
            let message = Trace::from_log(&format!("{good}\n{bad}")).unwrap_err().to_string();
            assert!(message.contains("line 3") && message.contains(words), "{bad}: {message}");
        }
        assert_eq!(Trace::from_log("\n"), Err(Error::EmptyTrace));
    }
}
