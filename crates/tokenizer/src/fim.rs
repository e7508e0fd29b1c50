//! Tokens for fill-in-the-middle: a model of code is given what stands before and after a gap.

use crate::Error;
use crate::spec::first_of;
use crate::vocab::Tokens;

/// The ids a vocabulary has for it; a model without this skill has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FimTokens {
    /// In front of the text before the gap.
    pub prefix: Option<u32>,
    /// In front of the text after the gap.
    pub suffix: Option<u32>,
    /// In front of what fills the gap.
    pub middle: Option<u32>,
    /// Fills up a batch in training; ends a generation.
    pub pad: Option<u32>,
    /// In front of a repository's name; ends a generation.
    pub repo: Option<u32>,
    /// Between files; ends a generation.
    pub file: Option<u32>,
}

/// What the tokens are called where the keys are absent: most files leave them out.
const NAMES: [&[&str]; 6] = [
    &[
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ],
    &[
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ],
    &[
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ],
    &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<repo_name>"],
    &["<|file_sep|>", "<file_sep>"],
];

impl FimTokens {
    /// What the keys say. The older names of three of them still occur.
    pub(crate) fn from_gguf(meta: &gguf::Metadata<'_>) -> Result<Self, Error> {
        let get = |keys: &[&str]| first_of(meta, keys);
        Ok(Self {
            prefix: get(&["tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"])?,
            suffix: get(&["tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"])?,
            middle: get(&["tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"])?,
            pad: get(&["tokenizer.ggml.fim_pad_token_id"])?,
            repo: get(&["tokenizer.ggml.fim_rep_token_id"])?,
            file: get(&["tokenizer.ggml.fim_sep_token_id"])?,
        })
    }

    /// Completed by the names of the vocabulary's tokens.
    pub(crate) fn found_in(mut self, tokens: &Tokens<'_>) -> Self {
        let mut found = [None; 6];
        for (id, text, _) in tokens.iter().filter(|t| t.2.is_markup()) {
            for (slot, names) in found.iter_mut().zip(NAMES) {
                if names.contains(&text) {
                    slot.get_or_insert(id);
                }
            }
        }
        // A token that is called padding is only that where there is nothing else of the kind.
        if self.prefix.or(found[0]).is_some() {
            for (slot, id) in self.slots().into_iter().zip(found) {
                *slot = slot.or(id);
            }
        }
        self
    }

    fn slots(&mut self) -> [&mut Option<u32>; 6] {
        let Self { prefix, suffix, middle, pad, repo, file } = self;
        [prefix, suffix, middle, pad, repo, file]
    }

    /// Keys and ids, for checking.
    pub(crate) fn keys(&self) -> [(&'static str, Option<u32>); 6] {
        [
            ("tokenizer.ggml.fim_pre_token_id", self.prefix),
            ("tokenizer.ggml.fim_suf_token_id", self.suffix),
            ("tokenizer.ggml.fim_mid_token_id", self.middle),
            ("tokenizer.ggml.fim_pad_token_id", self.pad),
            ("tokenizer.ggml.fim_rep_token_id", self.repo),
            ("tokenizer.ggml.fim_sep_token_id", self.file),
        ]
    }
}
