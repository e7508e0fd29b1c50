//! Grammars that make a model call a tool, in the family's own writing, and those that stand around an
//! answer which has a form of its own.
//!
//! The text is a Lark grammar as llguidance reads it, for `grammar::Spec::Lark`; with `@answer` in it, for
//! `grammar::Vocabulary::compile_within`. Marks that are control tokens are named by their id; arguments
//! follow the tool's schema. Reasoning may come first.
//!
//! Limit: a model that spells a control token out, letter by letter, within reasoning or a value is
//! let through, and the parser takes the spelling for the token.

use serde_json::{Map, Value, json};

use crate::json::quoted;
use crate::syntax::{Calls, Decoration, Json, Named, Syntax, Tagged};
use crate::tool::Types;
use crate::{Format, Tool, ToolChoice};

/// A grammar under which an answer calls tools and does nothing else: one of `tools`, or the one that
/// `choice` names, once or, if `parallel`, several times. `in_reasoning` says that the prompt ends
/// within reasoning, which the answer then has to end first.
///
/// `None` if the family has no calls, or there are no tools. The schemas are not looked at
/// here: what a grammar does not support in them shows when it is compiled.
pub fn tool_grammar(
    format: &Format,
    tools: &[Tool],
    choice: ToolChoice<'_>,
    parallel: bool,
    in_reasoning: bool,
) -> Option<String> {
    let chosen = |t: &&Tool| match choice {
        ToolChoice::Required => true,
        ToolChoice::Named(name) => t.name == name,
    };
    let tools: Vec<&Tool> = tools.iter().filter(chosen).collect();
    if tools.is_empty() {
        return None;
    }
    let mut writer = Writer::new(format);
    let calls = writer.calls(&tools, parallel, in_reasoning)?;
    Some(writer.grammar(&calls))
}

/// A grammar around an answer of a form of its own, for which `@answer` stands: the answer where the
/// family writes it, or calls of `tools`, several if `parallel`. `framed` says that the answer names
/// its channel ([`Format::frames_answer`]); then it may think first.
///
/// `None` if nothing stands around it, and no tool is there to call instead.
pub fn answer_grammar(
    format: &Format,
    tools: &[Tool],
    parallel: bool,
    framed: bool,
) -> Option<String> {
    let tools: Vec<&Tool> = tools.iter().collect();
    let mut writer = Writer::new(format);
    let body = match format.syntax.calls {
        Calls::Harmony if framed => writer.harmony(&tools, true),
        _ if tools.is_empty() => return None,
        _ => format!("{} | @answer", writer.calls(&tools, parallel, false)?),
    };
    Some(writer.grammar(&body))
}

struct Writer<'f> {
    format: &'f Format,
    rules: String,
    count: usize,
}

impl<'f> Writer<'f> {
    fn new(format: &'f Format) -> Self {
        Self { format, rules: String::new(), count: 0 }
    }

    /// The grammar whose text is `body`.
    fn grammar(self, body: &str) -> String {
        format!("start: {body}\n{}", self.rules)
    }

    /// Calls, and reasoning before them; `None` if the family has none.
    fn calls(&mut self, tools: &[&Tool], parallel: bool, in_reasoning: bool) -> Option<String> {
        let Syntax { think, calls, .. } = self.format.syntax;
        let calls = match calls {
            Calls::None => return None,
            Calls::Json(json) => self.json(json, tools, parallel),
            Calls::Named(named) => self.named(named, tools, parallel),
            Calls::Tagged(tagged) => self.tagged(tagged, tools, parallel),
            Calls::Harmony => self.harmony(tools, false),
        };
        let before = match think {
            Some((_, close)) if in_reasoning => {
                let thought = self.until(close);
                format!("{thought} SPACE ")
            }
            Some((open, close)) => {
                let (open, thought) = (self.text(open), self.until(close));
                format!("({open} {thought} SPACE)? ")
            }
            None => String::new(),
        };
        if think.is_some() {
            self.rules.push_str("SPACE: /[ \\n]{0,4}/\n");
        }
        Some(format!("{before}{calls}"))
    }

    /// Writes a rule and gives its name.
    fn rule(&mut self, body: &str) -> String {
        let name = format!("r{}", self.count);
        self.count += 1;
        self.rules.push_str(&format!("{name}: {body}\n"));
        name
    }

