//! The name, the models and the abilities of a server, found out before the measurement.

use crate::client::{Client, Fault};
use crate::error::Error;
use crate::exchange::{Job, Line};
use crate::prompt::Counter;
use crate::record::{Outcome, Reason, Record};
use crate::wire::{Dialect, Endpoint, Form, words};
use crate::workload::{Ask, Prompt};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For answers about the server.
const PATIENCE: Duration = Duration::from_secs(30);

/// How to ask.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which interface.
    pub endpoint: Endpoint,
    /// Which model; by default the first that the server lists.
    pub model: Option<String>,
    /// Answers may end before they have the length that is asked for.
    pub allow_eos: bool,
    /// Fields for every request, over all others.
    pub extra: Map<String, Value>,
    /// For a whole answer.
    pub timeout: Duration,
}

/// A server that answers.
#[derive(Debug)]
pub struct Server {
    pub(crate) line: Line,
    pub(crate) form: Form,
    pub(crate) counter: Counter,
}

impl Server {
    /// Asks a server for its models, which fields it takes and how it counts tokens.
    ///
    /// # Errors
    /// When it cannot be reached, or refuses even the plainest request.
    pub async fn find(client: Client, options: Options) -> Result<Server, Error> {
        let client = Arc::new(client);
        let model = match options.model {
            Some(model) => Some(model),
            None => first_model(&client).await?,
        };
        let Options { endpoint, allow_eos, extra, timeout, .. } = options;
        let dialect = Dialect { exact_length: !allow_eos, usage: true };
        let line = Line { client, endpoint, timeout };
        let form = Form { endpoint, model, dialect, extra };
        let mut server = Server { line, form, counter: Counter::Guess };
        server.find_dialect(allow_eos).await?;
        server.counter = Counter::find(&server).await?;
        Ok(server)
    }

    /// The model that is asked, if the server has names.
    pub fn model(&self) -> Option<&str> {
        self.form.model.as_deref()
    }

    /// The interface that is asked.
    pub fn endpoint(&self) -> Endpoint {
        self.form.endpoint
    }

    /// Address.
    pub fn url(&self) -> String {
        self.line.client.url()
    }

    /// Fields that the server takes.
    pub fn dialect(&self) -> Dialect {
        self.form.dialect
    }

    /// How prompts get their length: `tokenize`, `usage` or `guess`.
    pub fn counts_by(&self) -> &'static str {
        self.counter.name()
    }

    /// Tries the fields of few servers first, then without them.
    async fn find_dialect(&mut self, allow_eos: bool) -> Result<(), Error> {
        let known = [(true, true), (false, true), (false, false)];
        let mut refused = None;
        for (exact_length, usage) in known.into_iter().filter(|&(exact, _)| !(exact && allow_eos)) {
            self.form.dialect = Dialect { exact_length, usage };
            let record = self.once("Once upon a time", 2).await;
            match record.outcome {
                Outcome::Failed(f) if matches!(f.reason, Reason::Status(400 | 422)) => {
                    // The plainest refusal is that of the fullest request: later ones hide it.
                    refused.get_or_insert(f);
                }
                Outcome::Failed(f) => return Err(self.fault(f.reason, f.message)),
                // A server that lets the answer be empty does answer.
                Outcome::Done | Outcome::Unfinished => return Ok(()),
            }
        }
        let failure = refused.expect("every way was refused");
        Err(self.fault(failure.reason, failure.message))
    }

    fn fault(&self, reason: Reason, message: String) -> Error {
        let at = format!("{}{}", self.url(), self.form.endpoint.path());
        match reason {
            Reason::Status(status) => Error::Refused { at, status, message },
            Reason::Connect => Error::Unreachable { at: self.url(), reason: message },
            reason => Error::Answer { at, reason: format!("{reason}: {message}") },
        }
    }

    /// Asks once, outside of any run.
    pub(crate) async fn once(&self, text: &str, output: usize) -> Record {
        let prompt = Prompt::Text(text.to_owned());
        self.attend(&self.job(0, &prompt, None, output)).await
    }

    async fn attend(&self, job: &Job) -> Record {
        let clock = Instant::now();
        let mut record = Record::begin(job, None, clock);
        record.outcome = self.line.exchange(job.body.clone(), clock, &mut record).await;
        record
    }

    /// Asks one after another, so that a server has done everything once; gives the first failure.
    pub async fn warm_up(&self, asks: &[Ask], seed: u64) -> Option<crate::Failure> {
        for (id, ask) in asks.iter().enumerate() {
            let prompt = self.put_into_words(&ask.prompt, "", "warm-up", id, seed).await;
            let record = self.attend(&self.job(id, &prompt.0, prompt.1, ask.output)).await;
            if let Outcome::Failed(failure) = record.outcome {
                return Some(failure);
            }
        }
        None
    }

    pub(crate) fn job(
        &self,
        id: usize,
        prompt: &Prompt,
        input_asked: Option<usize>,
        output: usize,
    ) -> Job {
        let body = self.form.body(prompt, output);
        Job { id, intruder: false, body, input_asked, output_asked: output }
    }

    pub(crate) async fn post(&self, path: &str, body: Bytes) -> Result<(u16, Bytes), Fault> {
        self.line.client.fetch(Method::POST, path, body, PATIENCE).await
    }
}

/// The first model of the list; none where there is no list.
async fn first_model(client: &Client) -> Result<Option<String>, Error> {
    let at = format!("{}/v1/models", client.url());
    let (status, body) = match client.fetch(Method::GET, "/v1/models", Bytes::new(), PATIENCE).await
    {
        Ok(answer) => answer,
        Err(fault) => {
            let reason = fault.reason().to_owned();
            return Err(Error::Unreachable { at: client.url(), reason });
        }
    };
    match status {
        200 => {}
        404 | 405 => return Ok(None),
        _ => return Err(Error::Refused { at, status, message: words(&body) }),
    }
    let list: Value = serde_json::from_slice(&body).map_err(|_| Error::Answer {
        at: at.clone(),
        reason: "the answer is no JSON: is this an OpenAI-compatible server?".to_owned(),
    })?;
    match list.pointer("/data/0/id").and_then(Value::as_str) {
        Some(id) => Ok(Some(id.to_owned())),
        None => {
            Err(Error::Answer { at, reason: "the server has no model; name it by --model".into() })
        }
    }
}
