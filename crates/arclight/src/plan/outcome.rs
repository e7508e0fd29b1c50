//! Everything that is predicted: the best choice for each engine, and tables by threads and nodes.

use super::engines::EngineArg;
use super::machine::Target;
use super::model::NamedModel;
use crate::error::Error;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tune::{Best, Engine, Job, Prediction, best};

/// Tokens in a step, as the engine takes a prompt.
const CHUNK: usize = 512;

/// What is asked.
pub(super) struct Question<'a> {
    pub(super) prompt: usize,
    /// Tokens that follow the prompt.
    pub(super) answer: usize,
    pub(super) context: usize,
    /// Sequences that are decoded at once.
    pub(super) batch: usize,
    /// Numbers of threads for the tables.
    pub(super) threads: Option<&'a [usize]>,
}

/// An engine with its fastest choices of threads.
pub(super) struct Choice {
    pub(super) arg: EngineArg,
    pub(super) engine: Engine,
    pub(super) decode: Best,
    pub(super) prompt: Best,
    /// Decoding in the middle of the answer.
    pub(super) answer: Best,
}

/// Threads on each node, and tokens/s of each engine.
pub(super) struct Row {
    pub(super) threads: Vec<usize>,
    pub(super) decode: Vec<f64>,
    pub(super) prompt: Vec<f64>,
    /// Prompt and answer together.
    pub(super) both: Vec<f64>,
}

/// The answer.
pub(super) struct Outcome {
    pub(super) decode: Job,
    pub(super) prompt: Job,
    /// Tokens of the answer.
    pub(super) answer: usize,
    /// Bytes that a step of decoding reads: of weights, and of keys and values.
    pub(super) bytes: (f64, f64),
    pub(super) choices: Vec<Choice>,
    pub(super) rows: Vec<Row>,
}

impl Outcome {
    pub(super) fn of(
        target: &Target,
        model: &NamedModel,
        engines: &[EngineArg],
        question: &Question<'_>,
    ) -> Result<Outcome, Error> {
        let context = question.context;
        let decode = Job { sequences: question.batch, ..Job::decode(context) };
        let prompt = Job { tokens: question.prompt, context, chunk: CHUNK, sequences: 1 };
        // Half of the answer stands in the cache on average.
        let middle = context + question.prompt + question.answer / 2;
        let answer = Job { sequences: question.batch, ..Job::decode(middle) };
        let mut choices = Vec::new();
        for &arg in engines {
            let engine = arg.on(target)?;
            let fastest =
                |job| best(&target.model, &engine, &model.model, job).map_err(Error::usage);
            let (decode, prompt, answer) = (fastest(decode)?, fastest(prompt)?, fastest(answer)?);
            choices.push(Choice { arg, engine, decode, prompt, answer });
        }
        let mut rows = Vec::new();
        for threads in layouts(target.model.cores(), question.threads)? {
            let predictions = |job: Job| -> Result<Vec<Prediction>, Error> {
                let predict = |choice: &Choice| {
                    job.predict(&target.model, &choice.engine, &model.model, &threads)
                        .map_err(Error::usage)
                };
                choices.iter().map(predict).collect()
            };
            let (decode, prompt) = (predictions(decode)?, predictions(prompt)?);
            let tokens = (question.prompt, question.answer);
            let both = prompt.iter().zip(predictions(answer)?);
            let both = both.map(|(prompt, token)| together(question.batch, tokens, prompt, &token));
            let both = both.collect();
            let speeds =
                |of: Vec<Prediction>| of.iter().map(Prediction::tokens_per_second).collect();
            rows.push(Row { threads, decode: speeds(decode), prompt: speeds(prompt), both });
        }
        let bytes = model.model.bytes(question.batch, context).map_err(Error::usage)?;
        let answer = question.answer;
        Ok(Outcome { decode, prompt, answer, bytes, choices, rows })
    }

    /// Tokens/s of prompt and answer together, each with the threads that are fastest for it.
    pub(super) fn both(&self, choice: &Choice) -> f64 {
        let (sequences, tokens) = (self.decode.sequences, (self.prompt.tokens, self.answer));
        together(sequences, tokens, &choice.prompt.prediction, &choice.answer.prediction)
    }

