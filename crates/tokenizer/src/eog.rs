//! Which tokens end a generation.

use crate::spec::VocabSpec;
use crate::vocab::{TokenKind, Tokens};

/// Control tokens that end an answer wherever they are used. Converters often record only one of
/// a model's ends, so the well-known ones count as well.
const TEXTS: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<EOT>",
    "</s>",
];

/// Ends a turn in most vocabularies that have it, but only a message in those with `<|return|>`.
const END_UNLESS_RETURN: &str = "<|end|>";

/// Sorted ids of the tokens that end a generation.
pub(crate) fn ids(spec: &VocabSpec, tokens: &Tokens<'_>, eos: Option<u32>) -> Vec<u32> {
    let mut ids: Vec<u32> = [eos, spec.eot, spec.eom].into_iter().flatten().collect();
    let mut end = None;
    let mut has_return = false;
    for (id, text) in tokens.of_kind(TokenKind::Control) {
        has_return |= text == "<|return|>";
        if text == END_UNLESS_RETURN {
            end = Some(id);
        } else if TEXTS.contains(&text) {
            ids.push(id);
        }
    }
    ids.extend(end.filter(|_| !has_return));
    ids.sort_unstable();
    ids.dedup();
    ids
}
