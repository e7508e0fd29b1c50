//! A form as a part of a text.

use arclight_grammar::{Error, Spec};
use serde_json::json;

use crate::{TINY, feed};

#[test]
fn the_form_stands_where_the_grammar_says() {
    // The names of rules are each grammar's own.
    let around = "start: \"<\" r \">\" | \"none\"\nr: @answer";
    let lark = "start: r \"!\"\nr: \"so\" | \"<\" r \">\"";
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}},
        "required": ["a"], "additionalProperties": false, "$defs": {"n": {"type": "null"}}});
    for (form, fits, not) in [
        (Spec::JsonSchema(schema), "{\"a\":null}", "{}"),
        (Spec::JsonObject, "{\"a\": {}}", "[]"),
        (Spec::Regex("[a-z/]+>".into()), "a/b>", "7>"),
        (Spec::Lark(lark.into()), "<so>!", "so"),
        (Spec::Choice(vec!["x".into(), "x>y".into()]), "x>y", "y"),
    ] {
        let matcher = TINY.compile_within(around, &form).unwrap();
        for (text, whole) in [
            (format!("<{fits}>"), true),
            (format!("<{not}>"), false),
            (format!("<{fits}"), false),
            (fits.to_owned(), false),
            ("none".to_owned(), true),
        ] {
            let mut matcher = matcher.clone();
            let took = feed(&mut matcher, &TINY, &text) == text.len() && matcher.can_end();
            assert_eq!(took, whole, "{text} {form:?}");
        }
    }
}

#[test]
fn faults_of_either_are_told_apart() {
    let form = Spec::JsonObject;
    let fault = |around: &str, form: &Spec| TINY.compile_within(around, form).unwrap_err();
    assert!(matches!(fault("start: word", &form), Error::Lark(m) if m.contains("word")));
    assert!(matches!(fault("start: @other", &form), Error::Lark(m) if m.contains("other")));
    let around = "start: \"a\" @answer";
    assert!(matches!(fault(around, &Spec::JsonSchema(json!(3))), Error::Schema { .. }));
    assert!(matches!(fault(around, &Spec::Regex("(".into())), Error::Pattern(_)));
    assert_eq!(fault(around, &Spec::Choice(Vec::new())), Error::NoChoice);
    let long = format!("start: \"{}\"", "a".repeat(2 << 20));
    assert!(matches!(fault(&long, &form), Error::TooLarge { .. }));
}
