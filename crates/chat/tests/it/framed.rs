//! Answers of a given form where a family writes them: the form in gpt-oss's final channel, or a call
//! instead; and what the grammars let through is read as that.

use std::sync::{Arc, LazyLock};

use arclight_chat::{
    Family, Format, HARMONY_MARKS as MARKS, ParserOptions, Segment, answer_grammar,
};
use grammar::{Matcher, Spec, Vocabulary};
use serde_json::{Value, json};
use tokenizer::Tokenizer;

use crate::{options, segments, template, tokenizer, tools};

/// gpt-oss's marks as control tokens.
static HARMONY: LazyLock<Vocabulary> = LazyLock::new(|| Vocabulary::new(tokenizer(&MARKS)));

/// A text as tokens: marks where the vocabulary has them, else bytes.
fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut tokens = Vec::new();
    let mut rest = text.as_bytes();
    while let Some(first) = rest.first() {
        let mark = MARKS.iter().find(|mark| rest.starts_with(mark.as_bytes()));
        let mark = mark.and_then(|m| Some((tokenizer.token_to_id(m.as_bytes())?, m.len())));
        let (token, len) = mark.unwrap_or_else(|| (tokenizer.token_to_id(&[*first]).unwrap(), 1));
        tokens.push(token);
        rest = &rest[len..];
    }
    tokens
}

/// How much of a text goes in; the rest that does not.
fn refused<'t>(matcher: &mut Matcher, vocabulary: &Vocabulary, text: &'t str) -> &'t str {
    let tokenizer = vocabulary.tokenizer();
    let mut at = 0;
    for token in encode(tokenizer, text) {
        if matcher.accept(token).is_err() {
            break;
        }
        at += tokenizer.token_bytes(token).map_or(0, <[u8]>::len);
    }
    &text[at..]
}

fn format(vocabulary: &Vocabulary) -> Format {
    Format::new(Family::Harmony, vocabulary.tokenizer())
}

/// The grammar of an answer of a form, with tools beside it or without.
fn matcher(vocabulary: &Vocabulary, form: &Spec, with_tools: bool) -> Matcher {
    let tools = if with_tools { tools() } else { Vec::new() };
    let around = answer_grammar(&format(vocabulary), &tools, false, true).unwrap();
    vocabulary.compile_within(&around, form).unwrap()
}

fn age() -> Spec {
    Spec::JsonSchema(json!({
        "type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"],
        "additionalProperties": false
    }))
}

const THINKS: &str = "<|channel|>analysis<|message|>A \"dog\" {\"age\": 3}?\nYes.<|end|>";
const ANSWERS: &str = "<|channel|>final<|message|>{\"age\": 3}";
const CALLS: &str =
    "<|channel|>commentary to=functions.clock <|constrain|>json<|message|>{}<|call|>";

#[test]
fn a_final_message_has_the_form_and_thoughts_may_come_before() {
    let ends = ["<|return|>", "<|call|>"];
    // The marks as control tokens, and spelt out.
    for vocabulary in [&*HARMONY, &Vocabulary::new(tokenizer(&[]))] {
        let thought = format!("{THINKS}<|start|>assistant{ANSWERS}");
        for answer in [ANSWERS, &thought] {
            let mut matcher = matcher(vocabulary, &age(), false);
            assert_eq!(refused(&mut matcher, vocabulary, answer), "");
            assert!(matcher.can_end(), "{answer}");
            let told = segments(&format(vocabulary), options(), [answer]);
            assert_eq!(told.last(), Some(&Segment::Text("{\"age\": 3}".into())));
            assert_eq!(told.len(), if answer == thought { 2 } else { 1 });
        }
    }
    // It ends with the token that the family ends its answers with, and not before.
    for end in ends.map(|end| HARMONY.tokenizer().token_to_id(end.as_bytes()).unwrap()) {
        let mut matcher = matcher(&HARMONY, &age(), false);
        for part in [THINKS, "<|start|>assistant", "<|channel|>final<|message|>", "{\"age\": 3"] {
            assert!(matcher.accept(end).is_err(), "before {part}");
            assert_eq!(refused(&mut matcher, &HARMONY, part), "");
        }
        assert!(matcher.accept(end).is_err());
        assert_eq!(refused(&mut matcher, &HARMONY, "}"), "");
        assert_eq!(matcher.accept(end), Ok(()));
    }
}

#[test]
fn nothing_else_is_let_through() {
    let with_thought = |rest: &str| format!("{THINKS}<|start|>assistant{rest}");
    for (answer, rest) in [
        // Without a header, in another channel, to a tool, another value.
        ("{\"age\": 3}".to_owned(), "{\"age\": 3}"),
        ("<|message|>{\"age\": 3}".to_owned(), "<|message|>{\"age\": 3}"),
        (ANSWERS.replace("final", "commentary"), "commentary<|message|>{\"age\": 3}"),
        (CALLS.to_owned(), &CALLS["<|channel|>".len()..]),
        (ANSWERS.replace('3', "true"), "true}"),
        (format!("{ANSWERS}."), "."),
        // Thoughts once, and not as the end.
        (with_thought(THINKS), &THINKS["<|channel|>".len()..]),
        (with_thought("<|return|>"), "<|return|>"),
        (THINKS.replace("<|end|>", "<|return|>"), "<|return|>"),
    ] {
        let mut matcher = matcher(&HARMONY, &age(), false);
        assert_eq!(refused(&mut matcher, &HARMONY, &answer), rest, "{answer}");
        // What has the form may end; nothing else may.
        assert_eq!(matcher.can_end(), rest == ".", "{answer}");
    }
}

