//! A connection to a server, whatever it goes over.

use crate::http::Address;
use crate::message::{notification, request};
use crate::stdio::Program;
use crate::{Error, Target};
use serde_json::{Map, Value as Json, json};
use std::process::Command;
use std::time::{Duration, Instant};

/// The version of the protocol that is asked for, and those that are spoken.
const VERSION: &str = "2025-06-18";
const SPOKEN: [&str; 4] = ["2025-11-25", VERSION, "2025-03-26", "2024-11-05"];

/// Time for a server to start and to tell its tools.
const START: Duration = Duration::from_secs(60);

/// Tools of a server, and pages of its list.
const MOST: usize = 512;

/// A tool of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments.
    pub parameters: Json,
}

/// What a call has brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its text. What is no text is named.
    pub text: String,
    /// The tool says that it has failed.
    pub failed: bool,
}

enum Transport {
    Program(Program),
    Address(Address),
}

/// A server that is connected.
pub struct Server {
    name: String,
    transport: Transport,
    /// The number of the last request.
    last: u64,
    tools: Vec<Tool>,
}

impl Server {
    /// Starts a server, or connects to it, and asks for its tools.
    ///
    /// # Errors
    /// When it cannot be started or reached, or does not speak MCP.
    pub fn connect(name: &str, target: &Target) -> Result<Server, Error> {
        let transport = match target {
            Target::Command { command, args, env, cwd } => {
                let mut program = Command::new(command);
                program.args(args).envs(env);
                if let Some(folder) = cwd {
                    program.current_dir(folder);
                }
                Transport::Program(Program::start(name, &mut program)?)
            }
            Target::Url { url, headers } => Transport::Address(Address::new(url, headers)),
        };
        let mut server = Server { name: name.to_owned(), transport, last: 0, tools: Vec::new() };
        let hello = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "arclight", "version": env!("CARGO_PKG_VERSION")},
        });
        let told = server.ask("initialize", &hello, START)?;
        let version = told["protocolVersion"].as_str().unwrap_or_default();
        if !SPOKEN.contains(&version) {
            let why = format!("it speaks version {version:?}, and here {} are", SPOKEN.join(", "));
            return Err(server.malformed("initialize", why));
        }
        if let Transport::Address(address) = &mut server.transport {
            address.speaks(version);
        }
        server.tell("notifications/initialized")?;
        if told["capabilities"]["tools"].is_object() {
            server.tools = server.list()?;
        }
        Ok(server)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its tools.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// Calls a tool, for so long at most.
    ///
    /// # Errors
    /// When the server is gone, late, or refuses the call. A tool that fails is no error.
    pub fn call(
        &mut self,
        tool: &str,
        arguments: Map<String, Json>,
        time: Duration,
    ) -> Result<Outcome, Error> {
        let params = json!({"name": tool, "arguments": arguments});
        let result = self.ask("tools/call", &params, time)?;
        let parts = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut text = parts.iter().map(part).collect::<Vec<_>>().join("\n");
        if text.is_empty() && !result["structuredContent"].is_null() {
            text = result["structuredContent"].to_string();
        }
        Ok(Outcome { text, failed: result["isError"] == true })
    }

    fn list(&mut self) -> Result<Vec<Tool>, Error> {
        let (mut tools, mut cursor) = (Vec::new(), Json::Null);
        for _ in 0..MOST {
            let params = match &cursor {
                Json::Null => json!({}),
                cursor => json!({"cursor": cursor}),
            };
            let page = self.ask("tools/list", &params, START)?;
            let list = page["tools"].as_array();
            let list =
                list.ok_or_else(|| self.malformed("tools/list", "it has no tools".into()))?;
            for tool in list {
                let name = tool["name"].as_str().filter(|name| !name.is_empty());
                let name =
                    name.ok_or_else(|| self.malformed("tools/list", "a tool has no name".into()))?;
                let parameters = match &tool["inputSchema"] {
                    schema @ Json::Object(_) => schema.clone(),
                    _ => json!({"type": "object"}),
                };
                let description = tool["description"].as_str().unwrap_or_default().to_owned();
                tools.push(Tool { name: name.to_owned(), description, parameters });
            }
            if tools.len() > MOST {
                return Err(self.malformed("tools/list", format!("it has more than {MOST} tools")));
            }
            cursor = page["nextCursor"].clone();
            if !cursor.is_string() {
                return Ok(tools);
            }
        }
        Err(self.malformed("tools/list", "its pages do not end".into()))
    }

    fn ask(&mut self, method: &str, params: &Json, time: Duration) -> Result<Json, Error> {
        self.last += 1;
        let (id, message) = (self.last, request(self.last, method, params));
        let answer = match &mut self.transport {
            Transport::Program(program) => {
                program.send(&message).and_then(|()| program.answer(id, Instant::now() + time))
            }
            Transport::Address(address) => address.ask(&message, id, time),
        };
        let server = self.name.clone();
        match answer {
            Ok(Some(Ok(result))) => Ok(result),
            Ok(Some(Err((code, message)))) => Err(Error::Refused { server, message, code }),
            Ok(None) => {
                Err(Error::Late { server, method: method.to_owned(), seconds: time.as_secs() })
            }
            Err(why) => Err(Error::Gone { server, why }),
        }
    }

    fn tell(&mut self, method: &str) -> Result<(), Error> {
        let message = notification(method);
        let told = match &mut self.transport {
            Transport::Program(program) => program.send(&message),
            Transport::Address(address) => address.send(&message, START),
        };
        told.map_err(|why| Error::Gone { server: self.name.clone(), why })
    }

    fn malformed(&self, method: &str, why: String) -> Error {
        Error::Malformed { server: self.name.clone(), method: method.to_owned(), why }
    }
}

/// A tool of several servers, under a name that no other has.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The name: the tool's own, or SERVER__TOOL where several servers have one of that name.
    pub name: String,
    /// Which server.
    pub server: usize,
    /// The tool as the server has it.
    pub tool: Tool,
}

/// The tools of all servers. What has a name that is taken even so is left out, and told in the log.
pub fn offers(servers: &[Server]) -> Vec<Offer> {
    let count = |name: &str| {
        servers.iter().flat_map(|server| server.tools()).filter(|tool| tool.name == name).count()
    };
    let mut all: Vec<Offer> = Vec::new();
    for (server, one) in servers.iter().enumerate() {
        for tool in one.tools() {
            let name = match count(&tool.name) {
                0 | 1 => tool.name.clone(),
                _ => format!("{}__{}", one.name(), tool.name),
            };
            if all.iter().any(|known| known.name == name) {
                tracing::warn!("the tool {name} is left out: there are two of it");
                continue;
            }
            all.push(Offer { name, server, tool: tool.clone() });
        }
    }
    all
}

/// A part of a result as text.
fn part(part: &Json) -> String {
    let text = |value: &Json| value.as_str().map(str::to_owned);
    let named = match part["type"].as_str() {
        Some("text") => text(&part["text"]),
        Some("resource") => text(&part["resource"]["text"]),
        Some("resource_link") => text(&part["uri"]),
        _ => None,
    };
    named.unwrap_or_else(|| format!("[{}]", part["type"].as_str().unwrap_or("nothing")))
}
