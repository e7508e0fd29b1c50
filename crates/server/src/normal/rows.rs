//! What there is of every token of a text: hidden states or logits.

use super::request::TextPrompt;
use super::start::{encode_text, known_tokens};
use crate::fault::Fault;
use crate::model::Model;
use arclight_engine::{Request, Rows};

/// The tokens of a text.
///
/// # Errors
/// When it has some that do not exist.
pub(crate) fn known(model: &Model, text: TextPrompt) -> Result<Vec<u32>, Fault> {
    Ok(match text {
        TextPrompt::Text(text) => encode_text(model, text)?.tokens,
        TextPrompt::Tokens(tokens) => known_tokens(model, tokens, "tokens", 0)?.tokens,
    })
}

/// A row for each token, one after the other.
///
/// # Errors
/// When there are no tokens, or too many.
pub(crate) async fn pooled_rows(
    model: &Model,
    tokens: Vec<u32>,
    rows: Rows,
) -> Result<Vec<f32>, Fault> {
    let request = Request { rows: Some(rows), ..Request::new(tokens) };
    let mut ticket = model.replicas.submit(request)?;
    while let Some(token) = ticket.recv().await {
        token?;
    }
    Ok(ticket.take_rows())
}
