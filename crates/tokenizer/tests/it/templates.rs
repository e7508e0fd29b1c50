//! Chat templates against what transformers renders, and the faults a template can have.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use arclight_tokenizer::{ChatTemplate, Error, Message, RenderOptions};
use gguf::Gguf;
use serde_json::{Value, json};

use crate::{data, read};

/// Compares every case of `cases_path` and returns how many there were.
fn check(template: &Path, cases_path: &Path) -> usize {
    let file = crate::json(cases_path);
    let source = String::from_utf8(read(template)).unwrap();
    let template = ChatTemplate::new(&source, file["bos"].as_str(), file["eos"].as_str()).unwrap();
    let now = UNIX_EPOCH + Duration::from_secs(file["now"].as_u64().unwrap());
    let cases = file["cases"].as_array().unwrap();
    for case in cases {
        let messages: Vec<Message> = serde_json::from_value(case["messages"].clone()).unwrap();
        let opts = RenderOptions {
            add_generation_prompt: case["add_generation_prompt"] == true,
            tools: case.get("tools").cloned(),
            extra: case
                .get("extra")
                .map_or_else(Default::default, |e| e.as_object().unwrap().clone()),
            now: Some(now),
        };
        let got = template.render(&messages, &opts);
        let title = format!("{}, {:?}", case["title"], opts.extra);
        if let Some(expected) = case.get("rendered") {
            assert_eq!(got.unwrap(), expected.as_str().unwrap(), "{title}");
        } else if let Some(expected) = case.get("refused") {
            let Err(Error::Refused { message }) = got else { panic!("{title}: {got:?}") };
            assert_eq!(message, expected.as_str().unwrap(), "{title}");
        } else {
            assert!(matches!(got, Err(Error::Template { line: 1.., .. })), "{title}: {got:?}");
        }
    }
    cases.len()
}

#[test]
fn qwen3_as_transformers_renders_it() {
    assert!(check(&data("qwen3.jinja"), &data("qwen3-chat.json")) >= 50);
}

#[test]
fn common_constructs_as_transformers_renders_them() {
    assert!(check(&data("tools.jinja"), &data("tools-chat.json")) >= 50);
}

/// Further templates, as `tools/tokenizer-vectors/README.md` tells how to make them.
#[test]
#[ignore = "needs ARCLIGHT_TEMPLATES, a directory of NAME.jinja and NAME-chat.json"]
fn further_templates() {
    let dir = std::env::var("ARCLIGHT_TEMPLATES").expect("ARCLIGHT_TEMPLATES");
    let mut checked = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "jinja") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let count = check(&path, &path.with_file_name(format!("{name}-chat.json")));
            println!("{name}: {count} of {count}");
            checked += 1;
        }
    }
    assert!(checked > 0);
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
fn a_fault_names_its_line() {
    for (source, line, what) in [
        ("a\n{% if %}", 2, "unexpected"),
        ("a\n\n{{ messages[0].content.nonsense() }}", 3, "nonsense"),
        ("{{ messages[7].role }}", 1, "undefined"),
        ("\n{{ strftime_now('%Q') }}", 2, "%Q"),
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
