//! Specifications made to cost much end in an error, or cost little.

use arclight_grammar::{Error, Spec, limits};
use serde_json::{Map, Value, json};

use crate::{DEMO, TINY, allowed, feed, takes};

fn compile(spec: Spec) -> Result<(), Error> {
    TINY.compile(&spec).map(|_| ())
}

#[test]
fn repetitions_that_multiply_are_refused_at_once() {
    for pattern in ["(a{1,1000}){1,1000}", "((ab?){1,100}c){1,100}{1,100}", "a{2000000000}"] {
        assert!(
            matches!(compile(Spec::Regex(pattern.into())), Err(Error::Pattern(m)) if m.contains("multiply"))
        );
        let schema = json!({"type": "string", "pattern": pattern});
        assert!(matches!(compile(Spec::JsonSchema(schema)), Err(Error::Schema { .. })));
    }
}

#[test]
fn ambiguous_patterns_run_or_stop() {
    // Classic backtracking traps, and one whose automaton is exponential.
    for (pattern, text) in [
        ("(a+)+b", "a".repeat(2_000)),
        ("(a|a)*b", "a".repeat(2_000)),
        ("(.*a.{20}|.*b.{30}|.*c.{50})*", "abc".repeat(100)),
        ("(a|b)*a(a|b){60}", "ab".repeat(200)),
    ] {
        let mut matcher = DEMO.compile(&Spec::Regex(pattern.into())).unwrap();
        for c in text.as_bytes() {
            // Either goes on or says that it is too costly.
            match allowed(&mut matcher, &DEMO) {
                Ok(tokens) => assert!(!tokens.is_empty()),
                Err(Error::TooCostly(_)) => break,
                Err(e) => panic!("{pattern}: {e}"),
            }
            let token = DEMO.tokenizer().token_to_id(&[*c]).unwrap();
            match matcher.accept(token) {
                Ok(()) => {}
                Err(Error::TooCostly(_)) => break,
                Err(e) => panic!("{pattern}: {e}"),
            }
        }
    }
}

#[test]
fn what_becomes_too_costly_on_the_way_is_an_error_and_stays_one() {
    // Below the bound on products, but every position is in 200 places at once.
    let spec = Spec::Lark("start: /((a{1,900}b?){1,900}c?){1,900}/".into());
    let mut matcher = TINY.compile(&spec).unwrap();
    let a = TINY.tokenizer().token_to_id(b"a").unwrap();
    let fault =
        (0..2_000).find_map(|_| allowed(&mut matcher, &TINY).and_then(|_| matcher.accept(a)).err());
    let fault = fault.expect("an end to it");
    assert!(matches!(fault, Error::TooCostly(_)), "{fault}");
    assert!(matches!(allowed(&mut matcher, &TINY), Err(Error::TooCostly(_))));
    assert!(matcher.accept(a).is_err());
}

/// `levels` arrays around a value. Not by `json!`, which copies what goes in, and by recursion.
fn nest(levels: usize, inner: Value, around: impl Fn(Value) -> Value) -> Value {
    (0..levels).fold(inner, |value, _| around(value))
}

#[test]
fn deep_schemas_are_refused() {
    let items = |schema| Value::Object(Map::from_iter([("items".into(), schema)]));
    // Letting go of a value this deep takes more stack than a test has.
    let deep = std::thread::Builder::new().stack_size(64 << 20).spawn(move || {
        let allowed = nest(limits::SCHEMA_DEPTH, json!({}), items);
        assert_eq!(compile(Spec::JsonSchema(allowed)), Ok(()));
        let fault = compile(Spec::JsonSchema(nest(10_000, json!({}), items))).unwrap_err();
        assert!(fault.to_string().contains("more than 100 levels deep"), "{fault}");
        let value = nest(10_000, json!(1), |value| Value::Array(vec![value]));
        let constant = Value::Object(Map::from_iter([("const".into(), value)]));
        assert!(compile(Spec::JsonSchema(constant)).is_err());
    });
    deep.unwrap().join().unwrap();
}

#[test]
fn large_schemas_are_refused() {
    let properties = |n: usize| -> Map<String, Value> {
        (0..n).map(|i| (format!("p{i}"), json!({"type": "integer"}))).collect()
    };
    let wide = json!({"type": "object", "properties": properties(100_000)});
    assert_eq!(
        compile(Spec::JsonSchema(wide)).unwrap_err().to_string(),
        "an object has 100000 properties; at most 1000 are allowed"
    );
    let many: Vec<_> = (0..200).map(|_| json!({"properties": properties(500)})).collect();
    assert!(matches!(
        compile(Spec::JsonSchema(json!({ "anyOf": many }))),
        Err(Error::TooLarge { what: "the schema", .. })
    ));
    // All of those allowed may be optional, so that any of them may come next.
    let optional = json!({"type": "object", "properties": properties(limits::PROPERTIES)});
    assert!(takes(&Spec::JsonSchema(optional), r#"{"p1": 1, "p998": 2}"#));
}

#[test]
fn schemas_that_multiply_are_refused() {
    let options: Vec<_> = (0..60)
        .map(|i| json!({"type": "object", "properties": {format!("k{i}"): {"const": i}}}))
        .collect();
    let all = json!({"allOf": [{"anyOf": options}, {"anyOf": options}, {"anyOf": options}]});
    assert!(matches!(compile(Spec::JsonSchema(all)), Err(Error::TooCostly(_))));
}

#[test]
fn long_texts_are_refused() {
    let long = "a".repeat(2 << 20);
    assert!(compile(Spec::Regex(long.clone())).is_err());
    assert!(matches!(compile(Spec::Lark(long.clone())), Err(Error::TooLarge { .. })));
    assert!(matches!(compile(Spec::Choice(vec![long])), Err(Error::TooLarge { .. })));
    assert!(
        compile(Spec::Lark(format!("start: {}\"a\"{}", "(".repeat(9_000), ")".repeat(9_000))))
            .is_err()
    );
    assert!(compile(Spec::Regex(format!("{}a{}", "(".repeat(9_000), ")".repeat(9_000)))).is_err());
}

#[test]
fn long_strings_stay_cheap() {
    let spec = Spec::JsonSchema(json!({"type": "string", "maxLength": 20_000}));
    let mut matcher = DEMO.compile(&spec).unwrap();
    feed(&mut matcher, &DEMO, "\"");
    let a = DEMO.tokenizer().token_to_id(b"a").unwrap();
    for _ in 0..5_000 {
        assert!(allowed(&mut matcher, &DEMO).unwrap().len() > 100);
        matcher.accept(a).unwrap();
    }
}
