//! Random walks through the masks: whatever is sampled has the form that was asked for.

use arclight_grammar::{Error, Matcher, Spec, Vocabulary};
use proptest::prelude::*;
use proptest::test_runner::TestRng;
use serde_json::{Map, Value, json};

use crate::validate::valid;
use crate::{DEMO, END, MARK, TINY, TURN, UNUSED, allowed, feed, takes, tiny};

/// Walks until the grammar ends; every token is drawn from the mask. From the `hurry`th on what
/// closes is drawn first. Gives the tokens and the text.
fn walk(
    matcher: &mut Matcher,
    vocabulary: &Vocabulary,
    rng: &mut TestRng,
    hurry: usize,
) -> (Vec<u32>, String) {
    let tokenizer = vocabulary.tokenizer();
    let mut tokens = Vec::new();
    while !matcher.ended() {
        assert!(tokens.len() < 2_000, "{}", tokenizer.decode(&tokens, true));
        let choice = allowed(matcher, vocabulary).unwrap();
        assert!(!choice.is_empty());
        let end = choice.iter().find(|&&t| tokenizer.is_eog(t));
        assert_eq!(end.is_some(), matcher.can_end());
        let closing = ["\"", "}", "]", ",", ":"].iter().find_map(|text| {
            let id = tokenizer.token_to_id(text.as_bytes())?;
            choice.contains(&id).then_some(id)
        });
        let token = match (end, closing) {
            (Some(&end), _) if tokens.len() >= hurry => end,
            (None, Some(token)) if tokens.len() >= hurry => token,
            _ => choice[rng.random_range(0..choice.len())],
        };
        // What is not allowed is refused and changes nothing.
        let other = rng.random_range(0..tokenizer.vocab_size() as u32);
        if !choice.contains(&other) {
            assert_eq!(matcher.accept(other), Err(Error::Refused { token: other }));
        }
        matcher.accept(token).unwrap();
        if !tokenizer.is_eog(token) {
            tokens.push(token);
        }
    }
    let only_ends: Vec<_> = tokenizer.eog_ids().to_vec();
    assert_eq!(allowed(matcher, vocabulary).unwrap(), only_ends);
    let text = String::from_utf8(tokenizer.decode_bytes(&tokens, false));
    (tokens, text.expect("whole characters"))
}

/// The value of a text; `None` if it is JSON with a number that no float holds.
fn parse(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(e) if e.to_string().contains("number out of range") => None,
        Err(e) => panic!("{e}: {text}"),
    }
}

/// A schema of a few levels.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "null"})),
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "number"})),
        (-50i64..50, 0i64..1000).prop_map(|(min, more)| {
            json!({"type": "integer", "minimum": min, "maximum": min + more})
        }),
        (0usize..3, 0usize..9).prop_map(|(min, more)| {
            json!({"type": "string", "minLength": min, "maxLength": min + more})
        }),
        Just(json!({"type": "string", "pattern": "^[a-c]{1,3}-[0-9]+$"})),
        Just(json!({"enum": ["ä\"b", 7, null, [1, {"x": false}]]})),
        Just(json!({"const": "é\\\n"})),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let object = prop::collection::vec((inner.clone(), any::<bool>()), 0..4);
        prop_oneof![
            (object, prop_oneof![Just(Value::Bool(false)), inner.clone()]).prop_map(
                |(properties, additional)| {
                    let name = |i: usize| ["a", "b\"", "c c", "ü"][i].to_owned();
                    let required: Vec<_> =
                        (0..properties.len()).filter(|&i| properties[i].1).map(name).collect();
                    let properties: Map<_, _> = properties
                        .into_iter()
                        .enumerate()
                        .map(|(i, (schema, _))| (name(i), schema))
                        .collect();
                    json!({
                        "type": "object", "properties": properties, "required": required,
                        "additionalProperties": additional
                    })
                }
            ),
            (inner.clone(), 0usize..3, 0usize..3).prop_map(|(items, min, more)| {
                json!({"type": "array", "items": items, "minItems": min, "maxItems": min + more})
            }),
            prop::collection::vec(inner, 1..3).prop_map(|any| json!({ "anyOf": any })),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sampled_is_valid(schema in schemas(), mut rng in rngs(), demo in any::<bool>()) {
        let vocabulary = if demo { &*DEMO } else { &*TINY };
        let mut matcher = vocabulary.compile(&Spec::JsonSchema(schema.clone())).unwrap();
        let mut again = matcher.clone();
        let (tokens, text) = walk(&mut matcher, vocabulary, &mut rng, 20);
        let value = parse(&text);
        prop_assert!(value.is_none_or(|v| valid(&schema, &v)), "{schema} gave {text}");
        // The same tokens are taken again, and the clone was not moved by the first walk.
        for token in tokens {
            prop_assert_eq!(again.accept(token), Ok(()));
        }
        prop_assert!(again.can_end());
    }

    #[test]
    fn patterns_match_what_is_sampled(
        pattern in prop::sample::select(vec![
            "[a-z]{2,5}(-[0-9]+)?", "(yes|no|maybe) [\u{e4}-\u{fc}]*", "^\\d{4}-\\d\\d$", "(ab|a)*c?",
            "(?i)hello", ".{0,10}", "日本?",
        ]),
        mut rng in rngs(),
    ) {
        let mut matcher = DEMO.compile(&Spec::Regex(pattern.into())).unwrap();
        let (_, text) = walk(&mut matcher, &DEMO, &mut rng, 12);
        let whole = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
        prop_assert!(whole.is_match(&text), "{pattern} gave {text:?}");
    }

    #[test]
    fn choices_are_taken_as_they_are(mut rng in rngs()) {
        let texts = ["a.b", "a.b*", "(x)|y", "日", "{\"a\": 1}\n"].map(String::from).to_vec();
        let mut matcher = DEMO.compile(&Spec::Choice(texts.clone())).unwrap();
        let (_, text) = walk(&mut matcher, &DEMO, &mut rng, 99);
        prop_assert!(texts.contains(&text), "{text:?}");
    }
}

