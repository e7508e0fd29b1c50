//! What tuning found, for one machine, model and program: the value, whom it is for, and its file's
//! name. The text is in [`profile_text`](super::profile_text).

use super::Outcome;
use serde::Deserialize;
use std::fmt;

/// Whom a profile is for: each a digest and words that tell a reader what it was made of, both from
/// the caller.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Changes when anything does that the result depends on.
    pub digest: String,
    /// What it is, for people.
    pub words: String,
}

impl Identity {
    /// That of something with this content.
    pub fn of(content: &str, words: String) -> Identity {
        Identity { digest: short_hash(content), words }
    }
}

/// The first 64 bits of BLAKE3 as text: the same on every machine and in every version.
fn short_hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

/// The quantity that a search minimises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Seconds of a step.
    #[default]
    Time,
    /// Joules of a step.
    Energy,
}

impl Objective {
    /// The unit of what a step takes.
    pub fn unit(self) -> &'static str {
        match self {
            Objective::Time => "s",
            Objective::Energy => "J",
        }
    }
}

/// What tuning found, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The CPUs, nodes and limits that were tuned for.
    pub machine: Identity,
    /// The file and the settings that change its work.
    pub model: Identity,
    /// The binary.
    pub program: Identity,
    /// When, in the caller's words.
    pub date: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// The quantity that was minimised: [`Measured`](super::Measured) has tokens per second, or per joule.
    pub objective: Objective,
    /// What was found.
    pub outcome: Outcome,
}

/// What has changed since a profile was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// `machine`, `model` or `program`.
    pub what: &'static str,
    /// What it was made for.
    pub made_for: Identity,
    /// What there is.
    pub now: Identity,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stale { what, made_for, now } = self;
        write!(f, "the profile is for another {what}: {} ({})", made_for.words, made_for.digest)?;
        write!(f, ", this is {} ({}); tune again", now.words, now.digest)
    }
}

impl std::error::Error for Stale {}

impl Profile {
    /// Whether it may be used here.
    ///
    /// # Errors
    /// What has changed, the machine before the model before the program. Words do not count.
    pub fn applies(
        &self,
        machine: &Identity,
        model: &Identity,
        program: &Identity,
    ) -> Result<(), Stale> {
        for (what, made_for, now) in [
            ("machine", &self.machine, machine),
            ("model", &self.model, model),
            ("program", &self.program, program),
        ] {
            if made_for.digest != now.digest {
                return Err(Stale { what, made_for: made_for.clone(), now: now.clone() });
            }
        }
        Ok(())
    }

    /// The name of the file for a machine and a model: beginnings of their digests, of what may stand in
    /// a file's name, and a checksum of the whole. A new program replaces the profile of the old one.
    pub fn file_name(machine: &Identity, model: &Identity) -> String {
        let short = |identity: &Identity| -> String {
            identity.digest.chars().filter(char::is_ascii_alphanumeric).take(16).collect()
        };
        let whole = short_hash(&format!("{}\0{}", machine.digest, model.digest));
        format!("tune-{}-{}-{whole}.toml", short(machine), short(model))
    }
}
