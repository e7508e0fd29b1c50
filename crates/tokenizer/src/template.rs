//! Chat templates: the Jinja program in the model file that turns messages into a prompt.
//!
//! Templates are written for Jinja2 as transformers sets it up, and the environment here is that
//! one: blocks trimmed, loop controls, Python's methods on strings and dicts, `raise_exception`,
//! `strftime_now` (in UTC), `tojson` like `json.dumps`, and `{% generation %}` blocks rendered as
//! if they were not there. Values print as Python prints them.
//!
//! Rendering stops with an error after [`STEPS`] steps of the template, [`MAX_OUTPUT`] bytes of
//! text made on the way, or ten seconds (`budget`).
//!
//! Limits: floats inside a printed list or dict that Python would write with an exponent are written
//! without its leading zero and plus (`tojson` is exact). In the rendered text a message that spells a control
//! token is indistinguishable from the template's own words, unless an [`Escaper`](crate::Escaper) has escaped it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::SystemTime;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind};
use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::budget::{self, Late, MAX_OUTPUT, Spent, Text};
use crate::program::{Program, needles};
use crate::strftime::strftime;
use crate::tojson::{ESCAPE, tojson};
use crate::{Error, methods};

/// Steps of the template engine that one rendering may take: room for some ten thousand messages,
/// and about a second at most.
const STEPS: u64 = 10_000_000;

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or another role of the template.
    pub role: String,
    /// Text; or a list of parts, or null, where the template handles them.
    #[serde(default)]
    pub content: Json,
    /// What an assistant thought before it answered, if kept apart from the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The calls an assistant makes: a list of `{"function": {"name", "arguments"}}`. Most templates
    /// want the arguments as an object, not as the text of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Json>,
    /// Name of the speaker, or of the tool that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which call a tool's message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message that is only text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Json::String(content.into()), ..Self::default() }
    }
}

/// What a template gets besides the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// End with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Descriptions of the tools that the model may call.
    pub tools: Option<Json>,
    /// Further variables, such as `enable_thinking`. They do not replace the template's own.
    pub extra: serde_json::Map<String, Json>,
    /// The time that `strftime_now` gives; otherwise the clock's. Formatted as UTC: for local time,
    /// add its offset.
    pub now: Option<SystemTime>,
    /// The escape character of the messages, tools and variables, if an [`Escaper`](crate::Escaper) gave one.
    pub escape: Option<char>,
}

/// A model's chat template, parsed. Shared between threads as it is.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    /// What renders instead when there are tools, if the model has another template for that.
    tool_source: Option<String>,
    bos: Option<String>,
    eos: Option<String>,
    /// Texts that it searches for, and whether it may cut a text there.
    needles: BTreeMap<String, bool>,
}

impl ChatTemplate {
    /// The template of a model file (`tokenizer.chat_template`, and `.tool_use` if there is one for
    /// tools); `None` if it has none.
    pub fn from_gguf(meta: &gguf::Metadata<'_>) -> Result<Option<Self>, Error> {
        let Some(source) = meta.opt_str("tokenizer.chat_template")? else { return Ok(None) };
        let template = Self::for_gguf(meta, source)?;
        match meta.opt_str("tokenizer.chat_template.tool_use")? {
            Some(source) => template.with_tool_template(source).map(Some),
            None => Ok(Some(template)),
        }
    }

