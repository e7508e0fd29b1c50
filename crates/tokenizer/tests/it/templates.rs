//! Chat templates against what transformers renders, and the faults a template can have.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use arclight_tokenizer::{ChatTemplate, Error, Message, RenderOptions};
use gguf::Gguf;
use serde_json::{Value, json};

use crate::{data, read};

/// Compares every case of `cases_path` and returns how many there were, or what was wrong.
fn check(template: &Path, cases_path: &Path) -> Result<usize, String> {
    let file = crate::json(cases_path);
    let source = String::from_utf8(read(template)).unwrap();
    let path = template.display();
    let template = ChatTemplate::new(&source, file["bos"].as_str(), file["eos"].as_str())
        .map_err(|e| format!("{path}: {e}"))?;
    let shared = crate::json(&cases_path.with_file_name("conversations.json"));
    let mut wrong = Vec::new();
    let now = UNIX_EPOCH + Duration::from_secs(file["now"].as_u64().unwrap());
    let cases = file["cases"].as_array().unwrap();
    for case in cases {
        let messages: Vec<Message> = serde_json::from_value(
            shared["conversations"][case["title"].as_str().unwrap()].clone(),
        )
        .unwrap();
        let opts = RenderOptions {
            add_generation_prompt: case["add_generation_prompt"] == true,
            tools: case.get("tools").map(|_| shared["tools"].clone()),
            extra: case
                .get("extra")
                .map_or_else(Default::default, |e| e.as_object().unwrap().clone()),
            now: Some(now),
            escape: None,
        };
        let got = template.render(&messages, &opts);
        let same = match (&got, case.get("rendered"), case.get("refused")) {
            (Ok(text), Some(expected), _) => text == expected,
            (Err(Error::Refused { message }), _, Some(expected)) => message == expected,
            // Where Python fails with an error of its own any will do, or what goes without.
            (_, None, None) => true,
            _ => false,
        };
        if !same {
            let want = case.get("rendered").or(case.get("refused")).or(case.get("fails"));
            let (title, tools) = (&case["title"], opts.tools.is_some());
            wrong.push(format!(
                "{title} {:?}, tools {tools}\n got {got:?}\nwant {}",
                opts.extra,
                want.unwrap_or(&Value::Null)
            ));
        }
    }
    if wrong.is_empty() {
        return Ok(cases.len());
    }
    let (bad, all) = (wrong.len(), cases.len());
    wrong.truncate(5);
    Err(format!("{path}: {bad} wrong of {all}\n{}", wrong.join("\n\n")))
}