#[test]
fn with_tools_a_call_may_come_instead() {
    for answer in [CALLS.to_owned(), format!("{THINKS}<|start|>assistant{CALLS}"), ANSWERS.into()] {
        let mut matcher = matcher(&HARMONY, &age(), true);
        assert_eq!(refused(&mut matcher, &HARMONY, &answer), "", "{answer}");
        assert!(matcher.can_end());
    }
    let mut matcher = matcher(&HARMONY, &age(), true);
    let call = CALLS.replace("{}", "{\"age\": 3}");
    assert_eq!(refused(&mut matcher, &HARMONY, &call), "\"age\": 3}<|call|>");
}

#[test]
fn any_form_has_its_place() {
    let lark = "start: greeting \"!\"\ngreeting: /[Hh]/ \"i\"";
    for (form, fits, rest) in [
        (Spec::JsonObject, "{\"a\": [1, \"<|end|>\"]}", "[1]"),
        (Spec::Regex("[0-9]{2}/[a-c]+".into()), "12/abc", "12-"),
        (Spec::Lark(lark.into()), "Hi!", "Ho!"),
        (Spec::Choice(vec!["red".into(), "green".into()]), "green", "blue"),
    ] {
        for with_tools in [false, true] {
            // Spelt out within a string, a mark is text like any other.
            let mut fitting = matcher(&HARMONY, &form, with_tools);
            let head = "<|channel|>final<|message|>";
            assert_eq!(refused(&mut fitting, &HARMONY, head), "");
            let bytes = |text: &str| {
                let id = |byte: u8| HARMONY.tokenizer().token_to_id(&[byte]).unwrap();
                text.bytes().map(id).collect::<Vec<u32>>()
            };
            let mut other = fitting.clone();
            assert!(bytes(fits).into_iter().all(|token| fitting.accept(token).is_ok()), "{form:?}");
            assert!(fitting.can_end(), "{form:?}");
            assert!(bytes(rest).into_iter().any(|token| other.accept(token).is_err()), "{form:?}");
            let told = segments(&format(&HARMONY), options(), [&*format!("{head}{fits}")]);
            if !fits.contains('|') {
                assert_eq!(told, [Segment::Text(fits.into())]);
            }
        }
    }
}

#[test]
fn families_that_write_text_as_it_is_have_nothing_around_it() {
    let tokenizer = tokenizer(&[]);
    for family in Family::all() {
        let format = Format::new(family, &tokenizer);
        assert_eq!(answer_grammar(&format, &[], true, false), None, "{family}");
        let vocabulary = Vocabulary::new(tokenizer.clone());
        let Some(around) = answer_grammar(&format, &tools(), true, false) else {
            assert_eq!(family, Family::Plain);
            continue;
        };
        // With tools, the answer is one of two things, which may begin alike.
        let mut matcher = vocabulary.compile_within(&around, &age()).unwrap();
        assert_eq!(refused(&mut matcher, &vocabulary, "{\"age\": 3}"), "", "{family}");
        assert!(matcher.can_end());
        let like_a_call = Spec::JsonSchema(json!({
            "type": "object", "additionalProperties": {"type": "string"}, "properties": {}
        }));
        let mut matcher = vocabulary.compile_within(&around, &like_a_call).unwrap();
        let answer = "{\"name\": \"weather\", \"parameters\": \"none\"}";
        assert_eq!(refused(&mut matcher, &vocabulary, answer), "", "{family}");
        assert!(matcher.can_end());
    }
}

#[test]
fn prompts_of_the_published_template_open_a_header() {
    let tokenizer: Arc<Tokenizer> = tokenizer(&MARKS);
    let format = Format::detect(&crate::source("gpt-oss"), &tokenizer);
    let conversation = [tokenizer::Message::new("user", "How old?")];
    let render = |open: bool| {
        let options = tokenizer::RenderOptions {
            add_generation_prompt: open,
            ..tokenizer::RenderOptions::default()
        };
        template("gpt-oss").render(&conversation, &options).unwrap()
    };
    assert!(format.frames_answer(&render(true)));
    assert!(!format.frames_answer(&render(false)));
    assert!(!Format::new(Family::Hermes, &tokenizer).frames_answer(&render(true)));
    // What is read without tools is the form alone.
    let none = ParserOptions { reasoning: true, ..ParserOptions::default() };
    let told = segments(&format, none, [THINKS, "<|start|>assistant", ANSWERS]);
    let Some(Segment::Text(text)) = told.last() else { panic!("{told:?}") };
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), json!({"age": 3}));
}