    /// As JSON.
    pub(super) fn json(&self, target: &Target, model: &NamedModel) -> Value {
        let prediction = |p: &Prediction| {
            let stage = |s: &tune::StagePrediction| {
                json!({
                    "name": s.name,
                    "working_seconds": s.working,
                    "serial_seconds": s.alone,
                    "waiting_seconds": s.waiting,
                    "limit": s.limit.map(|l| target.name_of(l)),
                })
            };
            json!({
                "tokens_per_second": p.tokens_per_second(),
                "seconds": p.seconds,
                "serial_share": p.alone() / p.seconds,
                "waiting_share": p.waiting() / p.seconds,
                "limit": target.name_of(p.bottleneck),
                "stages": p.stages.iter().map(stage).collect::<Vec<_>>(),
            })
        };
        let best =
            |b: &Best| json!({ "threads": b.threads, "prediction": prediction(&b.prediction) });
        let choice = |c: &Choice| {
            json!({
                "engine": c.arg,
                "decode": best(&c.decode),
                "prompt": best(&c.prompt),
                "prompt_and_answer": {
                    "tokens_per_second": self.both(c),
                    "prompt_threads": c.prompt.threads,
                    "answer_threads": c.answer.threads,
                },
            })
        };
        let row = |r: &Row| {
            json!({
                "threads": r.threads,
                "decode_tokens_per_second": r.decode,
                "prompt_tokens_per_second": r.prompt,
                "prompt_and_answer_tokens_per_second": r.both,
            })
        };
        json!({
            "machine": target.title,
            "nodes": target.nodes,
            "cores": target.model.cores(),
            "read_bytes_per_second": target.read_matrix(),
            "notes": target.notes,
            "model": model.name,
            "bytes_per_step": self.bytes.0,
            "batch": self.decode.sequences,
            "context": self.decode.context,
            "prompt_tokens": self.prompt.tokens,
            "answer_tokens": self.answer,
            "engines": self.choices.iter().map(choice).collect::<Vec<_>>(),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

/// Tokens/s of the prompts and answers of several sequences, with the number of tokens of each prompt and each answer:
/// prompts follow each other, and a step has a token of every answer. `llama-batched-bench` calls it S.
fn together(
    sequences: usize,
    (prompt, answer): (usize, usize),
    of_prompt: &Prediction,
    of_token: &Prediction,
) -> f64 {
    let seconds = sequences as f64 * of_prompt.seconds + answer as f64 * of_token.seconds;
    (sequences * (prompt + answer)) as f64 / seconds
}

/// Threads of each row: on one node, on two, four and so on, and on all; quarters of the cores, or the
/// numbers that were asked for, as far as the nodes have cores for them.
fn layouts(cores: &[usize], asked: Option<&[usize]>) -> Result<Vec<Vec<usize>>, Error> {
    let powers = (0..).map(|i| 1 << i).take_while(|&n| n < cores.len());
    let mut rows = Vec::new();
    for nodes in powers.chain([cores.len()]) {
        let (used, rest) = cores.split_at(nodes);
        let all: usize = used.iter().sum();
        let counts: BTreeSet<usize> = match asked {
            Some(counts) => counts.iter().copied().collect(),
            None => (1..=4).map(|quarter| (all * quarter).div_ceil(4)).collect(),
        };
        for count in counts.into_iter().filter(|&n| (nodes..=all).contains(&n)) {
            let mut threads = deal(used, count);
            threads.extend(rest.iter().map(|_| 0));
            rows.push(threads);
        }
    }
    if rows.is_empty() {
        let all: usize = cores.iter().sum();
        return Err(Error::Usage(format!("--threads: the machine has {all} cores for them")));
    }
    Ok(rows)
}

/// Deals threads evenly, as far as there are cores.
fn deal(cores: &[usize], threads: usize) -> Vec<usize> {
    let mut dealt = vec![0; cores.len()];
    for _ in 0..threads {
        let free = (0..cores.len()).filter(|&n| dealt[n] < cores[n]);
        if let Some(node) = free.min_by_key(|&n| dealt[n]) {
            dealt[node] += 1;
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_from_one_node_to_all() {
        let rows = layouts(&[8, 8, 8], None).unwrap();
        let of = |row: &[usize]| rows.iter().any(|r| r == row);
        assert!(of(&[2, 0, 0]) && of(&[8, 0, 0]) && of(&[4, 4, 0]) && of(&[8, 8, 8]), "{rows:?}");
        assert_eq!(rows.len(), 12);
        assert_eq!(layouts(&[1], None).unwrap(), [[1]]);
        let asked = layouts(&[8, 8], Some(&[3, 16])).unwrap();
        assert_eq!(asked, [vec![3, 0], vec![2, 1], vec![8, 8]]);
        assert!(layouts(&[8], Some(&[9])).is_err());
    }

    #[test]
    fn small_nodes_get_what_they_can_take() {
        assert_eq!(deal(&[2, 8, 0], 7), [2, 5, 0]);
    }
}
