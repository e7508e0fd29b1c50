//! Speculative decoding: tokens that are guessed and then computed all in one step.
//!
//! A step that decodes reads every weight whether it has one token or several, so a right guess is
//! nearly free (Leviathan, Kalman and Matias, 2023). Guesses come from the text itself, what followed
//! the last tokens when they stood there before (prompt lookup), from a smaller model of the same
//! vocabulary, or from a layer of the model that predicts further tokens (multi-token prediction).
//!
//! Exactness: after the step the text's own sampler picks a token from each row of logits in
//! order, as it would without guesses, and goes on as long as the guess was that token. So greedy
//! and seeded answers have the same tokens with and without guesses, and the distribution of
//! others is the model's. A model that guesses does so with a copy of the text's sampler, random
//! numbers included, so that two distributions that are alike pick the same token.
//!
//! Guessing stops where it loses: [`Gain`] compares the rates with and without.

mod ahead;
mod draft;
mod gain;
#[cfg(test)]
mod golden;
mod lookup;
mod predict;

pub(crate) use ahead::{Ahead, Taken, Text};

use crate::engine::Engine;
use crate::error::Error;
use crate::file::ModelFile;
use crate::load;
use crate::options::LoadOptions;
use draft::Draft;
use gain::Gain;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows of a step up to which it takes little longer: guesses fill it up to here.
pub(crate) const ROWS: usize = 16;

/// How tokens are guessed ahead, to compute several in a step.
#[derive(Clone, Debug, Default)]
pub enum Speculation {
    /// Not at all.
    #[default]
    Off,
    /// What followed the same tokens before, at most so many.
    Lookup(usize),
    /// What a smaller model says, at most so many.
    Draft(Arc<ModelFile>, usize),
    /// What the model's layer says that predicts further tokens, at most so many. It has to be loaded
    /// ([`LoadOptions::predicting`]).
    Predict(usize),
}

impl Speculation {
    /// `options` with what a model needs for this: rows of logits for guesses, and the layer that predicts.
    pub fn options(&self, options: LoadOptions) -> LoadOptions {
        match self {
            Speculation::Off => options,
            _ => {
                let outputs = options.step_outputs.or(options.sequences).unwrap_or(1);
                LoadOptions {
                    step_outputs: Some(outputs.max(ROWS)),
                    predicting: options.predicting || self.predicts(),
                    ..options
                }
            }
        }
    }

    /// Whether the model is to be loaded with the layer that predicts further tokens.
    pub fn predicts(&self) -> bool {
        matches!(self, Speculation::Predict(_))
    }
}

/// Where guesses come from.
enum Source {
    /// The text.
    Lookup,
    /// A smaller model.
    Draft(Box<Draft>),
    /// A layer of the model.
    Predict,
}

/// What guesses tokens of texts ahead.
pub struct Speculator {
    source: Source,
    /// Tokens of a guess, at most.
    most: usize,
    /// What guesses gain; `None` if that does not matter.
    gain: Option<Gain>,
    /// How long the guesses for the next step took.
    took: Duration,
}

impl Speculator {
    /// What guesses for `engine`, which was loaded with [`Speculation::options`]; a smaller model is loaded on the same
    /// cores. `None` if nothing is to guess.
    ///
    /// # Errors
    /// When a smaller model cannot be loaded or has another vocabulary.
    pub fn load(
        engine: &Engine,
        speculation: &Speculation,
        options: &LoadOptions,
    ) -> Result<Option<Speculator>, Error> {
        let (source, most) = match speculation {
            Speculation::Off => return Ok(None),
            Speculation::Lookup(most) => (Source::Lookup, *most),
            Speculation::Predict(most) => (Source::Predict, *most),
            Speculation::Draft(file, most) => {
                let trained = load::trained_context(file)?;
                let context = Some(engine.context().min(trained));
                let (huge_pages, predicting) = (None, false);
                // Its guesses need no adapters, which are not for it.
                let adapters = Vec::new();
                let options =
                    LoadOptions { context, huge_pages, predicting, adapters, ..options.clone() };
                if options.stage.is_some() {
                    return Err(Error::NotInStages("guesses of a draft model"));
                }
                let draft = engine.load_beside(&*file.for_another()?, &options, &mut |_| {})?;
                let (draft_vocab, model) = (draft.hparams().vocab, engine.hparams().vocab);
                if draft_vocab != model {
                    return Err(Error::DraftVocab { draft: draft_vocab, model });
                }
                (Source::Draft(Box::new(Draft::new(draft))), *most)
            }
        };
        let (gain, took) = (Some(Gain::default()), Duration::ZERO);
        Ok(Some(Speculator { source, most, gain, took }))
    }

    /// The same, which also guesses where that loses: for measurements.
    #[must_use]
    pub fn always(self) -> Speculator {
        Speculator { gain: None, ..self }
    }

    /// Makes a guess for every text that has room for one, or none. To be asked before each step, after it is known
    /// what the last one gave.
    pub(crate) fn guess(
        &mut self,
        engine: &mut Engine,
        texts: &mut [Text<'_>],
    ) -> Result<(), Error> {
        let begin = Instant::now();
        let guessing = texts.iter().filter(|text| text.room > 0).count();
        let most = self.most.min((ROWS / guessing.max(1)).saturating_sub(1));
        let wanted = guessing > 0 && self.gain.as_mut().is_none_or(|gain| gain.wants(guessing));
        let cost = self.gain.as_mut().map_or(gain::COST, |gain| gain.cost(guessing));
        for text in texts.iter_mut() {
            let most = if wanted { most.min(text.room) } else { 0 };
            text.ahead.begin(most, cost);
        }
        match &mut self.source {
            Source::Lookup => texts.iter_mut().for_each(lookup::guess),
            Source::Draft(draft) => draft.guess(texts)?,
            Source::Predict => predict::guess(engine, texts, wanted)?,
        }
        self.took = begin.elapsed();
        Ok(())
    }

    /// A step without tokens of prompts, but with so many guessed ones, took so long and gave so many tokens of
    /// `texts` texts.
    pub(crate) fn observe(&mut self, texts: usize, guessed: usize, tokens: usize, step: Duration) {
        if let Some(gain) = &mut self.gain {
            gain.observe(texts, guessed, tokens, self.took + step);
        }
    }

    /// Forgets a text.
    pub(crate) fn forget(&mut self, ahead: &mut Ahead) -> Result<(), Error> {
        match &mut self.source {
            Source::Lookup | Source::Predict => Ok(()),
            Source::Draft(draft) => draft.forget(ahead),
        }
    }
}
