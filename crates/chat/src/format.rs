//! Which family a model belongs to, detected from its chat template and its vocabulary.

use std::fmt;
use std::str::FromStr;

use tokenizer::Tokenizer;

use crate::families::{
    cohere, deepseek, glm, granite, hermes, kimi, llama, minimax, mistral, phi, plain, qwen_coder,
    seed,
};
use crate::syntax::{Calls, Syntax};

/// Families of models that write alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Text, and perhaps `<think>`; no calls.
    Plain,
    /// gpt-oss: channels.
    Harmony,
    /// JSON between `<tool_call>` tags: Hermes, Qwen 2.5 and 3, Granite 4.
    Hermes,
    /// `<function=name>` and `<parameter=key>`: Qwen3-Coder, Qwen 3.5.
    QwenCoder,
    /// Llama 3.1 to 3.3: the answer is a JSON object.
    Llama3,
    /// Mistral until 2024: `[TOOL_CALLS]` and a list.
    MistralOld,
    /// Mistral since: `[TOOL_CALLS]name[ARGS]{…}`.
    Mistral,
    /// DeepSeek V3 and R1: fenced arguments.
    DeepSeekV3,
    /// DeepSeek V3.1.
    DeepSeekV31,
    /// Granite 3: `<|tool_call|>` and a list.
    Granite3,
    /// GLM 4.5 to 4.7: `<arg_key>` and `<arg_value>`.
    Glm,
    /// Phi-4-mini: a list between `<|tool_call|>` and `<|/tool_call|>`.
    Phi4,
    /// `functools` and a list.
    Functools,
    /// Kimi K2.
    Kimi,
    /// Seed-OSS.
    Seed,
    /// MiniMax M2.
    MiniMax,
    /// Command R7B and Command A: `<|START_ACTION|>` and a list.
    Cohere,
}

/// Every family and its name on a command line.
const NAMES: &[(Family, &str)] = &[
    (Family::Plain, "plain"),
    (Family::Harmony, "harmony"),
    (Family::Hermes, "hermes"),
    (Family::QwenCoder, "qwen3-coder"),
    (Family::Llama3, "llama3"),
    (Family::MistralOld, "mistral-old"),
    (Family::Mistral, "mistral"),
    (Family::DeepSeekV3, "deepseek-v3"),
    (Family::DeepSeekV31, "deepseek-v3.1"),
    (Family::Granite3, "granite3"),
    (Family::Glm, "glm"),
    (Family::Phi4, "phi4"),
    (Family::Functools, "functools"),
    (Family::Kimi, "kimi"),
    (Family::Seed, "seed"),
    (Family::MiniMax, "minimax"),
    (Family::Cohere, "cohere"),
];

impl Family {
    /// All families.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|(family, _)| *family)
    }

    fn syntax(self) -> Syntax {
        match self {
            Self::Plain => plain::SYNTAX,
            Self::Harmony => plain::HARMONY,
            Self::Hermes => hermes::SYNTAX,
            Self::QwenCoder => qwen_coder::SYNTAX,
            Self::Llama3 => llama::SYNTAX,
            Self::MistralOld => mistral::OLD,
            Self::Mistral => mistral::SYNTAX,
            Self::DeepSeekV3 => deepseek::FENCED,
            Self::DeepSeekV31 => deepseek::SYNTAX,
            Self::Granite3 => granite::SYNTAX,
            Self::Glm => glm::SYNTAX,
            Self::Phi4 => phi::SYNTAX,
            Self::Functools => phi::FUNCTOOLS,
            Self::Kimi => kimi::SYNTAX,
            Self::Seed => seed::SYNTAX,
            Self::MiniMax => minimax::SYNTAX,
            Self::Cohere => cohere::SYNTAX,
        }
    }

    /// The family whose marks a template uses; `token` says whether the vocabulary has a token.
    fn of(template: &str, token: impl Fn(&str) -> bool) -> Self {
        let has = |mark: &str| template.contains(mark);
        // From the most telling marks to those that several families share.
        if has("<|channel|>") && has("<|message|>") {
            Self::Harmony
        } else if has("<｜tool▁calls▁begin｜>") {
            if has("```json") { Self::DeepSeekV3 } else { Self::DeepSeekV31 }
        } else if has("<|tool_calls_section_begin|>") {
            Self::Kimi
        } else if has("[TOOL_CALLS]") {
            if has("[ARGS]") { Self::Mistral } else { Self::MistralOld }
        } else if has("<|START_ACTION|>") {
            Self::Cohere
        } else if has("<minimax:tool_call>") {
            Self::MiniMax
        } else if has("<seed:tool_call>") {
            Self::Seed
        } else if has("<tool_call>") && has("<function=") && has("<parameter=") {
            Self::QwenCoder
        } else if has("<tool_call>") && has("<arg_key>") {
            Self::Glm
        } else if has("<tool_call>") && has("arguments") && !has("<invoke") {
            Self::Hermes
        } else if token("<|/tool_call|>") && has("<|tool|>") {
            Self::Phi4
        } else if has("<|tool_call|>") {
            if has("<|/tool_call|>") { Self::Phi4 } else { Self::Granite3 }
        } else if has("functools") {
            Self::Functools
        } else if has("<|start_header_id|>") && has("\"parameters\"") && has("ipython") {
            Self::Llama3
        } else {
            Self::Plain
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(family, _)| family == self).map_or("?", |(_, name)| *name);
        f.write_str(name)
    }
}

