//! Tools of MCP servers in a conversation: offered to the model, asked for, called.

use crate::chat_template::{Rendering, no_template};
use crate::error::Error;
use crate::load::Loaded;
use crate::term::note;
use chat::{
    Family, Format, Needs, Parser, ParserOptions, Segment, Tool, normalize_arguments,
    normalize_messages, normalize_tools, tell_tools,
};
use clap::{Args, ValueHint};
use mcp::{Offer, Server, Target, offers, read_config};
use serde_json::{Map, Value as Json, json};
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;
use tokenizer::{ChatTemplate, Message, Rendered};

/// Rounds of calls that an answer may have.
pub(super) const ROUNDS: usize = 16;

/// Time for a call.
const TIME: Duration = Duration::from_secs(120);

/// Bytes of a result that the model sees.
const LONGEST: usize = 256 << 10;

/// Characters of a result that a person sees.
const SHOWN: usize = 400;

/// Servers with tools for the model.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Tools")]
pub(crate) struct McpArgs {
    /// MCP server whose tools the model may call: a command line, which is started, or an address of streamable
    /// HTTP; can be given several times
    #[arg(long, value_name = "COMMAND|URL")]
    mcp: Vec<String>,
    /// File with MCP servers, as other clients have it: {"mcpServers": {"files": {"command": ..., "args": [...]}}}
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    mcp_config: Option<PathBuf>,
    /// Tool that is called without asking; * for all; can be given several times [default: each call is asked for]
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    mcp_allow: Vec<String>,
}

impl McpArgs {
    /// Starts the servers and connects to them, if there are any.
    pub(super) fn connect(&self) -> Result<Option<Servers>, Error> {
        let mut targets: Vec<(String, Target)> = Vec::new();
        for text in &self.mcp {
            let target = Target::parse(text).map_err(|e| Error::Usage(format!("--mcp: {e}")))?;
            targets.push((target.name(), target));
        }
        if let Some(path) = &self.mcp_config {
            let read = read_config(path);
            targets.extend(read.map_err(|e| Error::Usage(format!("--mcp-config: {e}")))?);
        }
        if targets.is_empty() {
            return match self.mcp_allow.is_empty() {
                true => Ok(None),
                false => {
                    Err(Error::Usage("--mcp-allow goes with --mcp or --mcp-config".to_owned()))
                }
            };
        }
        let connect = |(name, target): &(String, Target)| {
            let server = Server::connect(name, target).map_err(Error::refused)?;
            let tools: Vec<&str> = server.tools().iter().map(|tool| &*tool.name).collect();
            note!(
                "tools of {name}: {}",
                if tools.is_empty() { "none".into() } else { tools.join(", ") }
            );
            Ok(server)
        };
        let servers = targets.iter().map(connect).collect::<Result<Vec<_>, Error>>()?;
        let allowed = self.mcp_allow.iter().cloned().collect();
        let servers = Servers { offered: offered(&servers), servers, allowed };
        if let Some(tool) = self.mcp_allow.iter().find(|tool| *tool != "*" && !servers.has(tool)) {
            return Err(Error::Usage(format!("--mcp-allow {tool}: there is no such tool")));
        }
        Ok(Some(servers))
    }
}

/// A tool as the model knows it.
#[derive(Debug)]
struct Offered {
    name: String,
    server: usize,
    /// As the server knows it.
    tool: String,
    json: Json,
}

/// The tools of all servers.
fn offered(servers: &[Server]) -> Vec<Offered> {
    let offer = |Offer { name, server, tool }: Offer| {
        let function = json!({
            "name": name, "description": tool.description, "parameters": tool.parameters,
        });
        let json = json!({"type": "function", "function": function});
        Offered { name, server, tool: tool.name, json }
    };
    offers(servers).into_iter().map(offer).collect()
}

/// Servers that are connected.
pub(super) struct Servers {
    servers: Vec<Server>,
    offered: Vec<Offered>,
    /// Tools that are called without asking.
    allowed: HashSet<String>,
}

/// What a person says to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consent {
    Once,
    Always,
    No,
}

