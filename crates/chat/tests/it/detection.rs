//! Families are told from published templates.

use arclight_chat::{Family, Format};

use crate::{source, tokenizer};

#[test]
fn published_templates_are_told_apart() {
    let plain = tokenizer(&[]);
    for (name, family, thinks) in [
        ("qwen2.5", Family::Hermes, false),
        ("qwen3", Family::Hermes, true),
        ("qwen3.5", Family::QwenCoder, true),
        ("qwen3-coder", Family::QwenCoder, false),
        ("granite-4.0", Family::Hermes, false),
        ("mistral-nemo", Family::MistralOld, false),
        ("ministral-3", Family::Mistral, true),
        ("deepseek-v3", Family::DeepSeekV3, false),
        ("glm-4.6", Family::Glm, true),
        ("gpt-oss", Family::Harmony, true),
        ("kimi-k2", Family::Kimi, false),
        ("seed-oss", Family::Seed, true),
        ("minimax-m2", Family::MiniMax, true),
        ("phi-3.5", Family::Plain, false),
        ("smollm3", Family::Plain, true),
    ] {
        let format = Format::detect(&source(name), &plain);
        assert_eq!((format.family(), format.has_reasoning()), (family, thinks), "{name}");
        assert!(!format.needs_special(), "{name}: the vocabulary has no control tokens for it");
    }
}

#[test]
fn families_told_by_what_templates_say_in_passing() {
    let none = tokenizer(&[]);
    let of = |text: &str| Format::detect(text, &none).family();
    assert_eq!(of(""), Family::Plain);
    let llama = "<|start_header_id|>ipython {\"name\": n, \"parameters\": p}";
    assert_eq!(of(llama), Family::Llama3);
    assert_eq!(of("respond only with <|tool_call|> followed by a JSON list"), Family::Granite3);
    assert_eq!(of("call functools[...]"), Family::Functools);
    assert_eq!(of("<|START_ACTION|>[{{ call }}]<|END_ACTION|>"), Family::Cohere);
    let phi = tokenizer(&["<|tool_call|>", "<|/tool_call|>"]);
    let format = Format::detect("<|tool|>{{ message.tools }}<|/tool|>", &phi);
    assert_eq!((format.family(), format.needs_special()), (Family::Phi4, true));
}

#[test]
fn control_tokens_have_to_be_shown() {
    let with = tokenizer(&["[TOOL_CALLS]", "[ARGS]"]);
    assert!(Format::detect(&source("ministral-3"), &with).needs_special());
    assert!(!Format::detect(&source("qwen3"), &with).needs_special());
    // `<think>` is in the vocabulary, if not in the template.
    let think = tokenizer(&["<think>", "</think>"]);
    assert!(Format::detect(&source("qwen2.5"), &think).has_reasoning());
}

#[test]
fn prompts_may_leave_reasoning_open() {
    let format = Format::new(Family::Hermes, &tokenizer(&[]));
    assert!(format.prompt_opens_reasoning("<|im_start|>assistant\n<think>\n"));
    assert!(!format.prompt_opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    let plain = Format::new(Family::Harmony, &tokenizer(&[]));
    assert!(!plain.prompt_opens_reasoning("<think>"));
}

#[test]
fn names_of_families_are_read_back() {
    for family in Family::all() {
        assert_eq!(family.to_string().parse(), Ok(family));
    }
    assert!("gpt-5".parse::<Family>().unwrap_err().contains("known are plain, harmony"));
}
