//! Chat templates by name, for models without one of their own.

/// A template, and what ends a turn in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedTemplate {
    /// Its name on a command line.
    pub name: &'static str,
    /// The Jinja source.
    pub source: &'static str,
    /// The text behind which an answer is over; a control token of models that were trained for the template.
    pub end: &'static str,
}

const TEMPLATES: &[NamedTemplate] = &[
    NamedTemplate {
        name: "chatml",
        source: include_str!("templates/chatml.jinja"),
        end: "<|im_end|>",
    },
    NamedTemplate {
        name: "llama3",
        source: include_str!("templates/llama3.jinja"),
        end: "<|eot_id|>",
    },
    NamedTemplate {
        name: "gemma",
        source: include_str!("templates/gemma.jinja"),
        end: "<end_of_turn>",
    },
    NamedTemplate {
        name: "mistral",
        source: include_str!("templates/mistral.jinja"),
        end: "[INST]",
    },
    NamedTemplate { name: "plain", source: include_str!("templates/plain.jinja"), end: "\nUser:" },
];

/// The template of a name.
pub fn named_template(name: &str) -> Option<&'static NamedTemplate> {
    TEMPLATES.iter().find(|template| template.name == name)
}

/// All of them.
pub fn named_templates() -> impl Iterator<Item = &'static NamedTemplate> {
    TEMPLATES.iter()
}

#[cfg(test)]
mod tests {
    use tokenizer::{ChatTemplate, Message, RenderOptions};

    use super::*;
    use crate::{Needs, normalize_messages};

    #[test]
    fn each_renders_a_conversation_and_ends_turns() {
        for named in named_templates() {
            let template = ChatTemplate::new(named.source, Some("<s>"), Some("</s>")).unwrap();
            let needs = Needs::probe(&template);
            assert!(!needs.tools, "{}", named.name);
            let mut messages = ["system", "user", "assistant", "user"]
                .map(|role| Message::new(role, format!("of {role}")))
                .to_vec();
            normalize_messages(&mut messages, &needs).unwrap();
            let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
            let text = template.render(&messages, &options).unwrap();
            let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
            assert!(at("of system") < at("of user") && at("of user") < at("of assistant"));
            assert!(text.rfind("of user").unwrap() > at("of assistant"), "{text}");
            assert!(text.contains(named.end), "{text}");
        }
    }
}
