//! The requests that a machine is tuned for, and the steps that they come down to.

use super::args::TuneArgs;
use crate::error::Error;
use loadgen::Lengths;
use tune::tuner::{Measured, Request, StepKind, Trace};

/// Whose lengths the requests have, how many there are, and the golden section.
const LENGTHS: loadgen::Trace = loadgen::Trace::ShareGpt;
const REQUESTS: usize = 90;
const GOLDEN: f64 = 0.618_033_988_749_894_9;
/// Tokens in a step at most, as the engine has it unless told otherwise.
pub(super) const STEP_TOKENS: u32 = 512;
/// Tokens that the context has room for beyond what steps are behind.
pub(super) const SPARE: usize = 32;

/// What the machine is tuned for.
pub(super) fn trace(args: &TuneArgs) -> Result<Trace, Error> {
    match &args.trace {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| Error::read(path, e))?;
            Trace::from_log(&text).map_err(|e| Error::in_file(path, e))
        }
        None => Trace::new(requests()).map_err(Error::refused),
    }
}

/// Requests as long as those of chats. No chance is involved: prompts stand at equal distances in their
/// distribution, and answers are dealt to them by the golden section.
pub(super) fn requests() -> Vec<Request> {
    let (prompts, outputs) = (Lengths::Inputs(LENGTHS), Lengths::Outputs(LENGTHS));
    let at = |lengths: Lengths, share: f64| lengths.at(share) as u32;
    let request = |i: usize| Request {
        prompt: at(prompts, (i as f64 + 0.5) / REQUESTS as f64),
        output: at(outputs, (i as f64 * GOLDEN + 0.5).fract()),
    };
    (0..REQUESTS).map(request).collect()
}

/// Steps of the trace that a context has room for.
pub(super) fn kinds(trace: &Trace, together: usize, context: usize) -> Vec<StepKind> {
    let room = context.saturating_sub(SPARE) as u32;
    let kinds = trace.steps(together, STEP_TOKENS).into_iter();
    let fits = |kind: &StepKind| kind.tokens <= room;
    let cut = |kind: StepKind| StepKind { depth: kind.depth.min(room - kind.tokens), ..kind };
    kinds.filter(fits).map(cut).collect()
}

/// The kind of step that stands for decoding, on which most of the trace's steps are, and that of most
/// tokens, for prompts.
pub(super) fn ends(kinds: &[StepKind]) -> (StepKind, StepKind) {
    let (prompt, others) = kinds.split_last().expect("a trace has steps");
    let most = others.iter().max_by(|a, b| a.weight.total_cmp(&b.weight));
    (*most.unwrap_or(prompt), *prompt)
}

/// Seconds of a trace, by tokens a second of each kind of step.
pub(super) fn seconds(
    kinds: &[StepKind],
    measured: &[Measured],
    rate: fn(&Measured) -> f64,
) -> f64 {
    let of = |(kind, m): (&StepKind, &Measured)| kind.weight * f64::from(kind.tokens) / rate(m);
    kinds.iter().zip(measured).map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_requests_are_chats() {
        let requests = requests();
        let mut prompts: Vec<u32> = requests.iter().map(|r| r.prompt).collect();
        let mut outputs: Vec<u32> = requests.iter().map(|r| r.output).collect();
        prompts.sort_unstable();
        outputs.sort_unstable();
        // The medians of the published quantiles, to within what 90 requests resolve.
        let near =
            |got: u32, want: usize| f64::from(got.abs_diff(want as u32)) <= 0.1 * want as f64;
        assert!(near(prompts[45], Lengths::Inputs(LENGTHS).at(0.5)), "{}", prompts[45]);
        assert!(near(outputs[45], Lengths::Outputs(LENGTHS).at(0.5)), "{}", outputs[45]);
    }

    #[test]
    fn decoding_is_what_most_steps_are() {
        let kind = |tokens, weight| StepKind { tokens, depth: 9, weight };
        let kinds = [kind(1, 3.0), kind(2, 9.0), kind(64, 1.0)];
        let (decode, prompt) = ends(&kinds);
        assert_eq!((decode.tokens, prompt.tokens), (2, 64));
    }
}
