//! OpenAI's responses: answers as lists of items, which the server keeps for a while, so that the next
//! request can go on from them.
//!
//! In a stream every event has a number and, in its `event:` line, its type; the last one brings the
//! whole response. A model's thoughts are an item of type `reasoning` with the thoughts as they are;
//! there are no summaries of them. Not here: tools that a server runs by itself, background
//! responses, conversations, stored prompts.

mod create;
mod input;
mod object;
mod output;
pub(crate) mod shapes;
mod store;
mod stored;
mod stream;

pub(crate) use create::{InputTokens, ResponseBody, create, input_tokens};
pub(crate) use store::Store;
pub(crate) use stored::{DeletedResponse, ResponseItems, delete, input_items, retrieve};
