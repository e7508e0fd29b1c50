//! One conversation with a model: answers as streamed text.
//!
//! What the prefix cache has of the next prompt is not computed again: in a conversation, that is all but the last
//! answer's end and the new message. All of it is computed again when a sliding window has left behind what the
//! difference would need.

use crate::error::Error;
use crate::interrupt::Answering;
use crate::load::Loaded;
use crate::report::{Meter, Phase};
use crate::speculate;
use crate::term::{self, note};
use arclight_engine::{
    Encoder, Engine, Helpers, Profile, Prompt, Request, SamplerParams, Speculator, StopReason,
    StopStrings, Text, Timings,
};
use std::time::Duration;
use tokenizer::{ChatTemplate, DecodeOptions, Tokenizer};

/// What an answer is to be like.
#[derive(Clone, Debug)]
pub(crate) struct AnswerOptions {
    pub(crate) params: SamplerParams,
    /// Most tokens.
    pub(crate) limit: Option<usize>,
    /// The answer ends before any of these.
    pub(crate) stop: Vec<String>,
    /// Go on after tokens that end an answer.
    pub(crate) ignore_eos: bool,
    /// The text continues the prompt, instead of beginning anew.
    pub(crate) continues: bool,
    /// The text has control tokens in it.
    pub(crate) special: bool,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The model said so.
    Token,
    /// As many tokens as were asked for.
    Limit,
    /// The context is full.
    Context,
    /// A stop string came.
    Stop,
    /// Ctrl-C.
    Interrupted,
}

impl From<StopReason> for End {
    fn from(why: StopReason) -> End {
        match why {
            StopReason::EndToken(_) => End::Token,
            StopReason::Limit => End::Limit,
            StopReason::Context => End::Context,
            StopReason::Interrupted | StopReason::Deadline => End::Interrupted,
        }
    }
}

/// A finished answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    /// Tokens sampled, without the one that ended it.
    pub(crate) tokens: usize,
    pub(crate) end: End,
    pub(crate) timings: Timings,
    /// What the threads did for the prompt and for the answer.
    pub(crate) phases: [Phase; 2],
    /// Of the prompt and of the answer, when the engine records.
    pub(crate) profiles: Vec<Profile>,
}

/// A loaded model that answers.
pub(crate) struct Session {
    engine: Engine,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: Option<ChatTemplate>,
    speculator: Option<Speculator>,
    pub(crate) encoder: Option<Encoder>,
    /// Tokens of the last prompt and its answer.
    used: usize,
    /// Counts along, for a report.
    meter: Option<Meter>,
}

impl Session {
    pub(crate) fn new(loaded: Loaded) -> Session {
        let Loaded { engine, tokenizer, template, speculator, encoder, .. } = loaded;
        Session { engine, tokenizer, template, speculator, encoder, used: 0, meter: None }
    }

    /// Tokens that a conversation can have.
    pub(crate) fn context(&self) -> usize {
        self.engine.context()
    }

    /// Has the machine's counters count along.
    pub(crate) fn count_with(&mut self, meter: Meter) {
        self.meter = Some(meter);
    }

