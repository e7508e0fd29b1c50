//! Conversations take the shape that published templates need.

use arclight_chat::{MessageError, Needs, normalize_messages, normalize_tools};
use serde_json::{Value, json};
use tokenizer::{ChatTemplate, Message, RenderOptions};

use crate::template;

const NAMES: [&str; 15] = [
    "qwen2.5",
    "qwen3",
    "qwen3.5",
    "qwen3-coder",
    "granite-4.0",
    "mistral-nemo",
    "ministral-3",
    "deepseek-v3",
    "glm-4.6",
    "gpt-oss",
    "kimi-k2",
    "seed-oss",
    "minimax-m2",
    "phi-3.5",
    "smollm3",
];

/// As the official clients send it.
fn conversation() -> Vec<Message> {
    let call = json!([{"id": "call_7fEw8", "type": "function", "function": {
        "name": "look_up", "arguments": "{\"word\": \"zephyr\", \"count\": 2}"
    }}]);
    vec![
        Message::new("developer", "Be terse."),
        Message {
            role: "user".into(),
            content: json!([{"type": "text", "text": "What is"}, {"type": "text", "text": "a zephyr?"}]),
            ..Message::default()
        },
        Message { role: "assistant".into(), tool_calls: Some(call), ..Message::default() },
        Message {
            role: "tool".into(),
            content: json!("A breeze."),
            name: Some("look_up".into()),
            tool_call_id: Some("call_7fEw8".into()),
            ..Message::default()
        },
        Message::new("assistant", "A light wind."),
        Message::new("user", "Thanks."),
    ]
}

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "look_up", "description": "A dictionary.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}, "count": {"type": "integer"}}}
    }}])
}

fn render(template: &ChatTemplate, messages: &[Message]) -> Result<String, tokenizer::Error> {
    let options = RenderOptions {
        add_generation_prompt: true,
        tools: Some(tools()),
        ..RenderOptions::default()
    };
    template.render(messages, &options)
}

#[test]
fn what_clients_send_is_rendered_whole() {
    for name in NAMES {
        // Its template changes a list in place (`append`), which the engine does not know.
        if name == "kimi-k2" {
            continue;
        }
        let template = template(name);
        let needs = Needs::probe(&template);
        let mut messages = conversation();
        normalize_messages(&mut messages, &needs).unwrap();
        let text = render(&template, &messages).unwrap_or_else(|e| panic!("{name}: {e} {needs:?}"));
        for part in ["Be terse.", "What is\na zephyr?", "Thanks."] {
            assert!(text.contains(part), "{name}: {part:?} is not in {text}");
        }
        // Phi-3.5 and SmolLM3 have no place for calls of the history.
        if !["phi-3.5", "smollm3"].contains(&name) {
            assert!(text.contains("A breeze."), "{name}: {text}");
            assert!(text.contains("look_up") && text.contains("zephyr"), "{name}: {text}");
            assert!(!text.contains("\\\"word"), "{name} escapes arguments twice: {text}");
            assert!(!text.contains("'word'"), "{name} prints arguments as Python does: {text}");
        }
    }
}

#[test]
fn templates_differ_in_what_they_need() {
    let of = |name| Needs::probe(&template(name));
    assert!(of("qwen3").object_arguments && !of("qwen3").short_ids && of("qwen3").system);
    assert!(!of("deepseek-v3").object_arguments, "it adds the text to its own");
    assert!(of("mistral-nemo").short_ids);
    assert!(of("gpt-oss").developer && !of("qwen3").developer);
}

/// A template of one message after the other.
fn simple(body: &str) -> ChatTemplate {
    let source = format!("{{% for m in messages %}}{body}{{% endfor %}}");
    ChatTemplate::new(&source, None, None).unwrap()
}

