//! Random answers, near calls of every family: no panic, the same segments however they are cut, and
//! nothing lost.

use arclight_chat::{Family, Format, ParserOptions, Segment};
use proptest::prelude::*;

use crate::{options, segments, tokenizer, tools};

/// Pieces of what the families write, and words.
fn answers() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "<function=",
        "<parameter=",
        ">",
        "</parameter>",
        "</function>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "[",
        "]",
        "{\"name\": \"",
        "\", \"arguments\": {",
        "}}",
        "{}",
        ", ",
        "functools",
        "<|tool_call|>",
        "<|/tool_call|>",
        "<|python_tag|>",
        "; ",
        "\", \"parameters\": {",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "function<｜tool▁sep｜>",
        "<｜tool▁sep｜>",
        "```json\n",
        "\n```",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "<|channel|>",
        "analysis",
        "final",
        "<|message|>",
        " to=functions.",
        "<|end|>",
        "<|start|>assistant",
        "<|call|>",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<seed:tool_call>",
        "</seed:tool_call>",
        "<minimax:tool_call>",
        "<invoke name=\"",
        "<parameter name=\"",
        "\">",
        "</invoke>",
        "[THINK]",
        "[/THINK]",
        "<response>",
        "weather",
        "clock",
        "city",
        "days",
        "3",
        "<",
        "\n",
        " ",
        "日",
    ];
    let piece = prop_oneof![
        4 => prop::sample::select(PIECES).prop_map(String::from),
        1 => (0..1000u32).prop_map(|n| format!("w{n}w")),
        1 => "\\PC{0,4}",
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn families() -> impl Strategy<Value = Family> {
    prop::sample::select(Family::all().collect::<Vec<_>>())
}

/// Everything that segments say.
fn said(found: &[Segment]) -> String {
    let text = |segment: &Segment| match segment {
        Segment::Reasoning(text) | Segment::Text(text) => text.clone(),
        Segment::ToolCall { name, .. } => name.clone(),
        Segment::Arguments { delta, .. } => delta.clone(),
        Segment::ToolCallEnd { .. } => String::new(),
    };
    found.iter().map(text).collect::<Vec<_>>().join("\0")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn however_it_is_cut(
        family in families(), answer in answers(), cuts in prop::collection::vec(1usize..9, 1..40),
        reasoning in any::<bool>(), opened in any::<bool>(),
    ) {
        let format = Format::new(family, &tokenizer(&[]));
        let options = ParserOptions { tools: tools(), reasoning, prompt_opens_reasoning: opened };
        let whole = segments(&format, options.clone(), [&*answer]);
        let mut pieces = Vec::new();
        let mut rest = &*answer;
        for cut in cuts.iter().cycle() {
            let Some((at, _)) = rest.char_indices().nth(*cut) else { break };
            pieces.push(&rest[..at]);
            rest = &rest[at..];
        }
        pieces.push(rest);
        prop_assert_eq!(&whole, &segments(&format, options, pieces));
        // A call's segments stand together, ends only behind whole objects.
        let mut open = None;
        for segment in &whole {
            match segment {
                Segment::ToolCall { index, .. } => open = Some((*index, "")),
                Segment::Arguments { index, delta } => {
                    prop_assert_eq!(open.map(|o| o.0), Some(*index));
                    open = Some((*index, delta));
                }
                Segment::ToolCallEnd { index } => {
                    prop_assert_eq!(open.map(|o| o.0), Some(*index));
                    let value: serde_json::Value = serde_json::from_str(open.unwrap().1).unwrap();
                    prop_assert!(value.is_object());
                    open = None;
                }
                Segment::Text(_) | Segment::Reasoning(_) => open = None,
            }
        }
    }

    #[test]
    fn no_word_is_lost(family in families(), answer in answers()) {
        // Headers of channels are structure, whatever stands in them.
        prop_assume!(family != Family::Harmony && !answer.contains("[CALL_ID]"));
        // So that no tag is left open at the end.
        let answer = format!("{answer}\"></arg_key><arg_value>");
        let format = Format::new(family, &tokenizer(&[]));
        let said = said(&segments(&format, options(), [&*answer]));
        let mut rest = &*answer;
        while let Some(at) = rest.find('w') {
            let word: String = rest[at..].chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
            rest = &rest[at + word.len()..];
            let own = word.len() > 2 && word[1..word.len() - 1].bytes().all(|b| b.is_ascii_digit());
            if own && word.ends_with('w') {
                prop_assert!(said.contains(&word), "{}: {} of {:?} is not in {:?}", family, word, answer, said);
            }
        }
    }

    #[test]
    fn without_marks_an_answer_is_its_text(family in families(), answer in "[a-z ,.\n]{0,40}") {
        prop_assume!(!answer.contains("assistant"));
        let format = Format::new(family, &tokenizer(&[]));
        let expected: Vec<_> =
            [Segment::Text(answer.clone())].into_iter().filter(|_| !answer.is_empty()).collect();
        let found = segments(&format, options(), [&*answer]);
        // Before a header only white space may stand, and then it says nothing.
        if family == Family::Harmony && answer.trim().is_empty() {
            prop_assert!(found.is_empty());
        } else {
            prop_assert_eq!(found, expected);
        }
    }
}