fn rngs() -> impl Strategy<Value = TestRng> {
    Just(()).prop_perturb(|(), rng| rng)
}

#[test]
fn any_object_is_an_object() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..20 {
        let mut matcher = DEMO.compile(&Spec::JsonObject).unwrap();
        let (_, text) = walk(&mut matcher, &DEMO, runner.rng(), 20);
        assert!(parse(&text).is_none_or(|v| v.is_object()), "{text}");
    }
    assert!(takes(&Spec::JsonObject, r#"{"a": [1, {"b": "c"}], "d": {}}"#));
    assert!(!takes(&Spec::JsonObject, "[]"));
}

#[test]
fn a_lark_grammar_derives_what_is_sampled() {
    let grammar = "start: \"(\" start \")\" | NUMBER\nNUMBER: /[0-9]{1,3}/\n";
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..20 {
        let mut matcher = DEMO.compile(&Spec::Lark(grammar.into())).unwrap();
        let (_, text) = walk(&mut matcher, &DEMO, runner.rng(), 30);
        let inner = text.trim_start_matches('(');
        let depth = text.len() - inner.len();
        let number = inner.strip_suffix(&")".repeat(depth)).unwrap();
        assert!(number.parse::<u32>().is_ok_and(|n| n < 1000), "{text}");
    }
}

#[test]
fn the_end_is_allowed_exactly_where_the_text_is_complete() {
    let mut matcher = TINY.compile(&Spec::Regex("ab(cd)?".into())).unwrap();
    let ends = |m: &mut Matcher| {
        let tokens = allowed(m, &TINY).unwrap();
        (tokens.contains(&END), tokens.contains(&TURN), m.can_end(), m.ended())
    };
    assert_eq!(ends(&mut matcher), (false, false, false, false));
    assert_eq!(matcher.accept(END), Err(Error::Refused { token: END }));
    assert_eq!(feed(&mut matcher, &TINY, "ab"), 2);
    assert_eq!(ends(&mut matcher), (true, true, true, false));
    let mut ended = matcher.clone();
    ended.accept(TURN).unwrap();
    assert!(ended.ended());
    assert_eq!(ended.accept(TURN), Err(Error::Refused { token: TURN }));
    assert_eq!(feed(&mut matcher, &TINY, "cd"), 2);
    assert_eq!(ends(&mut matcher), (true, true, true, true));
    assert_eq!(feed(&mut matcher, &TINY, "c"), 0);
}

#[test]
fn a_grammar_that_names_an_end_ends_only_where_it_is_complete() {
    let of = |text: &str| TINY.compile(&Spec::Lark(text.into()));
    // In the middle of a text there is no end, as any token neither.
    assert_eq!(of("start: <[2]> \"x\"").unwrap_err(), Error::Empty);
    let mut matcher = of("start: <[*]> \"x\"").unwrap();
    let choice = allowed(&mut matcher, &TINY).unwrap();
    assert!(choice.contains(&MARK) && !choice.contains(&END) && !choice.contains(&TURN));
    assert_eq!(matcher.accept(END), Err(Error::Refused { token: END }));
    matcher.accept(MARK).unwrap();
    assert_eq!(feed(&mut matcher, &TINY, "x"), 1);
    assert!(matcher.can_end());
    // At its end there is the one that it names.
    let mut matcher = of("start: \"x\" <[259]>").unwrap();
    assert_eq!(feed(&mut matcher, &TINY, "x"), 1);
    assert_eq!(allowed(&mut matcher, &TINY).unwrap(), [TURN]);
    assert_eq!(matcher.accept(END), Err(Error::Refused { token: END }));
    assert_eq!(matcher.accept(TURN), Ok(()));
    assert!(matcher.ended());
}

#[test]
fn masks_are_anded_and_end_with_the_vocabulary() {
    let mut matcher = TINY.compile(&Spec::Regex("[ab]c".into())).unwrap();
    let id = |b: &[u8]| TINY.tokenizer().token_to_id(b).unwrap();
    let mut mask = vec![!0; TINY.mask_words() + 2];
    mask[id(b"a") as usize / 32] &= !(1 << (id(b"a") % 32));
    matcher.allow(&mut mask).unwrap();
    let set: Vec<u32> = (0..mask.len() as u32 * 32)
        .filter(|t| mask[*t as usize / 32] >> (t % 32) & 1 == 1)
        .collect();
    assert_eq!(set, [id(b"b")]);
    let short = TINY.mask_words() - 1;
    assert_eq!(
        matcher.allow(&mut vec![!0; short]),
        Err(Error::MaskSize { words: short, tokens: TINY.tokenizer().vocab_size() })
    );
}

#[test]
fn structure_is_no_text() {
    let mut matcher = TINY.compile(&Spec::Regex("(?s:.*)".into())).unwrap();
    let tokens = allowed(&mut matcher, &TINY).unwrap();
    for token in [0, 1, MARK, UNUSED] {
        assert_eq!(matcher.accept(token), Err(Error::Refused { token }));
    }
    // Ends are there, because the empty text is complete; unknown, begin, mark and unused are not.
    for token in [0, 1, MARK, UNUSED] {
        assert!(!tokens.contains(&token), "{token}");
    }
    assert!(tokens.contains(&END) && tokens.contains(&(END + 1)));
    // A grammar names it, by name or by id, and then its spelling does not do.
    for name in ["<|mark|>", &format!("<[{MARK}]>")] {
        let spec = Spec::Lark(format!("start: \"a\" {name} \"b\""));
        let mut matcher = TINY.compile(&spec).unwrap();
        assert_eq!(feed(&mut matcher, &TINY, "a<|mark|>"), 1);
        assert_eq!(allowed(&mut matcher, &TINY).unwrap(), [MARK]);
        matcher.accept(MARK).unwrap();
        assert_eq!(feed(&mut matcher, &TINY, "b"), 1);
        assert!(matcher.ended());
    }
}

#[test]
fn white_space_in_json_is_free_but_bounded() {
    let spec =
        Spec::JsonSchema(json!({"type": "object", "properties": {"a": {"type": "integer"}}}));
    assert!(takes(&spec, "{\n  \"a\" : 1\n}"));
    assert!(takes(&spec, &format!("{{\r\n\n{}\"a\":1}}", " ".repeat(20))));
    assert!(!takes(&spec, &format!("{{\n{}\"a\":1}}", " ".repeat(21))));
    assert!(!takes(&spec, "{  \"a\":1}") && !takes(&spec, "{\n\n\n\"a\":1}"));
}

#[test]
fn objects_have_the_properties_that_they_name() {
    let takes = |schema: Value, text: &str| takes(&Spec::JsonSchema(schema), text);
    let inner = json!({"type": "object", "properties": {"b": {"type": "null"}}});
    let schema = json!({"type": "object", "properties": {"a": inner}});
    assert!(takes(schema.clone(), r#"{"a":{"b":null}}"#));
    assert!(!takes(schema.clone(), r#"{"c":1}"#) && !takes(schema, r#"{"a":{"c":1}}"#));
    // What a schema says of others holds.
    let open = json!({"type": "object", "properties": {"a": true}, "additionalProperties": true});
    assert!(takes(open, r#"{"c":1}"#));
    assert!(takes(json!({"type": "object"}), r#"{"c":1}"#));
    let both = json!({"allOf": [
        {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"]},
    ]});
    assert!(takes(both, r#"{"a":null,"b":null}"#));
    let must = json!({"type": "object", "properties": {"a": true}, "required": ["a", "z"]});
    assert!(takes(must, r#"{"a":1,"z":2}"#));
    // Properties come in the order of the schema.
    let order =
        json!({"type": "object", "properties": {"z": {"type": "null"}, "a": {"type": "null"}}});
    assert!(
        takes(order.clone(), r#"{"z":null,"a":null}"#) && !takes(order, r#"{"a":null,"z":null}"#)
    );
}

#[test]
fn references_within_the_schema_work() {
    let spec = Spec::JsonSchema(json!({
        "$defs": {"tree": {"type": "object", "properties": {
            "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}
        }, "required": ["left"], "additionalProperties": false}},
        "$ref": "#/$defs/tree"
    }));
    assert!(takes(&spec, r#"{"left": {"left": {"left": null}}}"#));
    assert!(!takes(&spec, r#"{"left": {"right": null}}"#));
}

#[test]
fn matchers_move_between_threads_and_vocabularies_are_shared() {
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync + Clone>() {}
    is_send::<Matcher>();
    is_shared::<Vocabulary>();
}

#[test]
fn a_vocabulary_without_an_end_has_no_grammars() {
    let vocabulary = Vocabulary::new(std::sync::Arc::new(tiny(false)));
    if vocabulary.tokenizer().eog_ids().is_empty() {
        assert_eq!(vocabulary.compile(&Spec::JsonObject).unwrap_err(), Error::NoEnd);
    } else {
        panic!("the tiny vocabulary still ends: {:?}", vocabulary.tokenizer().eog_ids());
    }
}
