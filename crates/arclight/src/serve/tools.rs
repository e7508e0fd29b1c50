//! MCP servers whose tools the page offers (`serve --mcp-config`).

use crate::error::Error;
use crate::term::note;
use arclight_server::{PageTools, ToolServers};
use clap::{Args, ValueHint};
use mcp::{Offer, Server, Target, offers, read_config};
use serde_json::{Map, Value as Json, json};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Time for a call, and for the calls before it.
const TIME: Duration = Duration::from_secs(120);

/// Servers with tools for the page.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Tools")]
pub(super) struct ToolArgs {
    /// File with MCP servers whose tools the page offers, as other clients have it: {"mcpServers": {"files":
    /// {"command": ..., "args": [...]}}}; whoever may use the server may have them called
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    mcp_config: Option<PathBuf>,
}

impl ToolArgs {
    /// Starts the servers and connects to them, if there are any.
    pub(super) fn connect(&self) -> Result<Option<PageTools>, Error> {
        let Some(path) = &self.mcp_config else { return Ok(None) };
        let targets = read_config(path).map_err(|e| Error::Usage(format!("--mcp-config: {e}")))?;
        let connect = |(name, target): &(String, Target)| {
            Server::connect(name, target).map_err(Error::refused)
        };
        let servers = targets.iter().map(connect).collect::<Result<Vec<_>, Error>>()?;
        let offers = offers(&servers);
        let names: Vec<&str> = offers.iter().map(|offer| &*offer.name).collect();
        note!("tools for the page: {}", names.join(", "));
        let servers = servers.into_iter().zip(targets);
        let servers = servers.map(|(server, (name, target))| Slot {
            server: Mutex::new(Some(Some(server))),
            free: Condvar::new(),
            name,
            target,
        });
        let servers = Servers { offers, servers: servers.collect() };
        Ok(Some(PageTools::new(Arc::new(servers))))
    }
}

struct Servers {
    offers: Vec<Offer>,
    servers: Vec<Slot>,
}

/// A server, which is connected again when it has gone.
struct Slot {
    /// The connection, if it has not gone; `None` while a call has it.
    server: Mutex<Option<Option<Server>>>,
    /// No call has it.
    free: Condvar,
    name: String,
    target: Target,
}

impl Slot {
    /// Calls of one server take turns.
    fn turn(&self) -> Result<Turn<'_>, String> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.free.wait_timeout_while(server, TIME, |server| server.is_none());
        let (mut server, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match server.take() {
            Some(server) => Ok(Turn { slot: self, server }),
            None => {
                Err(format!("other calls of {} have not ended in {} s", self.name, TIME.as_secs()))
            }
        }
    }
}

/// A call's hold on a server.
struct Turn<'a> {
    slot: &'a Slot,
    server: Option<Server>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let server = self.server.take();
        *self.slot.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        self.slot.free.notify_one();
    }
}

impl ToolServers for Servers {
    fn tools(&self) -> Vec<Json> {
        let tool = |offer: &Offer| {
            json!({"type": "function", "function": {
                "name": offer.name,
                "description": offer.tool.description,
                "parameters": offer.tool.parameters,
            }})
        };
        self.offers.iter().map(tool).collect()
    }

    fn call(&self, name: &str, arguments: Map<String, Json>) -> Result<(String, bool), String> {
        let offer = self.offers.iter().find(|offer| offer.name == name);
        let offer = offer.ok_or_else(|| format!("there is no tool {name:?}"))?;
        let slot = &self.servers[offer.server];
        let mut turn = slot.turn()?;
        let mut server = match turn.server.take() {
            Some(server) => server,
            None => Server::connect(&slot.name, &slot.target).map_err(|e| e.to_string())?,
        };
        match server.call(&offer.tool.name, arguments, TIME) {
            Ok(outcome) => {
                turn.server = Some(server);
                Ok((outcome.text, outcome.failed))
            }
            // The next call begins anew.
            Err(gone @ mcp::Error::Gone { .. }) => Err(gone.to_string()),
            Err(error) => {
                turn.server = Some(server);
                Err(error.to_string())
            }
        }
    }
}
