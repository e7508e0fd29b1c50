//! One conversation with a model: the tokens that its cache holds, and answers as streamed text.
//!
//! The next prompt is compared with what the cache holds, and only what differs is computed: in a
//! conversation, the last answer's end and the new message. All of it is computed again when a sliding
//! window has left behind what the difference would need.

use crate::error::Error;
use crate::interrupt::Answering;
use crate::load::Loaded;
use crate::report::{Meter, Phase};
use arclight_engine::{
    Encoder, Engine, Profile, Prompt, SamplerParams, SeqId, Speculator, StopReason, StopStrings,
    Text, Timings,
};
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

/// A loaded model and one sequence of it.
pub(crate) struct Session {
    engine: Engine,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: Option<ChatTemplate>,
    speculator: Option<Speculator>,
    pub(crate) encoder: Option<Encoder>,
    sequence: SeqId,
    /// What the cache holds.
    cached: Vec<u32>,
    /// Counts along, for a report.
    meter: Option<Meter>,
}

impl Session {
    pub(crate) fn new(loaded: Loaded) -> Result<Session, Error> {
        let Loaded { mut engine, tokenizer, template, speculator, encoder, .. } = loaded;
        let (sequence, cached) = (engine.new_sequence()?, Vec::new());
        let meter = None;
        Ok(Session { engine, tokenizer, template, speculator, encoder, sequence, cached, meter })
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
        prompt: &Prompt,
        options: &AnswerOptions,
        mut show: impl FnMut(&str) -> Result<(), Error>,
    ) -> Result<Answer, Error> {
        let (tokens, context) = (prompt.tokens.len(), self.context());
        if prompt.tokens.is_empty() {
            return Err(arclight_engine::Error::EmptyPrompt.into());
        }
        if tokens > context {
            return Err(arclight_engine::Error::PromptTooLong { tokens, context }.into());
        }
        // What this prompt has in common with those before is found, also where layers have states of fixed size.
        self.engine.free(self.sequence)?;
        let (sequence, kept) = self.engine.begin_prompt(prompt)?;
        self.sequence = sequence;
        let (kept, new) = prompt.tokens.split_at(kept);
        self.cached.clear();
        self.cached.extend_from_slice(kept);

        let answering = Answering::begin();
        let interrupted = || answering.interrupted();
        let mut written = Written::new(options);
        let decode = DecodeOptions { skip_special: true, continues: options.continues };
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
        let mut generation = self.engine.generate(self.sequence, new, options.params.clone())?;
        generation.after(kept).interrupt(&interrupted);
        if let Some(encoder) = self.encoder.as_mut().filter(|_| !prompt.images.is_empty()) {
            generation.images(&prompt.images, encoder)?;
        }
        if let Some(speculator) = &mut self.speculator {
            generation.speculate(speculator)?;
        }
        generation.limit(options.limit.unwrap_or(usize::MAX));
        if !options.ignore_eos {
            generation.end_tokens(self.tokenizer.eog_ids().iter().copied());
        }
        let mut tokens = Vec::new();
        let mut result = Ok(false);
        let (mut of_prompt, mut profiles) = (None, Vec::new());
        while let (Ok(false), Some(token)) = (&result, generation.next()) {
            // The first token comes with the prompt.
            of_prompt.get_or_insert_with(|| {
                profiles.extend(generation.take_profile());
                (generation.take_activity(), counted())
            });
            result = token.map_err(Error::from).and_then(|token| {
                tokens.push(token);
                written.push(decoder.push(token), &mut show)
            });
        }
        let (end, timings) = (generation.stopped(), generation.timings());
        let mut take = || (generation.take_activity(), counted());
        let of_prompt = of_prompt.unwrap_or_else(&mut take);
        let of_answer = take();
        profiles.extend(generation.take_profile());
        drop(generation);
        // What was computed is in the cache, whatever ended the answer.
        self.cached.extend(new.iter().chain(&tokens));
        self.cached.truncate(self.engine.len(self.sequence)?);
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
        Ok(Answer { text: written.text, tokens: tokens.len(), end, timings, phases, profiles })
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