    /// A template for a model file in the place of its own, with the file's tokens.
    pub fn for_gguf(meta: &gguf::Metadata<'_>, source: &str) -> Result<Self, Error> {
        let text_of = |key| -> Result<Option<Cow<'_, str>>, Error> {
            let Some(id) = meta.opt_u32(key)? else { return Ok(None) };
            let mut tokens = meta.strings("tokenizer.ggml.tokens")?;
            let (len, text) = (tokens.len(), tokens.nth(id as usize));
            text.map(|t| Some(String::from_utf8_lossy(t))).ok_or(Error::IdOutOfRange {
                key,
                id,
                tokens: len,
            })
        };
        let bos = text_of("tokenizer.ggml.bos_token_id")?;
        let eos = text_of("tokenizer.ggml.eos_token_id")?;
        Self::new(source, bos.as_deref(), eos.as_deref())
    }

    /// Parses a template. `bos` and `eos` are the texts of its variables `bos_token`, `eos_token`.
    pub fn new(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, Error> {
        let mut env = Environment::new();
        env.set_fuel(Some(STEPS));
        env.set_unknown_method_callback(methods::call);
        env.set_formatter(|out, _, value| {
            let mut text = Text::default();
            text.push(value)?;
            out.write_str(&text.into_string()).map_err(minijinja::Error::from)
        });
        budget::install(&mut env);
        env.add_filter("tojson", tojson);
        // In Python none cannot be iterated over, and templates test for that.
        env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
        env.add_function("raise_exception", |message: String| -> Result<Value, _> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, "raised by the template")
                .with_source(Raised(message)))
        });
        let template = Self {
            env,
            source: without_generation_tags(source),
            tool_source: None,
            bos: bos.map(str::to_owned),
            eos: eos.map(str::to_owned),
            needles: BTreeMap::new(),
        };
        let needles = needles(&template.source).map_err(explain)?;
        Ok(Self { needles, ..template })
    }

    /// The Jinja source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The Jinja sources of all.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &str> {
        [&self.source].into_iter().chain(&self.tool_source).map(String::as_str)
    }

    /// Texts that the template searches for, and whether it may cut a text there.
    pub(crate) fn needles(&self) -> &BTreeMap<String, bool> {
        &self.needles
    }

    /// The same with another template for when there are tools: some models bring two.
    pub fn with_tool_template(mut self, source: &str) -> Result<Self, Error> {
        let source = without_generation_tags(source);
        for (needle, cuts) in needles(&source).map_err(explain)? {
            *self.needles.entry(needle).or_insert(false) |= cuts;
        }
        self.tool_source = Some(source);
        Ok(self)
    }

    /// The prompt for a conversation. Encode it with [`Tokenizer::encode_rendered`](crate::Tokenizer::encode_rendered)
    /// if messages, tools and variables are escaped ([`Escaper`](crate::Escaper)), as text from outside has to be, and
    /// otherwise with `parse_special`. A BOS that the template writes is not doubled.
    pub fn render(&self, messages: &[Message], opts: &RenderOptions) -> Result<String, Error> {
        let now = opts.now;
        let strftime_now = Value::from_function(move |format: String| {
            budget::need_for_format(&Value::from(format.as_str()), '%')?;
            strftime(now.unwrap_or_else(SystemTime::now), &format).map_err(|error| {
                let message = format!("strftime_now: {error}");
                minijinja::Error::new(ErrorKind::InvalidOperation, message)
            })
        });
        let own = [
            ("messages", Value::from(Serde(messages))),
            ("tools", Value::from(Serde(&opts.tools))),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(opts.add_generation_prompt)),
            ("strftime_now", strftime_now),
            (ESCAPE, Value::from(opts.escape)),
        ];
        let tokens = [("bos_token", &self.bos), ("eos_token", &self.eos)];
        let tokens = tokens.into_iter().filter_map(|(k, v)| Some((k, Value::from(v.as_ref()?))));
        let extra = opts.extra.iter().map(|(k, v)| (k.as_str(), Value::from(Serde(v))));
        // Of two values for a name the later one counts.
        let context = Value::from_pairs(extra.chain(tokens).chain(own));
        budget::begin();
        let source = match &self.tool_source {
            Some(source) if opts.tools.is_some() => source,
            _ => &self.source,
        };
        // A program borrows from the source, so each rendering compiles it.
        Program::compile(source).and_then(|p| p.render(&self.env, context)).map_err(explain)
    }
}

/// What a template said with `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn explain(error: minijinja::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(Raised(message)) = inner.downcast_ref() {
            return Error::Refused { message: message.clone() };
        }
        cause = inner.source();
    }
    let line = error.line().unwrap_or(0);
    if has_cause::<Spent>(&error) {
        return Error::TemplateTooLarge { line, limit: MAX_OUTPUT };
    }
    if has_cause::<Late>(&error) {
        return Error::TemplateTooSlow { line, seconds: budget::TIME.as_secs() };
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return Error::TemplateTooLong { line, steps: STEPS };
    }
    let message = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    Error::Template { line, message }
}

fn has_cause<T: std::error::Error + 'static>(error: &minijinja::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if inner.is::<T>() {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// `{% generation %}` marks the assistant's words for training. A block that is always taken
/// stands in for it, which leaves white-space control and line numbers as they are.
fn without_generation_tags(source: &str) -> String {
    static TAG: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})").expect("a constant pattern")
    });
    TAG.replace_all(source, |tag: &Captures<'_>| {
        let word = if tag.get(2).is_some() { "endif" } else { "if true" };
        format!("{}{word}{}", &tag[1], &tag[3])
    })
    .into_owned()
}
