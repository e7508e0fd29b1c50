//! Which tokens end a generation.

use crate::fim::FimTokens;
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
    "<turn|>",
    "<|tool_response>",
    "<|flush|>",
    "<|calls|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<eos>",
    "<｜end▁of▁sentence｜>",
    "</s>",
];

/// Ends a turn in most vocabularies that have it, but only a part of one in those with a token of
/// [`ENDS_MORE`].
const END: &str = "<|end|>";
const ENDS_MORE: &[&str] = &["<|return|>", "<|flush|>"];

/// Whether a token of this text ends an answer.
pub(crate) fn is_end(text: &[u8]) -> bool {
    text == END.as_bytes() || TEXTS.iter().any(|t| t.as_bytes() == text)
}

/// Sorted ids of the tokens that end a generation.
pub(crate) fn ids(
    spec: &VocabSpec,
    tokens: &Tokens<'_>,
    eos: Option<u32>,
    fim: &FimTokens,
) -> Vec<u32> {
    let mut ids: Vec<u32> = [eos, spec.eot, spec.eom].into_iter().flatten().collect();
    let mut end = None;
    let mut has_more = false;
    for (id, text) in tokens.of_kind(TokenKind::Control) {
        has_more |= ENDS_MORE.contains(&text);
        if text == END {
            end = Some(id);
        } else if TEXTS.contains(&text) {
            ids.push(id);
        }
    }
    ids.extend(end.filter(|_| !has_more));
    ids.extend([fim.pad, fim.repo, fim.file].into_iter().flatten());
    ids.sort_unstable();
    ids.dedup();
    ids
}