/// Compares every template of `dir` and returns how many there were.
fn check_all(dir: &Path) -> usize {
    let (mut checked, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "jinja") {
            match check(&path, &path.with_extension("json")) {
                Ok(count) => println!("{}: {count} of {count}", path.display()),
                Err(report) => wrong.push(report),
            }
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    checked
}

#[test]
fn as_transformers_renders_them() {
    assert!(check_all(&data("templates")) >= 16);
}

/// Further templates, as `tools/tokenizer-vectors/README.md` tells how to make them.
#[test]
#[ignore = "needs ARCLIGHT_TEMPLATES, a directory of NAME.jinja and NAME.json"]
fn further_templates() {
    let dir = std::env::var("ARCLIGHT_TEMPLATES").expect("ARCLIGHT_TEMPLATES");
    assert!(check_all(Path::new(&dir)) > 0);
}

fn render(source: &str) -> Result<String, Error> {
    let messages = [Message::new("user", "hi")];
    ChatTemplate::new(source, Some("<s>"), None)?.render(&messages, &RenderOptions::default())
}

#[test]
fn a_file_brings_its_template_and_its_tokens() {
    let file = read(&data("llama-bpe.gguf"));
    let gguf = Gguf::parse(&file).unwrap();
    let template = ChatTemplate::from_gguf(gguf.metadata()).unwrap().unwrap();
    let text = template.render(&[Message::new("user", "hi")], &RenderOptions::default()).unwrap();
    assert!(text.starts_with("<|begin_of_text|><|start_header_id|>system"), "{text}");

    let file = read(&data("spm.gguf"));
    let gguf = Gguf::parse(&file).unwrap();
    assert!(ChatTemplate::from_gguf(gguf.metadata()).unwrap().is_none());
}

#[test]
fn a_template_of_its_own_for_tools() {
    let template = ChatTemplate::new("plain", None, None).unwrap();
    let template = template.with_tool_template("{{ tools | length }} tools").unwrap();
    let render = |tools| {
        let opts = RenderOptions { tools, ..RenderOptions::default() };
        template.render(&[Message::new("user", "hi")], &opts).unwrap()
    };
    assert_eq!(render(None), "plain");
    assert_eq!(render(Some(json!([{}, {}]))), "2 tools");
    let broken = ChatTemplate::new("plain", None, None).unwrap().with_tool_template("{{");
    assert!(matches!(broken, Err(Error::Template { line: 1, .. })));
}

#[test]
fn a_fault_names_its_line() {
    for (source, line, what) in [
        ("a\n{% if %}", 2, "unexpected"),
        ("a\n\n{{ messages[0].content.nonsense() }}", 3, "nonsense"),
        ("{{ messages[7].role }}", 1, "undefined"),
        ("\n{{ strftime_now('%J') }}", 2, "`J`"),
        ("\n{{ missing | tojson }}", 2, "undefined"),
        ("\n{{ 1 | tojson(indent=1000000) }}", 2, "indent"),
        ("\n{{ 1 | tojson(colour=1) }}", 2, "colour"),
        ("{% generation %}\n{{ 1 / 0 }}{% endgeneration %}", 2, "1 / 0"),
    ] {
        match render(source) {
            Err(Error::Template { line: at, message }) => {
                assert_eq!(at, line, "{source}: {message}");
                assert!(message.contains(what), "{source}: {message}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
}

#[test]
fn refusals_come_through_macros() {
    let source = "{% macro no() %}{{ raise_exception('not ' ~ 'so') }}{% endmacro %}x{{ no() }}";
    let Err(Error::Refused { message }) = render(source) else { panic!() };
    assert_eq!(message, "not so");
}

#[test]
fn endless_templates_end() {
    let loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    assert!(matches!(render(loops), Err(Error::TemplateTooLong { line: 1, .. })));
    let recursion = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    assert!(matches!(render(recursion), Err(Error::Template { .. })));
    let deep = "{% set ns = namespace(x=[]) %}\
                {% for i in range(200) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}";
    assert!(matches!(render(deep), Err(Error::Template { .. })));
}

/// Each of these would take all memory, or more time than there is.
#[test]
fn hungry_templates_end() {
    const START: &str = "{% set ns = namespace(s='x', l=[1]) %}{% set k = 'x' * 100000 %}";
    let doubled = |what: &str| format!("{START}{{% for i in range(64) %}}{what}{{% endfor %}}");
    let once = |what: &str| format!("{START}{{{{ {what} }}}}");
    let raw = "y".repeat(10_000);
    for source in [
        doubled("{% set ns.s = ns.s ~ ns.s %}"),
        doubled("{% set ns.s = ns.s + ns.s %}"),
        doubled("{% set ns.s = ns.s * 2 %}"),
        doubled("{% set ns.s = [ns.s, ns.s] | join %}"),
        doubled("{% set ns.s = ''.join([ns.s, ns.s]) %}"),
        doubled("{% set ns.s = ns.s | replace('x', 'xx') %}"),
        doubled("{% set ns.s = '%s%s' | format(ns.s, ns.s) %}"),
        doubled("{% set s %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = s %}"),
        doubled("{% set ns.l = ns.l + ns.l %}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}"),
        doubled("{% set ns.l = {'a': ns.l, 'b': ns.l} %}"),
        doubled("{% set ns.l = dict(a=ns.l, b=ns.l) %}"),
        doubled("{% set ns.l = (ns.l, ns.l) %}"),
        format!("{START}{{% macro m(s) %}}{{{{ s }}}}{{{{ s }}}}{{% endmacro %}}")
            + &doubled("{% set ns.s = m(ns.s) %}"),
        once("'x' * 1000000000000"),
        once("['x'] * 1000000000000"),
        once("k | replace('x', k)"),
        once("k.replace('x', k)"),
        once("([k] * 10000) | join"),
        once("([k] * 10000) | tojson"),
        once("([k] * 10000) | string"),
        once("[k] * 10000"),
        once("([k] * 10000) | map('upper') | list"),
        once("('x\n' * 100000) | indent(60000)"),
        once("('%60000d' * 10000) | format"),
        once("('{:60000}' * 10000).format(1)"),
        once("([k] * 1000000) | unique"),
        once("'x'.center(1000000000000)"),
        once("'x'.zfill(1000000000000)"),
        format!(
            "{{% for i in range(9999) %}}{{% for j in range(9999) %}}{raw}{{% endfor %}}{{% endfor %}}"
        ),
        format!(
            "{{% set s %}}{{% for i in range(9999) %}}{{% for j in range(9999) %}}{raw}{{% endfor %}}{{% endfor %}}{{% endset %}}"
        ),
    ] {
        let got = render(&source).map(|text| text.len());
        // A machine that stops in between may find the time up instead.
        let bounded = matches!(
            got,
            Err(Error::TemplateTooLarge { line: 1.., .. } | Error::TemplateTooSlow { .. })
        );
        assert!(bounded, "{source:.300}: {got:?}");
    }
    for source in [
        "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = {'a': ns.l} %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = ns.l | batch(1) | list %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = namespace(a=ns.l) %}{% endfor %}",
    ] {
        let got = render(source).map(|text| text.len());
        assert!(got.is_err() || got.as_ref().is_ok_and(|n| *n < 1000), "{source}: {got:?}");
    }
}

#[test]
#[ignore = "takes ten seconds"]
fn slow_templates_end() {
    let source = "{% set k = 'x' * 10000000 %}{% for i in range(99999) %}{% if 'y' in k %}{% endif %}{% endfor %}";
    // A machine that searches a terabyte in ten seconds may finish.
    let got = render(source);
    assert!(matches!(got, Err(Error::TemplateTooSlow { line: 1, .. })), "{got:?}");
}

#[test]
fn methods_of_python() {
    for (expression, expected) in [
        ("'abcabc'.removeprefix('abc') ~ 'abc'.removesuffix('bc')", "abca"),
        ("'a=b=c'.partition('=')", "('a', '=', 'b=c')"),
        ("'a=b=c'.rpartition('=')", "('a=b', '=', 'c')"),
        ("'a b  c '.rsplit()", "['a', 'b', 'c']"),
        ("'  a b c'.rsplit(none, 1)", "['  a b', 'c']"),
        ("'a,b,c'.rsplit(',', 1)", "['a,b', 'c']"),
        ("'a,b,c'.split(',', 1)", "['a', 'b,c']"),
        ("'éabc'.index('b')", "2"),
        ("'-42'.zfill(5) ~ '7'.zfill(3)", "-0042007"),
        ("'ab'.center(5, '*') ~ 'a'.center(4, '*') ~ 'x'.ljust(2) ~ 'y'.rjust(2)", "**ab**a**x  y"),
        ("'Straße'.swapcase()", "sTRASSE"),
        ("'a-b'.replace('-', '+') ~ 'aaa'.replace('a', 'b', 2)", "a+bbba"),
        ("', '.join(['a', 'b'])", "a, b"),
        ("'{} and {}'.format(1, 'b')", "1 and b"),
        ("{'a': 1}.get('b', 2)", "2"),
        ("{'a': 1}.items() | list", "[('a', 1)]"),
        ("none ~ true ~ 1.0", "NoneTrue1.0"),
        ("2 * 3 ~ 'ab' * 2 ~ [1] * 2 ~ 'x' * -1", "6abab[1, 1]"),
        ("[{'n': 'a'}, {'n': 'b'}] | map(attribute='n') | join('+')", "a+b"),
        ("['a', 'b'] | map('upper') | join", "AB"),
        ("'a\nb' | indent(2, true)", "  a\n  b"),
        (
            "(none is iterable, 'a' is iterable, {} is iterable, 1 is iterable)",
            "(False, True, True, False)",
        ),
    ] {
        assert_eq!(render(&format!("{{{{ {expression} }}}}")).unwrap(), expected, "{expression}");
    }
}

#[test]
fn variables_of_the_caller_do_not_replace_the_templates_own() {
    let template =
        ChatTemplate::new("{{ bos_token }}{{ x }}{{ messages | length }}", Some("<s>"), None);
    let extra = json!({"messages": [], "bos_token": "!", "x": "y"});
    let Value::Object(extra) = extra else { unreachable!() };
    let opts = RenderOptions { extra, ..RenderOptions::default() };
    let text = template.unwrap().render(&[Message::new("user", "hi")], &opts).unwrap();
    assert_eq!(text, "<s>y1");
}

#[test]
fn values_print_as_python_prints_them() {
    let source =
        "{{ true }} {{ 1 == 2 }} {{ none }} {{ missing }}| {{ 1.0 }} {{ '<&>' }} {{ 'é' * 2 }}";
    assert_eq!(render(source).unwrap(), "True False None | 1.0 <&> éé");
}

/// Expected: what Python prints.
#[test]
fn numbers_print_as_python_prints_them() {
    let mut wrong = Vec::new();
    for (expression, expected) in [
        ("1e-7", "1e-07"),
        ("1e16", "1e+16"),
        ("123456789012345680000.0", "1.2345678901234568e+20"),
        ("1e-7|tojson", "1e-07"),
        ("[1e-7, 2.0, 1e22]|tojson", "[1e-07, 2.0, 1e+22]"),
        ("{'a': 1e-5, 'b': -0.0}|tojson", r#"{"a": 1e-05, "b": -0.0}"#),
        ("[1e-7, 2.0, 1e22]", "[1e-07, 2.0, 1e+22]"),
        ("{'a': 1e-5, 'b': -0.0}", "{'a': 1e-05, 'b': -0.0}"),
        ("[1e-7]|first ~ 'a'", "1e-07a"),
        ("1e-7|string", "1e-07"),
        ("1e-7", "1e-07"),
        ("1e16", "1e+16"),
        ("1.5e300 * 1e10", "inf"),
        ("3 / 2", "1.5"),
        ("4 / 2", "2.0"),
        ("7 // 2", "3"),
        ("7.5 // 2", "3.0"),
        ("2 ** 0.5", "1.4142135623730951"),
        ("2 ** -1", "0.5"),
        ("1e-7|round(3)", "0.0"),
        ("2.675|round(2)", "2.67"),
        ("3.7|int", "3"),
        ("'3'|float", "3.0"),
        ("1e3|int", "1000"),
        ("1000000|float", "1000000.0"),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("[0.1 + 0.2, 'a']|join(',')", "0.30000000000000004,a"),
        ("100000000000000000000", "100000000000000000000"),
        ("100000000000000000000|tojson", "100000000000000000000"),
        ("(1e-7, 1.0)", "(1e-07, 1.0)"),
        ("5|float|tojson", "5.0"),
        ("'{}'.format(1e-7)", "1e-07"),
        ("'%s'|format(1e16)", "1e+16"),
        ("1e-7|abs", "1e-07"),
        ("[1e-7, 2.0, 1e22]|sum", "1e+22"),
        ("[1e-7, 2.0, 1e22]|max", "1e+22"),
        ("5.0|round", "5.0"),
        ("1e22|int", "10000000000000000000000"),
        ("True + 1.0", "2.0"),
        ("-0.0", "-0.0"),
        ("1_000.5", "1000.5"),
        ("{1.0: 2}|tojson", r#"{"1.0": 2}"#),
        ("{1e-7: 2}", "{1e-07: 2}"),
    ] {
        let got = render(&format!("{{{{ {expression} }}}}")).map_err(|e| e.to_string());
        if got.as_deref() != Ok(expected) {
            wrong.push(format!("{expression}: {got:?}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
