//! The normal form: what every protocol's request becomes, and what every answer comes from.
//!
//! A protocol translates its request into a [`ChatRequest`] or a [`TextRequest`], has it
//! [started](start), and translates the [`Delta`]s of the [`Answer`] into its own words. All that is
//! about models and not about wires happens between the two: templates and tokens, grammars, stop
//! strings, reasoning and tool calls, log-probabilities, usage.
//!
//! An answer is pulled: tokens wait, four bytes each, in the engine's ticket until the client has read
//! what came before. Dropping an answer cancels what it still computes.

mod answer;
mod beside;
mod choice;
mod constrain;
mod embed;
mod event;
mod guide;
mod images;
mod items;
mod media;
mod rank;
mod request;
mod rows;
mod shorten;
mod start;

pub use answer::{Answer, PromptInfo, Whole, WholeCall};
pub(crate) use beside::beside;
pub(crate) use embed::{EmbedRequest, embed};
pub use event::{Delta, Event, Finish, Reason, TokenLogprob, TokenText};
pub(crate) use images::{Image, shown_behind};
pub use media::Media;
pub(crate) use rank::{RankRequest, rank};
pub(crate) use request::{
    ChatRequest, Constraint, Generation, TextPrompt, TextRequest, ToolChoice,
};
pub(crate) use rows::{known, pooled_rows};
pub(crate) use start::{
    chat, complete, complete_each, count, prompt_text, prompt_tokens, written_tokens,
};
