//! Conversations that are too long, made to fit by leaving out their oldest messages.
//!
//! What the system says at the beginning stays, and so does the last message. A result never stands without the
//! message that has its call.

use super::answer::PromptInfo;
use super::request::ChatRequest;
use super::start::{encode_chat, render};
use crate::fault::Fault;
use crate::model::Model;
use tokenizer::Message;

/// The share of the context that a shortened conversation leaves for the answer, at most.
const FOR_ANSWER: usize = 4;

/// The prompt of a conversation; of a shortened one if it asks for that and is too long.
///
/// # Errors
/// When it cannot be rendered, or the prompt is too long all the same.
pub(super) fn fitting(model: &Model, request: &mut ChatRequest) -> Result<PromptInfo, Fault> {
    let context = model.replicas.context();
    let whole = encode_chat(model, render(model, request)?, request, context);
    if !request.shorten {
        return whole;
    }
    let answer = request.generation.limit.unwrap_or(1).clamp(1, (context / FOR_ANSWER).max(1));
    let most = context.saturating_sub(answer);
    let fits = |prompt: &PromptInfo| prompt.tokens.len() <= most;
    match whole {
        Ok(prompt) if fits(&prompt) => return Ok(prompt),
        Err(fault) if fault.too_long.is_none() => return Err(fault),
        _ => {}
    }
    let cuts = cuts(&request.messages);
    // More left out is never longer: the first that fits is found by halving.
    let (mut low, mut high) = (0, cuts.len());
    let mut found = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let mut shorter = without(request, cuts[middle]);
        let text = render(model, &mut shorter)?;
        let prompt = encode_chat(model, text, &shorter, context);
        match prompt {
            Ok(prompt) if fits(&prompt) => {
                found = Some((shorter, prompt));
                high = middle;
            }
            Err(fault) if fault.too_long.is_none() => return Err(fault),
            _ => low = middle + 1,
        }
    }
    // Nothing to leave out is left: let the whole be refused, or be answered as far as there is room.
    let Some((shorter, prompt)) = found else {
        return encode_chat(model, render(model, request)?, request, context);
    };
    tracing::info!(
        messages = request.messages.len() - shorter.messages.len(),
        tokens = prompt.tokens.len(),
        "the oldest messages of a conversation were left out"
    );
    *request = shorter;
    Ok(prompt)
}

/// Where a conversation may begin anew, in order: before messages that do not belong to the one before.
fn cuts(messages: &[Message]) -> Vec<usize> {
    let head = head(messages);
    let begins = |at: &usize| messages[*at].role != "tool" && messages[*at].role != "function";
    (head + 1..messages.len()).filter(begins).collect()
}

/// Messages of the system at the beginning.
fn head(messages: &[Message]) -> usize {
    let system = |m: &Message| matches!(&*m.role, "system" | "developer");
    messages.iter().take_while(|m| system(m)).count()
}

/// The same from the message `cut` on.
fn without(request: &ChatRequest, cut: usize) -> ChatRequest {
    let mut shorter = request.clone();
    let head = head(&shorter.messages);
    let images = |messages: &[Message]| {
        let parts = messages.iter().flat_map(|m| m.content.as_array().into_iter().flatten());
        parts.filter(|part| part["type"] == "image").count()
    };
    let before = images(&shorter.messages[..head]);
    let gone = images(&shorter.messages[head..cut]);
    shorter.images.drain(before..before + gone);
    shorter.messages.drain(head..cut);
    shorter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stay_with_their_calls() {
        let roles =
            ["system", "developer", "user", "assistant", "tool", "tool", "assistant", "user"];
        let messages = roles.map(|role| Message::new(role, role));
        assert_eq!(cuts(&messages), [3, 6, 7]);
        assert_eq!(cuts(&messages[..3]), [] as [usize; 0]);
    }
}