impl Consent {
    pub(super) fn parse(text: &str) -> Option<Consent> {
        match text.trim().to_lowercase().as_str() {
            "y" | "yes" => Some(Consent::Once),
            "a" | "always" => Some(Consent::Always),
            "n" | "no" | "" => Some(Consent::No),
            _ => None,
        }
    }
}

/// A call of the model's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

impl Servers {
    fn has(&self, name: &str) -> bool {
        self.offered.iter().any(|tool| tool.name == name)
    }

    /// Whether a call need not be asked for.
    pub(super) fn allows(&self, name: &str) -> bool {
        self.allowed.contains(name) || self.allowed.contains("*")
    }

    /// Further calls of a tool are not asked for.
    pub(super) fn allow(&mut self, name: &str) {
        self.allowed.insert(name.to_owned());
    }

    /// Calls a tool; what the model is told of it, faults too.
    pub(super) fn call(&mut self, call: &Call) -> String {
        let Some(tool) = self.offered.iter().find(|tool| tool.name == call.name) else {
            return format!("error: there is no tool {:?}", call.name);
        };
        let arguments = match serde_json::from_str::<Map<String, Json>>(&call.arguments) {
            Ok(arguments) => arguments,
            Err(e) => return format!("error: the arguments are no JSON object: {e}"),
        };
        match self.servers[tool.server].call(&tool.tool, arguments, TIME) {
            Ok(outcome) if outcome.failed => format!("error: {}", cut(&outcome.text, LONGEST)),
            Ok(outcome) => cut(&outcome.text, LONGEST),
            Err(e) => format!("error: {e}"),
        }
    }
}

/// The beginning of a text, and how much of it is missing.
fn cut(text: &str, most: usize) -> String {
    let end = text.floor_char_boundary(most);
    match text.len() - end {
        0 => text.to_owned(),
        rest => format!("{}\n[{rest} bytes more]", &text[..end]),
    }
}

/// A result as a person sees it.
pub(super) fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        None => line,
        Some((at, _)) => format!("{} …", &line[..at]),
    }
}

/// How a model is told of tools, and how its calls are read.
pub(super) struct Calling {
    format: Format,
    needs: Needs,
    tools: Vec<Tool>,
    json: Vec<Json>,
}

impl Calling {
    /// For a model and the tools of servers.
    ///
    /// # Errors
    /// When the model has no template, or calls no tools.
    pub(super) fn new(loaded: &Loaded, source: &str, servers: &Servers) -> Result<Calling, Error> {
        let template = loaded.template.as_ref().ok_or_else(no_template)?;
        let tokenizer = &loaded.tokenizer;
        let needs = Needs::probe(template);
        let own = Format::detect(source, tokenizer);
        // As `serve` has it: who is told of no tools by the template is told as Hermes is.
        let format = match own.has_tools() || needs.tools {
            true => own,
            false => own.calling_as(Family::Hermes, tokenizer),
        };
        if !format.has_tools() {
            return Err(Error::Refused(
                "the template of the model shows tools in a form that is not known: --mcp needs \
                 another model"
                    .to_owned(),
            ));
        }
        let tool = |one: &Offered| Tool {
            name: one.name.clone(),
            parameters: one.json["function"]["parameters"].clone(),
        };
        Ok(Calling {
            tools: servers.offered.iter().map(tool).collect(),
            json: servers.offered.iter().map(|one| one.json.clone()).collect(),
            format,
            needs,
        })
    }

    /// Whether an answer is decoded with its control tokens.
    pub(super) fn needs_special(&self) -> bool {
        self.format.needs_special()
    }

    /// The tools, and the conversation's calls with arguments as the template wants them.
    pub(super) fn tools(&self, messages: &mut [Message]) -> Vec<Json> {
        if self.needs.tools && self.needs.object_arguments {
            normalize_arguments(messages, &self.needs);
        }
        self.json.clone()
    }