impl FromStr for Family {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        NAMES.iter().find(|(_, name)| *name == text).map(|(family, _)| *family).ok_or_else(|| {
            let known: Vec<_> = NAMES.iter().map(|(_, name)| *name).collect();
            format!("`{text}` is no family of models; known are {}", known.join(", "))
        })
    }
}

/// How a model writes its answers.
#[derive(Debug, Clone)]
pub struct Format {
    family: Family,
    pub(crate) syntax: Syntax,
    /// Marks that are control tokens, with their ids: text does not show them, and a grammar must
    /// name them by id.
    pub(crate) control: Vec<(&'static str, u32)>,
}

impl Format {
    /// Tells the format from the source of the model's chat template (empty if it has none) and its
    /// vocabulary.
    pub fn detect(template: &str, tokenizer: &Tokenizer) -> Self {
        let token = |text: &str| tokenizer.token_to_id(text.as_bytes()).is_some();
        let family = Family::of(template, token);
        let mut format = Self::new(family, tokenizer);
        let think = format.syntax.think.map_or("", |t| t.1);
        // Without the mark anywhere, a `<think>` in an answer is what it says about something.
        if !template.contains(think.trim_start_matches("</").trim_start_matches("[/"))
            && !token(think)
        {
            format.syntax.think = None;
        }
        format
    }

    /// The format of a family, if it is known.
    pub fn new(family: Family, tokenizer: &Tokenizer) -> Self {
        let syntax = family.syntax();
        let id = |mark: &&'static str| {
            let id = tokenizer.token_to_id(mark.as_bytes())?;
            tokenizer.is_special(id).then_some((*mark, id))
        };
        let control = syntax.marks().iter().filter_map(id).collect();
        Self { family, syntax, control }
    }

    /// The same with the calls of another family, for a model that is told of its tools in that one's writing.
    pub fn calling_as(&self, family: Family, tokenizer: &Tokenizer) -> Self {
        let mut other = Self::new(family, tokenizer);
        other.syntax.think = self.syntax.think;
        other.syntax.drop = self.syntax.drop;
        other.control.retain(|(mark, _)| other.syntax.marks().contains(mark));
        other
    }

    /// The format of a family in a vocabulary where its marks are text.
    #[cfg(test)]
    pub(crate) fn without_control(family: Family) -> Self {
        Self { family, syntax: family.syntax(), control: Vec::new() }
    }

    /// The family it is of.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Whether control tokens mark parts of an answer, so that it must be decoded with them.
    pub fn needs_special(&self) -> bool {
        !self.control.is_empty()
    }

    /// Whether the family has calls.
    pub fn has_tools(&self) -> bool {
        !matches!(self.syntax.calls, Calls::None)
    }

    /// Whether the family marks reasoning.
    pub fn has_reasoning(&self) -> bool {
        self.syntax.think.is_some() || matches!(self.syntax.calls, Calls::Harmony)
    }

    /// The mark that closes reasoning, where one does.
    pub fn reasoning_close(&self) -> Option<&'static str> {
        self.syntax.think.map(|(_, close)| close.trim_end())
    }

    /// Whether a rendered prompt leaves reasoning open, so that the answer begins within it.
    pub fn prompt_opens_reasoning(&self, prompt: &str) -> bool {
        self.syntax.think.is_some_and(|(open, _)| prompt.trim_end().ends_with(open))
    }

    /// Whether the answer to a rendered prompt begins with a header that names its channel.
    pub fn frames_answer(&self, prompt: &str) -> bool {
        matches!(self.syntax.calls, Calls::Harmony) && prompt.ends_with(crate::harmony::TURN)
    }
}
