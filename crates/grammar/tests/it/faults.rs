//! What is wrong or not supported is an error that names it.

use arclight_grammar::{Error, Spec};
use serde_json::{Value, json};

use crate::TINY;

fn fault(spec: Spec) -> String {
    TINY.compile(&spec).unwrap_err().to_string()
}

fn schema_fault(schema: Value) -> String {
    fault(Spec::JsonSchema(schema))
}

#[test]
fn schemas_name_the_place() {
    let at = |schema: Value, pointer: &str, words: &str| {
        let message = schema_fault(schema);
        assert!(message.starts_with(&format!("schema at `{pointer}`: ")), "{message}");
        assert!(message.contains(words), "{message}");
    };
    at(json!({"properties": {"a/b": {"not": {}}}}), "#/properties/a~1b/not", "keyword `not`");
    at(json!({"anyOf": [{}, {"if": true}]}), "#/anyOf/1/if", "`if`");
    at(json!({"items": {"uniqueItems": true}}), "#/items/uniqueItems", "`uniqueItems`");
    at(json!({"type": "strnig"}), "#/type", "strnig");
    at(json!({"type": []}), "#/type", "no type");
    at(json!({"type": "string", "format": "isbn"}), "#/format", "isbn");
    at(json!({"type": "string", "pattern": "(a"}), "#/pattern", "unclosed group");
    at(json!({"patternProperties": {"(?=x)": {}}}), "#/patternProperties/(?=x)", "look-around");
    at(json!({"$ref": "#/$defs/none"}), "#/$ref", "leads nowhere");
    at(json!({"$ref": "https://example.com/s"}), "#/$ref", "out of the schema");
    at(json!({"properties": [1]}), "#/properties", "object of schemas");
    at(json!({"allOf": {"a": 1}}), "#/allOf", "array of schemas");
    at(json!({"properties": {"a": 3}}), "#/properties/a", "an object or a boolean");
    at(json!({"x-guidance": {"lenient": true}}), "#/x-guidance", "x-guidance");
    at(json!(3), "#", "an object or a boolean");
}

#[test]
fn formats_of_other_types_are_annotations() {
    let spec = json!({"type": "integer", "format": "int64", "title": "n", "example": {"not": 1}});
    assert!(TINY.compile(&Spec::JsonSchema(spec)).is_ok());
}

#[test]
fn schemas_that_nothing_satisfies_are_errors() {
    let of = |s| schema_fault(s);
    let unsatisfiable = json!({"properties": {"a": false}, "required": ["a"], "type": "object"});
    assert!(of(unsatisfiable).contains("'a' is unsatisfiable"));
    assert_eq!(of(json!({"$ref": "#"})), Error::Empty.to_string());
    let ring = json!({
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"
    });
    assert_eq!(of(ring), Error::Empty.to_string());
    assert!(of(json!({"type": "integer", "minimum": 3, "maximum": 2})).starts_with("schema: "));
    let one_of = json!({"oneOf": [{"type": "integer"}, {"type": "number"}]});
    assert!(of(one_of).contains("oneOf"));
}

#[test]
fn patterns_grammars_and_choices_say_what_is_wrong() {
    assert_eq!(fault(Spec::Regex("a(b".into())), "regular expression: unclosed group (at byte 1)");
    assert!(fault(Spec::Regex("[z-a]".into())).contains("invalid character class range"));
    assert!(fault(Spec::Regex("a++(?<!b)".into())).contains("look-around"));
    assert_eq!(fault(Spec::Choice(vec![])), Error::NoChoice.to_string());
    assert!(fault(Spec::Lark("start: word".into())).contains("unknown name: \"word\""));
    assert!(fault(Spec::Lark("start: \"a".into())).starts_with("lark grammar: 1("));
    assert!(fault(Spec::Lark(String::new())).starts_with("lark grammar: "));
    assert!(fault(Spec::Lark("start: <|none|>".into())).contains("none"));
    assert!(fault(Spec::Lark("start: /(a/".into())).contains("unclosed group"));
    let nested = "start: %json {\"not\": {}}";
    assert!(fault(Spec::Lark(nested.into())).contains("not"));
}

#[test]
fn messages_are_one_line() {
    let long = format!("start: /({}/", "a".repeat(5000));
    for spec in [Spec::Lark(long), Spec::Lark("start: a\na: b\nb: c".into())] {
        let message = fault(spec);
        assert!(message.lines().count() == 1 && message.len() < 1000, "{message}");
    }
}
