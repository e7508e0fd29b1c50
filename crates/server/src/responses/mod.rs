//! OpenAI's responses: answers as lists of items, which the server keeps for a while, so that the next
//! request can go on from them.
//!
//! In a stream every event has a number and, in its `event:` line, its type; the last one brings the
//! whole response. A model's thoughts are an item of type `reasoning` with the thoughts as they are;
//! there are no summaries of them. Tools that the client runs are functions to the model, whatever their type;
//! those that a server runs by itself are left out. Not here: background responses, conversations, stored
//! prompts.

mod compact;
mod create;
mod input;
mod kept;
mod object;
mod output;
pub(crate) mod shapes;
mod store;
mod stored;
mod stream;
mod tools;
mod turns;

pub(crate) use compact::{CompactBody, Compacted, compact};
pub(crate) use create::{InputTokens, ResponseBody, create, input_tokens};
pub(crate) use store::Store;
pub(crate) use stored::{DeletedResponse, ResponseItems, delete, input_items, retrieve};