    /// A text as it stands, the control tokens in it by their ids.
    fn text(&self, text: &str) -> String {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let next = self.format.control.iter().filter_map(|(mark, id)| {
                rest.find(mark).map(|at| (at, std::cmp::Reverse(mark.len()), *id))
            });
            match next.min() {
                Some((at, len, id)) => {
                    if at > 0 {
                        parts.push(literal(&rest[..at]));
                    }
                    parts.push(format!("<[{id}]>"));
                    rest = &rest[at + len.0..];
                }
                None => {
                    parts.push(literal(rest));
                    rest = "";
                }
            }
        }
        parts.join(" ")
    }

    /// Any text up to a mark, and the mark.
    fn until(&mut self, mark: &str) -> String {
        match self.format.control.iter().find(|(m, _)| mark.ends_with(m)) {
            Some(_) => {
                let mark = self.text(mark);
                self.rule(&format!("/(?s:.*)/ {mark}"))
            }
            None => {
                let name = format!("r{}", self.count);
                self.count += 1;
                let mark = literal(mark);
                self.rules.push_str(&format!("{name}[suffix={mark}]: /(?s:.*)/\n"));
                name
            }
        }
    }

    /// One of several.
    fn any(&mut self, of: Vec<String>) -> String {
        if let [one] = &of[..] { one.clone() } else { self.rule(&of.join(" | ")) }
    }

    /// `one`, or several of it with `between` between.
    fn several(&mut self, one: &str, between: &str, parallel: bool) -> String {
        match (parallel, between) {
            (false, _) => one.to_owned(),
            (true, "") => format!("{one}+"),
            (true, between) => {
                let between = self.text(between);
                self.rule(&format!("{one} ({between} {one})*"))
            }
        }
    }

    fn json(&mut self, s: Json, tools: &[&Tool], parallel: bool) -> String {
        let calls = tools
            .iter()
            .map(|tool| {
                let [key, name, arguments] =
                    [s.name[0], &*tool.name, s.arguments[0]].map(|t| literal(&quoted(t)));
                // Cut as JSON is: an answer of a form may begin alike, and where a text of one grammar
                // goes on beyond the end of another's, the other is not looked at any more.
                let head = format!(
                    r#""{{" {key} ":" " " {name} "," " " {arguments} ":" " " {}"#,
                    schema(tool)
                );
                self.rule(&format!("{head} \"}}\""))
            })
            .collect();
        let call = self.any(calls);
        let (open, close) = match s.open.first() {
            Some(open) if !s.bare => {
                (format!("{open}{}", s.inner), format!("{}{}", s.inner, s.close))
            }
            _ => (String::new(), String::new()),
        };
        if s.writes_list {
            let calls = self.several(&call, s.between, parallel);
            return format!(
                "{} {calls} {}",
                self.text(&format!("{open}[")),
                self.text(&format!("]{close}"))
            );
        }
        let one = self.rule(&format!("{} {call} {}", self.text(&open), self.text(&close)));
        self.several(&one, s.between, parallel)
    }

    fn named(&mut self, s: Named, tools: &[&Tool], parallel: bool) -> String {
        let fence = s.fence.unwrap_or_default();
        let calls = tools
            .iter()
            .map(|tool| {
                let (before, number) = match s.decoration {
                    Decoration::Numbered => ("functions.", " \":\" /[0-9]{1,3}/"),
                    Decoration::None | Decoration::Id => ("", ""),
                };
                let head = self.text(&format!("{}{}{before}{}", s.open, s.before, tool.name));
                let middle = self.text(&format!("{}{}", s.name_end, fence.0));
                let tail = self.text(&format!("{}{}", fence.1, s.close));
                self.rule(&format!("{head}{number} {middle} {} {tail}", schema(tool)))
            })
            .collect();
        let call = self.any(calls);
        let calls = self.several(&call, s.between, parallel);
        match s.section {
            Some((open, close)) => format!("{} {calls} {}", self.text(open), self.text(close)),
            None => calls,
        }
    }

    fn tagged(&mut self, s: Tagged, tools: &[&Tool], parallel: bool) -> String {
        let line = |text: &str| if text.is_empty() { String::new() } else { format!("\n{text}") };
        let calls = tools
            .iter()
            .map(|tool| {
                let name = if s.shared { s.name.0.to_owned() } else { line(s.name.0) };
                let mut body = self.text(&format!("{name}{}{}\n", tool.name, s.name.1));
                for (key, value) in tool.arguments().into_iter().flatten() {
                    let argument = self.argument(s, tool, key, value);
                    let optional = if tool.requires(key) { "" } else { "?" };
                    body.push_str(&format!(" {argument}{optional}"));
                }
                if !s.end.is_empty() {
                    body.push_str(&format!(" {}", self.text(&format!("{}\n", s.end))));
                }
                self.rule(&body)
            })
            .collect();
        let call = self.any(calls);
        let (open, close) = (s.wrap.0, self.text(s.wrap.1));
        if s.shared {
            let open = self.text(&format!("{open}\n"));
            let calls = self.several(&call, "", parallel);
            return format!("{open} {calls} {close}");
        }
        let one = self.rule(&format!("{} {call} {close}", self.text(open)));
        self.several(&one, "\n", parallel)
    }

    fn argument(&mut self, s: Tagged, tool: &Tool, key: &str, value: &Value) -> String {
        let edge = if s.lines { "\n" } else { "" };
        let before = if s.value.0.is_empty() { String::new() } else { format!("\n{}", s.value.0) };
        let head = self.text(&format!("{}{key}{}{before}{edge}", s.key.0, s.key.1));
        let end = format!("{edge}{}", s.value.1);
        let texts = value.get("enum").and_then(Value::as_array).filter(|l| !l.is_empty());
        let texts: Option<Vec<&str>> = texts.and_then(|l| l.iter().map(Value::as_str).collect());
        let value = if let Some(texts) = texts {
            let texts: Vec<_> = texts.into_iter().map(literal).collect();
            format!("({}) {}", texts.join(" | "), self.text(&end))
        } else if Types::of(Some(value)).string {
            // Up to the tag itself, where the parser ends it; a line break before it is the value's own
            // until the parser takes it off.
            self.until(s.value.1)
        } else {
            // What the argument's schema refers to is in the whole one.
            let mut own = value.clone();
            if let (Value::Object(own), Value::Object(whole)) = (&mut own, &tool.parameters) {
                for key in ["$defs", "definitions"] {
                    if let Some(defs) = whole.get(key) {
                        own.entry(key).or_insert_with(|| defs.clone());
                    }
                }
            }
            format!("{} {}", embedded(own), self.text(&end))
        };
        self.rule(&format!("{head} {value} \"\\n\""))
    }

    /// Continues the header `<|start|>assistant`: a call of one of `tools`, or the `answer`. It may think
    /// in a message of its own before.
    fn harmony(&mut self, tools: &[&Tool], answer: bool) -> String {
        let think = self.text("<|channel|>analysis<|message|>");
        let thought = self.until("<|end|>");
        let again = self.text(crate::harmony::TURN);
        let mut messages: Vec<String> = tools
            .iter()
            .map(|tool| {
                let head = self.text(&format!(
                    "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>",
                    tool.name
                ));
                self.rule(&format!("{head} {}", schema(tool)))
            })
            .collect();
        if answer {
            let head = self.text("<|channel|>final<|message|>");
            messages.push(self.rule(&format!("{head} @answer")));
        }
        let message = self.any(messages);
        format!("({think} {thought} {again})? {message}")
    }
}

/// A text in Lark's quotes, which are JSON's.
fn literal(text: &str) -> String {
    quoted(text).replace('\u{7F}', "\\u007F")
}

/// A tool's arguments as a part of a grammar.
fn schema(tool: &Tool) -> String {
    let mut schema = match &tool.parameters {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    if !["$ref", "anyOf", "oneOf", "allOf"].iter().any(|k| schema.contains_key(*k)) {
        schema.insert("type".into(), "object".into());
        // What is not described is not asked for.
        schema.entry("properties").or_insert_with(|| json!({}));
        schema.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    embedded(Value::Object(schema))
}

/// A schema as a part of a grammar. White space as models write it, and no more of it.
fn embedded(mut schema: Value) -> String {
    if let Value::Object(map) = &mut schema {
        map.insert("x-guidance".into(), json!({"whitespace_pattern": " |\\n{1,2} {0,20}"}));
    }
    format!("%json {schema}")
}
