//! A server at an address: streamable HTTP. Each message is a POST, and its answer JSON or a stream of events.

use crate::message::{Answered, Said, read};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;
use ureq::Agent;

/// Bytes of an answer.
const LONGEST: u64 = 16 << 20;

pub(crate) struct Address {
    agent: Agent,
    url: String,
    headers: BTreeMap<String, String>,
    /// What the server knows the connection by.
    session: Option<String>,
    /// The version of the protocol, once it is known.
    version: Option<String>,
}

/// What a POST brings.
enum Got {
    Nothing,
    Answer(Answered),
    Late,
}

impl Drop for Address {
    fn drop(&mut self) {
        let Some(session) = &self.session else { return };
        let mut request = self.agent.delete(&self.url).header("mcp-session-id", session);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        // Servers need not allow it.
        let brief = request.config().timeout_global(Some(Duration::from_secs(2))).build();
        let _ = brief.call();
    }
}

impl Address {
    pub(crate) fn new(url: &str, headers: &BTreeMap<String, String>) -> Address {
        let config = Agent::config_builder().http_status_as_error(false).build();
        let (url, headers) = (url.to_owned(), headers.clone());
        Address { agent: config.into(), url, headers, session: None, version: None }
    }

    pub(crate) fn speaks(&mut self, version: &str) {
        self.version = Some(version.to_owned());
    }

    /// Sends what wants no answer.
    pub(crate) fn send(&mut self, message: &Json, time: Duration) -> Result<(), String> {
        self.post(message, None, time).map(|_| ())
    }

    /// Sends a request and gives its answer; `None` if it does not come in time.
    pub(crate) fn ask(
        &mut self,
        message: &Json,
        id: u64,
        time: Duration,
    ) -> Result<Option<Answered>, String> {
        match self.post(message, Some(id), time)? {
            Got::Answer(answer) => Ok(Some(answer)),
            Got::Late => Ok(None),
            Got::Nothing => Err("its answer has no message".to_owned()),
        }
    }

    fn post(&mut self, message: &Json, id: Option<u64>, time: Duration) -> Result<Got, String> {
        let mut request = self
            .agent
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        let own = [("mcp-session-id", &self.session), ("mcp-protocol-version", &self.version)];
        for (name, value) in own {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.config().timeout_global(Some(time)).build();
        let mut response = match request.send(message.to_string()) {
            Ok(response) => response,
            Err(ureq::Error::Timeout(_)) => return Ok(Got::Late),
            Err(error) => return Err(error.to_string()),
        };
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|v| v.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let (status, kind) = (response.status(), header("content-type"));
        if let Some(session) = Some(header("mcp-session-id")).filter(|id| !id.is_empty()) {
            self.session = Some(session);
        }
        let body = response.body_mut().as_reader().take(LONGEST);
        if !status.is_success() {
            let mut text = String::new();
            let _ = body.take(500).read_to_string(&mut text);
            return Err(format!("{} answers {status}: {}", self.url, text.trim()));
        }
        let Some(id) = id else { return Ok(Got::Nothing) };
        let late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::TimedOut;
        if !kind.starts_with("text/event-stream") {
            let mut text = String::new();
            let mut body = body;
            return match body.read_to_string(&mut text) {
                Err(error) if late(&error) => Ok(Got::Late),
                Err(error) => Err(error.to_string()),
                Ok(_) => {
                    let message = serde_json::from_str::<Json>(&text)
                        .map_err(|e| format!("its answer is no JSON: {e}"))?;
                    Ok(of(&message, id).map_or(Got::Nothing, Got::Answer))
                }
            };
        }
        let (mut data, mut lines) = (String::new(), BufReader::new(body));
        loop {
            let mut line = String::new();
            match lines.read_line(&mut line) {
                Err(error) if late(&error) => return Ok(Got::Late),
                Err(error) => return Err(error.to_string()),
                Ok(0) => return Err("the stream ended before the answer".to_owned()),
                Ok(_) => {}
            }
            let line = line.trim_end_matches(['\r', '\n']);
            if let Some(more) = line.strip_prefix("data:") {
                data.push_str(more.strip_prefix(' ').unwrap_or(more));
            } else if line.is_empty() && !data.is_empty() {
                let message = serde_json::from_str::<Json>(&std::mem::take(&mut data));
                // Requests of the server's would be answered by a POST of their own; none is served.
                if let Some(answer) = message.ok().and_then(|message| of(&message, id)) {
                    return Ok(Got::Answer(answer));
                }
            }
        }
    }
}

/// The answer to a request, if a message is that.
fn of(message: &Json, id: u64) -> Option<Answered> {
    match read(message) {
        Said::Answer(of, answer) if of == id => Some(answer),
        _ => None,
    }
}