#[test]
fn a_system_that_a_template_refuses_goes_before_the_user() {
    let template = simple(
        "{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}[{{ m.role }}]{{ m.content }}",
    );
    let needs = Needs::probe(&template);
    assert!(!needs.system);
    let mut messages = conversation();
    normalize_messages(&mut messages, &needs).unwrap();
    let roles: Vec<_> = messages.iter().map(|m| &*m.role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(messages[0].content, "Be terse.\n\nWhat is\na zephyr?");
}

#[test]
fn content_is_parts_where_only_parts_will_do() {
    let template = simple("{% for p in m.content %}{{ p.text }}{% endfor %}");
    let needs = Needs::probe(&template);
    assert!(needs.content_parts);
    let mut messages = vec![Message::new("user", "hello")];
    normalize_messages(&mut messages, &needs).unwrap();
    assert_eq!(messages[0].content, json!([{"type": "text", "text": "hello"}]));
}

#[test]
fn faults_name_the_message() {
    let needs = Needs::probe(&template("qwen3"));
    let mut messages = conversation();
    messages[2].tool_calls = Some(json!([{"function": {"name": "a", "arguments": ""}}]));
    assert_eq!(normalize_messages(&mut messages, &needs), Ok(()));
    assert_eq!(messages[2].tool_calls, Some(json!([{"function": {"name": "a", "arguments": {}}}])));
    messages[1].content = json!([{"type": "image_url", "image_url": {"url": "data:"}}]);
    assert_eq!(
        normalize_messages(&mut messages, &needs),
        Err(MessageError::Part { message: 1, part: 0, kind: "image_url".into() })
    );
}

#[test]
fn tools_without_a_description_can_be_rendered() {
    for name in NAMES {
        let template = template(name);
        let needs = Needs::probe(&template);
        assert_eq!(needs.described, name == "gpt-oss", "{name}");
        for description in [None, Some(Value::Null), Some("A dictionary.".into())] {
            let mut tools = vec![tools()[0].clone()];
            let function = tools[0]["function"].as_object_mut().unwrap();
            function.shift_remove("description");
            function.extend(description.clone().map(|text| ("description".to_owned(), text)));
            let before = tools.clone();
            normalize_tools(&mut tools, &needs);
            // What a template can do with is left as it is.
            let changed = needs.described && description.as_ref().is_none_or(Value::is_null);
            assert_eq!(tools != before, changed, "{name}");
            let options = RenderOptions { tools: Some(tools.into()), ..RenderOptions::default() };
            let text = template.render(&[Message::new("user", "Hi")], &options).unwrap();
            assert!(!changed || text.contains("look_up"), "{name}: {text}");
        }
    }
}

#[test]
fn arguments_that_were_cut_off_are_rendered() {
    for name in NAMES {
        if ["kimi-k2", "phi-3.5", "smollm3"].contains(&name) {
            continue;
        }
        let template = template(name);
        let needs = Needs::probe(&template);
        for arguments in ["{", "{\"word\": \"zeph", "zeph", "[1, \"zeph\"]"] {
            let mut messages = conversation();
            messages[2].tool_calls = Some(json!([{"id": "call_7fEw8", "type": "function",
                "function": {"name": "look_up", "arguments": arguments}}]));
            normalize_messages(&mut messages, &needs).unwrap();
            let text = render(&template, &messages)
                .unwrap_or_else(|e| panic!("{name}: {arguments}: {e} {needs:?}"));
            assert!(text.contains("look_up"), "{name}: {text}");
            assert!(!arguments.contains("zeph") || text.contains("zeph"), "{name}: {text}");
            if needs.raw_arguments {
                assert!(text.contains(arguments), "{name}: {text}");
            }
        }
    }
    assert!(Needs::probe(&template("qwen3")).raw_arguments);
}

#[test]
fn agents_speak_several_times_and_their_system_anywhere() {
    let turns = [
        ("system", "First."),
        ("developer", "Second."),
        ("user", "Hi."),
        ("user", "Hello."),
        ("system", "Third."),
        ("assistant", "Yes?"),
        ("user", "Bye."),
    ];
    for name in NAMES {
        if name == "kimi-k2" {
            continue;
        }
        let template = template(name);
        let needs = Needs::probe(&template);
        let mut messages: Vec<_> = turns.iter().map(|(r, t)| Message::new(*r, *t)).collect();
        normalize_messages(&mut messages, &needs).unwrap();
        let text = render(&template, &messages).unwrap_or_else(|e| panic!("{name}: {e} {needs:?}"));
        for (_, said) in turns {
            assert!(text.contains(said), "{name}: {said} is not in {text}");
        }
    }
    let strict = simple(
        "{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}\
         {% if loop.index0 > 0 and m.role == 'user' and messages[loop.index0 - 1].role == 'user' %}\
         {{ raise_exception('twice') }}{% endif %}[{{ m.role }}]{{ m.content }}",
    );
    let needs = Needs::probe(&strict);
    assert!(needs.system && !needs.late_system && !needs.repeats);
    let mut messages: Vec<_> = turns.iter().map(|(r, t)| Message::new(*r, *t)).collect();
    normalize_messages(&mut messages, &needs).unwrap();
    let said: Vec<_> = messages.iter().map(|m| (&*m.role, m.content.as_str().unwrap())).collect();
    let want = [
        ("system", "First.\n\nSecond."),
        ("user", "Hi.\n\nHello.\n\nThird."),
        ("assistant", "Yes?"),
        ("user", "Bye."),
    ];
    assert_eq!(said, want);
}

#[test]
fn templates_tell_whether_they_know_tools() {
    let without = NAMES.into_iter().filter(|name| !Needs::probe(&template(name)).tools);
    assert_eq!(without.collect::<Vec<_>>(), ["deepseek-v3", "phi-3.5", "smollm3"]);
}