    /// The prompt of a conversation with [`tools`](Self::tools).
    pub(super) fn render(
        &self,
        template: &ChatTemplate,
        mut messages: Vec<Message>,
        mut tools: Vec<Json>,
        rendering: Rendering,
    ) -> Result<Rendered, Error> {
        let mut options = rendering.options();
        if self.needs.tools {
            normalize_tools(&mut tools, &self.needs);
            options.tools = Some(tools.into());
        } else {
            tell_tools(&mut messages, &tools, &self.format);
        }
        normalize_messages(&mut messages, &self.needs).map_err(Error::refused)?;
        Ok(Rendered { text: template.render(&messages, &options)?, escape: rendering.escape })
    }

    /// Reads an answer to a prompt.
    pub(super) fn reader(&self, prompt: &str) -> Reader {
        let options = ParserOptions {
            tools: self.tools.clone(),
            reasoning: true,
            prompt_opens_reasoning: self.format.prompt_opens_reasoning(prompt),
        };
        Reader {
            parser: Some(Parser::new(&self.format, options)),
            text: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            open: None,
        }
    }
}

/// An answer as it is read.
pub(super) struct Reader {
    parser: Option<Parser>,
    text: String,
    reasoning: String,
    calls: Vec<Call>,
    /// The call that runs.
    open: Option<Call>,
}

impl Reader {
    /// Takes a piece; what is to be shown of it.
    pub(super) fn push(&mut self, piece: &str) -> String {
        let segments = self.parser.as_mut().map(|parser| parser.push(piece));
        self.take(segments.unwrap_or_default())
    }

    /// Takes the end; what is to be shown of it.
    pub(super) fn end(&mut self) -> String {
        let segments = self.parser.take().map(Parser::finish).unwrap_or_default();
        self.take(segments)
    }

    fn take(&mut self, segments: Vec<Segment>) -> String {
        let mut shown = String::new();
        for segment in segments {
            match segment {
                Segment::Text(text) => {
                    if self.text.is_empty() && !self.reasoning.is_empty() {
                        shown.push_str("\n\n");
                    }
                    self.text.push_str(&text);
                    shown.push_str(&text);
                }
                Segment::Reasoning(text) => {
                    self.reasoning.push_str(&text);
                    shown.push_str(&text);
                }
                Segment::ToolCall { name, .. } => {
                    let id: String = format!("call{:05}", (self.calls.len() + 1) * 7919 % 100_000);
                    self.open = Some(Call { id, name, arguments: String::new() });
                }
                Segment::Arguments { delta, .. } => {
                    if let Some(call) = &mut self.open {
                        call.arguments.push_str(&delta);
                    }
                }
                // One that was cut off is none.
                Segment::ToolCallEnd { .. } => self.calls.extend(self.open.take()),
            }
        }
        shown
    }

    /// The message that the answer is, and its calls.
    pub(super) fn message(self) -> (Message, Vec<Call>) {
        let call = |call: &Call| {
            json!({
                "id": call.id, "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        };
        let calls: Vec<Json> = self.calls.iter().map(call).collect();
        let message = Message {
            role: "assistant".to_owned(),
            content: self.text.into(),
            reasoning_content: Some(self.reasoning).filter(|text| !text.is_empty()),
            tool_calls: (!calls.is_empty()).then(|| calls.into()),
            ..Message::default()
        };
        (message, self.calls)
    }
}

/// A result as a message.
pub(super) fn result(call: &Call, text: &str) -> Message {
    Message {
        role: "tool".to_owned(),
        content: text.into(),
        name: Some(call.name.clone()),
        tool_call_id: Some(call.id.clone()),
        ..Message::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consent_is_a_word_and_silence_is_none() {
        assert_eq!(Consent::parse(" Y"), Some(Consent::Once));
        assert_eq!(Consent::parse("always"), Some(Consent::Always));
        assert_eq!(Consent::parse(""), Some(Consent::No));
        assert_eq!(Consent::parse("what?"), None);
    }

    #[test]
    fn long_results_are_cut_where_a_character_ends() {
        assert_eq!(cut("äöü", 3), "ä\n[4 bytes more]");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(shown("a\n  b\tc"), "a b c");
        assert!(shown(&"x".repeat(1000)).ends_with("x …"));
    }
}
