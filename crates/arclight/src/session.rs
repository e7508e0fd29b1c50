//! One conversation with a model: the tokens that its cache holds, and answers as streamed text.
//!
//! The next prompt is compared with what the cache holds, and only what differs is computed: in a
//! conversation, the last answer's end and the new message.

use crate::error::Error;
use crate::interrupt::Answering;
use crate::load::Loaded;
use arclight_engine::{
    BatchEntry, Engine, Outputs, Sampler, SamplerParams, SeqId, StopStrings, Text, Timings,
};
use std::time::Instant;
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

/// A finished answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    /// Tokens sampled, without the one that ended it.
    pub(crate) tokens: usize,
    pub(crate) end: End,
    pub(crate) timings: Timings,
}

/// A loaded model and one sequence of it.
pub(crate) struct Session {
    engine: Engine,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: Option<ChatTemplate>,
    sequence: SeqId,
    /// What the cache holds.
    cached: Vec<u32>,
}

impl Session {
    pub(crate) fn new(loaded: Loaded) -> Result<Session, Error> {
        let Loaded { mut engine, tokenizer, template, .. } = loaded;
        let sequence = engine.new_sequence()?;
        Ok(Session { engine, tokenizer, template, sequence, cached: Vec::new() })
    }

    /// Tokens that a conversation can have.
    pub(crate) fn context(&self) -> usize {
        self.engine.context()
    }

    /// Tokens that the cache holds.
    pub(crate) fn cached(&self) -> usize {
        self.cached.len()
    }

    /// Answers a prompt; `show` gets the text in pieces as they are certain.
    ///
    /// # Errors
    /// When the prompt is empty or longer than the context, or `show` fails. The session can go on.
    pub(crate) fn answer(
        &mut self,
        prompt: &[u32],
        options: &AnswerOptions,
        mut show: impl FnMut(&str) -> Result<(), Error>,
    ) -> Result<Answer, Error> {
        let (tokens, context) = (prompt.len(), self.context());
        if prompt.is_empty() {
            return Err(arclight_engine::Error::EmptyPrompt.into());
        }
        if tokens > context {
            return Err(arclight_engine::Error::PromptTooLong { tokens, context }.into());
        }
        let interrupt = Answering::begin();
        let mut sampler = Sampler::new(options.params.clone())?;
        sampler.observe_prompt(prompt);
        let mut timings = Timings::default();
        let mut written = Written::new(options);
        let first = self.prefill(prompt, &mut sampler, &interrupt, &mut timings)?;
        let decode = DecodeOptions { skip_special: true, continues: options.continues };
        let mut decoder = tokenizer::Decoder::new(&self.tokenizer, decode);

        let mut tokens = 0;
        let mut next = first;
        let end = loop {
            let Some(token) = next else { break End::Interrupted };
            if !options.ignore_eos && self.tokenizer.is_eog(token) {
                break End::Token;
            }
            tokens += 1;
            if written.push(decoder.push(token), &mut show)? {
                break End::Stop;
            }
            if self.cached.len() >= context {
                break End::Context;
            }
            if options.limit == Some(tokens) {
                break End::Limit; // one token more would be computed for nothing
            }
            if interrupt.interrupted() {
                break End::Interrupted;
            }
            let start = Instant::now();
            let entry =
                BatchEntry { sequence: self.sequence, tokens: &[token], outputs: Outputs::Last };
            let logits = self.engine.step(&[entry])?;
            next = Some(sampler.sample(logits.row(0)));
            self.cached.push(token);
            timings.tokens += 1;
            timings.generation += start.elapsed();
        };
        if end != End::Stop {
            written.finish(decoder.flush(), &mut show)?;
        }
        Ok(Answer { text: written.text, tokens, end, timings })
    }

    /// Makes the cache hold `prompt` and samples the token after it; `None` if interrupted.
    fn prefill(
        &mut self,
        prompt: &[u32],
        sampler: &mut Sampler,
        interrupt: &Answering,
        timings: &mut Timings,
    ) -> Result<Option<u32>, Error> {
        let start = Instant::now();
        // The last token is computed in any case: its logits are wanted.
        let same = self.cached.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let keep = same.min(prompt.len() - 1);
        self.engine.truncate(self.sequence, keep)?;
        self.cached.truncate(keep);
        let chunk = self.engine.limits().tokens;
        let mut sampled = None;
        while sampled.is_none() && !interrupt.interrupted() {
            let rest = &prompt[self.cached.len()..];
            let tokens = &rest[..rest.len().min(chunk)];
            let last = tokens.len() == rest.len();
            let outputs = if last { Outputs::Last } else { Outputs::None };
            let logits =
                self.engine.step(&[BatchEntry { sequence: self.sequence, tokens, outputs }])?;
            sampled = last.then(|| sampler.sample(logits.row(0)));
            self.cached.extend_from_slice(tokens);
        }
        timings.prompt_tokens = self.cached.len() - keep;
        timings.prompt = start.elapsed();
        Ok(sampled)
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