    /// The engine, for measurements.
    pub(crate) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Tokens of the last prompt and its answer.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Answers a prompt; `show` gets the text in pieces as they are certain.
    ///
    /// # Errors
    /// When the prompt is empty or longer than the context, or `show` fails. The session can go on.
    pub(crate) fn answer(
        &mut self,
        prompt: &Prompt,
        options: &AnswerOptions,
        mut show: impl FnMut(&str) -> Result<(), Error>,
    ) -> Result<Answer, Error> {
        let answering = Answering::begin();
        let interrupted = || answering.interrupted();
        let mut written = Written::new(options);
        let decode = DecodeOptions { skip_special: !options.special, continues: options.continues };
        let mut decoder = tokenizer::Decoder::new(&self.tokenizer, decode);
        // What was counted since it was asked last; counts anew.
        let meter = &mut self.meter;
        let mut counted = || {
            let counted = meter.as_ref().map(Meter::read).unwrap_or_default();
            meter.iter_mut().for_each(Meter::start);
            counted
        };
        self.engine.reset_activity();
        let _before = self.engine.take_profile();
        counted();
        let end_tokens = match options.ignore_eos {
            true => Vec::new(),
            false => self.tokenizer.eog_ids().to_vec(),
        };
        let request = Request {
            images: prompt.images.clone(),
            sampler: options.params.clone(),
            limit: options.limit,
            end_tokens,
            ..Request::new(prompt.tokens.clone())
        };
        let helpers =
            Helpers { speculator: self.speculator.as_mut(), encoder: self.encoder.as_mut() };
        let mut generation = self.engine.generate(request, helpers)?;
        generation.interrupt(&interrupted);
        let mut tokens = 0;
        let mut result = Ok(false);
        let (mut of_prompt, mut profiles) = (None, Vec::new());
        while let (Ok(false), Some(token)) = (&result, generation.next()) {
            // The first token comes with the prompt.
            of_prompt.get_or_insert_with(|| {
                profiles.extend(generation.engine().take_profile());
                (generation.engine().take_activity(), counted())
            });
            result = token.map_err(Error::from).and_then(|token| {
                tokens += 1;
                written.push(decoder.push(token.id), &mut show)
            });
        }
        let (end, timings) = (generation.outcome().map(|o| o.stopped), generation.timings());
        let mut take = || (generation.engine().take_activity(), counted());
        let of_prompt = of_prompt.unwrap_or_else(&mut take);
        let of_answer = take();
        profiles.extend(generation.engine().take_profile());
        drop(generation);
        self.used = prompt.tokens.len() + tokens;
        let end = match (result?, end) {
            (true, _) | (false, None) => End::Stop,
            (false, Some(why)) => End::from(why),
        };
        if end != End::Stop {
            // Where the text is cut, half a character is left out.
            let rest = if end == End::Token { decoder.flush() } else { "" };
            written.finish(rest, &mut show)?;
        }
        let phase =
            |decoding, time, (activity, counted)| Phase { decoding, time, activity, counted };
        let phases =
            [phase(false, timings.prompt, of_prompt), phase(true, timings.generation, of_answer)];
        Ok(Answer { text: written.text, tokens, end, timings, phases, profiles })
    }
}

/// Text as it is shown, and all of it.
struct Written {
    stops: StopStrings,
    text: String,
}

impl Written {
    fn new(options: &AnswerOptions) -> Written {
        Written { stops: StopStrings::new(options.stop.iter().cloned()), text: String::new() }
    }

    /// Takes a piece of text; true if it brought a stop string.
    fn push(
        &mut self,
        piece: &str,
        show: &mut impl FnMut(&str) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let (text, stopped) = match self.stops.push(piece) {
            Text::More(text) => (text, false),
            Text::Stop(text) => (text, true),
        };
        if !text.is_empty() {
            show(&text)?;
            self.text.push_str(&text);
        }
        Ok(stopped)
    }

    /// Takes the last piece, and what was held back.
    fn finish(
        &mut self,
        piece: &str,
        show: &mut impl FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !self.push(piece, show)? {
            let held = self.stops.finish();
            if !held.is_empty() {
                show(&held)?;
                self.text.push_str(&held);
            }
        }
        Ok(())
    }
}

/// Tokens, time and speed of prompt and answer.
pub(crate) fn report_speed(answer: &Answer) {
    let t = &answer.timings;
    let line = |what: &str, tokens: usize, steps: usize, time: Duration| {
        let s = time.as_secs_f64();
        let speed = if s > 0.0 { term::rate(steps as f64 / s) } else { "-".to_owned() };
        let each = s * 1e3 / steps.max(1) as f64;
        note!(
            "{what:<10} {tokens:>6} tokens {:>9} {speed:>9} tokens/s {each:>9.2} ms/token",
            term::seconds(time)
        );
    };
    line("prompt", t.prompt_tokens, t.prompt_tokens, t.prompt);
    // The first token comes with the prompt: it has no step of its own.
    line("generated", answer.tokens, t.tokens, t.generation);
    if let Some(acceptance) = speculate::acceptance(t) {
        note!("guessed    {acceptance}");
    }
}

/// Why an answer ended, and what would make it longer.
pub(crate) fn why(end: End, context: usize) -> String {
    match end {
        End::Token => "by the model".to_owned(),
        End::Limit => "at the number of tokens asked for (-n)".to_owned(),
        End::Context => format!("at the end of the context of {context} tokens (--ctx)"),
        End::Stop => "at a stop string".to_owned(),
        End::Interrupted => "by Ctrl-C".to_owned(),
    }
}
