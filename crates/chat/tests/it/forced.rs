//! Grammars and parsers agree: whatever a family's grammar lets through is read as calls.

use arclight_chat::{Family, Format, Segment, ToolChoice, tool_grammar};
use grammar::{Spec, Vocabulary};
use proptest::prelude::RngExt as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::Value;
use tokenizer::Tokenizer;

use crate::{options, segments, tokenizer, tools};

/// Draws an answer that a grammar lets through; what closes is drawn first after a while.
fn draw(spec: &str, vocabulary: &Vocabulary, rng: &mut TestRng) -> String {
    let mut matcher =
        vocabulary.compile(&Spec::Lark(spec.into())).unwrap_or_else(|e| panic!("{e}\n{spec}"));
    let tokenizer: &Tokenizer = vocabulary.tokenizer();
    let mut tokens = Vec::new();
    while !matcher.ended() {
        assert!(tokens.len() < 5_000, "{}", tokenizer.decode(&tokens, false));
        if matcher.can_end() && rng.random_range(0..4) == 0 {
            break;
        }
        let mut mask = vec![!0; vocabulary.mask_words()];
        matcher.allow(&mut mask).unwrap();
        let allowed = |t: &u32| mask[*t as usize / 32] >> (t % 32) & 1 == 1;
        let choice: Vec<u32> = (0..tokenizer.vocab_size() as u32)
            .filter(|t| allowed(t) && !tokenizer.is_eog(*t))
            .collect();
        // Free text goes on for ever: take what ends it soon, and once begun to its end.
        let free = choice.len() > 20;
        let ends: Vec<u32> = choice.iter().copied().filter(|&t| ends_text(tokenizer, t)).collect();
        let begun: Vec<u32> = marks_begun(&tokenizer.decode(&tokens, false), tokenizer)
            .filter_map(|next| tokenizer.token_to_id(&[next]))
            .filter(|t| free && choice.contains(t))
            .collect();
        let token = match &begun[..] {
            [_, ..] => begun[rng.random_range(0..begun.len())],
            [] if free && !ends.is_empty() && rng.random_range(0..4) == 0 => {
                ends[rng.random_range(0..ends.len())]
            }
            [] => choice[rng.random_range(0..choice.len())],
        };
        matcher.accept(token).unwrap();
        tokens.push(token);
    }
    tokenizer.decode(&tokens, false)
}

/// Whether a token ends free text, or begins to.
fn ends_text(tokenizer: &Tokenizer, token: u32) -> bool {
    tokenizer.is_special(token)
        || matches!(tokenizer.token_bytes(token), Some(b"<" | b"[" | b"\"" | b"\n"))
}

/// What may continue the closing marks that a text has begun. Control tokens are not spelt out.
fn marks_begun<'t>(text: &'t str, tokenizer: &'t Tokenizer) -> impl Iterator<Item = u8> + 't {
    let marks = [
        "\n</parameter>",
        "</parameter>",
        "</think>",
        "</arg_value>",
        "</seed:think>",
        "[/THINK]",
        "<|END_THINKING|>",
        "<|end|>",
    ];
    let spelt = move |mark: &&'static str| tokenizer.token_to_id(mark.trim().as_bytes()).is_none();
    marks.into_iter().filter(spelt).filter_map(move |mark| {
        let begun = (1..mark.len()).rev().find(|&n| text.ends_with(&mark[..n]));
        begun.map(|n| mark.as_bytes()[n])
    })
}

/// Checks an answer's segments: reasoning perhaps, then complete calls that follow their schemas.
fn check(family: Family, found: &[Segment], answer: &str) -> usize {
    let mut calls = 0;
    let mut name = "";
    let mut arguments = String::new();
    for segment in found {
        match segment {
            Segment::Reasoning(_) => assert_eq!(calls, 0, "{family}: {answer}"),
            Segment::Text(text) => panic!("{family}: {text:?} of {answer:?} is text"),
            Segment::ToolCall { index, name: called } => {
                assert_eq!(*index, calls);
                (name, arguments) = (called, String::new());
            }
            Segment::Arguments { delta, .. } => arguments.push_str(delta),
            Segment::ToolCallEnd { .. } => {
                calls += 1;
                let value: Value = serde_json::from_str(&arguments).unwrap();
                let value = value.as_object().unwrap();
                if name == "clock" {
                    assert!(value.is_empty(), "{family}: {answer}");
                } else {
                    assert!(value["city"].is_string(), "{family}: {answer}");
                    assert!(
                        (1..=7).contains(&value["days"].as_i64().unwrap()),
                        "{family}: {answer}"
                    );
                    assert!(value.get("unit").is_none_or(|u| u == "C" || u == "F"));
                    assert!(
                        value.keys().all(|k| ["city", "days", "unit", "spots"].contains(&&**k))
                    );
                }
            }
        }
    }
    assert!(matches!(found.last(), Some(Segment::ToolCallEnd { .. })), "{family}: {answer:?}");
    calls
}

#[test]
fn forced_calls_are_read_as_calls() {
    let marks = [
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[THINK]",
        "[/THINK]",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
        "<|tool_call|>",
        "<|/tool_call|>",
        "<|channel|>",
        "<|message|>",
        "<|start|>",
        // With it, `<|end|>` ends a message and not the answer.
        "<|return|>",
        "<|end|>",
        "<|constrain|>",
        "<arg_value>",
        "</arg_value>",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_end|>",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
    ];
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for tokenizer in [tokenizer(&[]), tokenizer(&marks)] {
        let vocabulary = Vocabulary::new(tokenizer.clone());
        for family in Family::all() {
            let format = Format::new(family, &tokenizer);
            let spec = |choice, parallel| tool_grammar(&format, &tools(), choice, parallel, false);
            if family == Family::Plain {
                assert_eq!(spec(ToolChoice::Required, true), None);
                continue;
            }
            assert_eq!(spec(ToolChoice::Named("none"), false), None);
            let some = spec(ToolChoice::Required, true).unwrap();
            let one = spec(ToolChoice::Named("weather"), false).unwrap();
            let mut most = 0;
            for _ in 0..12 {
                let answer = draw(&some, &vocabulary, &mut rng);
                most = most.max(check(family, &segments(&format, options(), [&*answer]), &answer));
                let answer = draw(&one, &vocabulary, &mut rng);
                let found = segments(&format, options(), [&*answer]);
                assert_eq!(check(family, &found, &answer), 1);
                let named =
                    |e: &Segment| matches!(e, Segment::ToolCall { name, .. } if name == "weather");
                assert!(found.iter().any(named), "{family}: {answer:?}");
            }
            assert!(most > 1 || family == Family::Harmony, "{family} never called twice");
        }
    }
}

#[test]
fn reasoning_that_the_prompt_opened_is_closed_first() {
    let tokenizer = tokenizer(&[]);
    let format = Format::new(Family::Hermes, &tokenizer);
    let spec = tool_grammar(&format, &tools(), ToolChoice::Named("clock"), false, true).unwrap();
    let vocabulary = Vocabulary::new(tokenizer);
    let mut matcher = vocabulary.compile(&Spec::Lark(spec)).unwrap();
    let answer = "So be it.\n</think>\n\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>";
    for byte in answer.bytes() {
        let token = vocabulary.tokenizer().token_to_id(&[byte]).unwrap();
        matcher.accept(token).unwrap();
    }
    assert!(matcher.ended());
}
