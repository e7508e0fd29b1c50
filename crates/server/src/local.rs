//! Answers without a connection, for programs in the same process: the normal form, or a request of HTTP that no
//! socket carries.

use crate::fault::Fault;
use crate::hold::Hold;
use crate::http::{self, Client, Rank, Room, unguarded};
use crate::model::Model;
use crate::normal::{
    self, EmbedRequest, RankRequest, TextPrompt, TextRequest, beside, known, pooled_rows,
};
use crate::openai::chat;
use crate::openai::sampling::Sampling;
use crate::state::App;
use axum::http::{Method, Request, StatusCode};
use serde::Deserialize;
use std::sync::Arc;
use tower::ServiceExt;

pub use crate::normal::{
    Answer, Delta, Event, Finish, PromptInfo, Reason, TokenLogprob, TokenText, Whole, WholeCall,
};
pub use ::chat::Segment;
pub use arclight_engine::Rows;
pub use axum::body::BodyDataStream as Body;
pub use tokenizer::{EncodeOptions, Tokenizer};

/// Who asks: nobody else does.
const HERE: Client = Client(0, Rank::Live);

/// A text, as such or in tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// As such.
    Plain(String),
    /// In tokens.
    Tokens(Vec<u32>),
}

/// What stands in `fields` of [`App::ask`] beside how tokens are chosen.
#[derive(Debug, Default, Deserialize)]
struct Limits {
    #[serde(default)]
    max_tokens: Option<usize>,
    #[serde(default)]
    logprobs: Option<usize>,
    #[serde(default)]
    echo: Option<usize>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    seed: Option<i64>,
}

/// An answer of HTTP.
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its body, as it comes.
    pub body: Body,
}

impl App {
    /// Starts to continue texts, all in the same way: `fields` is a JSON object with the fields of a completion that
    /// say how tokens are chosen, and `max_tokens`, `logprobs`, and `echo` for as many of the prompt's tokens, which
    /// [`Answer::prompt_logprobs`] gives. Texts have different seeds if none is given.
    ///
    /// # Errors
    /// When one of them cannot be served; nothing is computed then.
    pub async fn ask(
        self: &Arc<Self>,
        texts: Vec<Text>,
        fields: &[u8],
    ) -> Result<Vec<Answer>, Fault> {
        let (limits, sampling): (Limits, Sampling) = http::pair(fields)?;
        self.check_name(limits.model.as_deref())?;
        let logprobs = limits.logprobs.max(limits.echo);
        let mut generation = sampling.generation(self, HERE, 1, limits.max_tokens, logprobs)?;
        let echo = limits.echo.is_some();
        generation.ignore_eos |= echo && limits.max_tokens == Some(0);
        let seed = |_: &Text| limits.seed.map_or_else(|| fastrand::u64(..), |seed| seed as u64);
        let seeds = texts.iter().map(seed).collect();
        let prompts = texts.into_iter().map(TextPrompt::from).collect();
        let request = TextRequest { prompts, suffix: None, echo, generation };
        normal::complete_each(self, request, seeds).await
    }

    /// Starts to answer a conversation: `body` is that of a chat completion.
    ///
    /// # Errors
    /// When it cannot be served; nothing is computed then.
    pub async fn converse(self: &Arc<Self>, body: &[u8]) -> Result<Answer, Fault> {
        let (fields, sampling) = http::pair(body)?;
        let request = chat::request(self, HERE, fields, sampling)?;
        normal::chat(self, request).await
    }

    /// The prompt of a conversation, as text and in tokens: `body` is that of a chat completion.
    ///
    /// # Errors
    /// When the model has no template, or it refuses the messages.
    pub async fn prompt_of(self: &Arc<Self>, body: &[u8]) -> Result<(String, Vec<u32>), Fault> {
        let request = || {
            let (fields, sampling) = http::pair(body)?;
            chat::request(self, HERE, fields, sampling)
        };
        let text = normal::prompt_text(self, request()?).await?;
        Ok((text, normal::count(self, request()?).await?))
    }

    /// Texts as vectors of length one, of their first `dimensions` values.
    ///
    /// # Errors
    /// When the model makes no vectors, or a text is too long and not to be cut.
    pub async fn vectors(
        &self,
        texts: Vec<Text>,
        dimensions: Option<usize>,
        truncate: bool,
        adapter: Option<&str>,
    ) -> Result<Vec<Vec<f32>>, Fault> {
        let texts = texts.into_iter().map(TextPrompt::from).collect();
        self.check_name(adapter)?;
        let adapters = self.adapters(adapter, None)?;
        let request = EmbedRequest { texts, dimensions, adapters, truncate, room: Room::default() };
        Ok(normal::embed(self, HERE, request).await?.vectors)
    }

    /// How well documents answer a query, by a model that ranks.
    ///
    /// # Errors
    /// When the model ranks nothing.
    pub async fn scores(&self, query: String, documents: Vec<String>) -> Result<Vec<f32>, Fault> {
        let request = RankRequest {
            query,
            documents: documents.into(),
            most: None,
            truncate: true,
            adapters: None,
            raw: false,
            room: Room::default(),
        };
        Ok(normal::rank(self, HERE, request).await?.scores)
    }

    /// Hidden states or logits of each token of a text: rows, one after the other, and how many there are.
    ///
    /// # Errors
    /// When the text cannot be read by this model.
    pub async fn rows(&self, text: Text, rows: Rows) -> Result<(Vec<f32>, usize), Fault> {
        let model = self.model()?;
        let encode = move |model: &Model| known(model, text.into());
        let tokens = beside(model.clone(), encode).await?;
        let count = tokens.len();
        Ok((pooled_rows(&model, tokens, rows).await?, count))
    }

    /// Answers a request of HTTP, as to a client without a key.
    pub async fn request(self: &Arc<Self>, method: Method, path: &str, body: Vec<u8>) -> Reply {
        let request = Request::builder().method(method).uri(path).extension(HERE);
        let request = match request.body(axum::body::Body::from(body)) {
            Ok(request) => request,
            Err(e) => {
                let fault = Fault::invalid(format!("{path} is no path: {e}"));
                return Reply {
                    status: fault.status,
                    body: axum::body::Body::from(fault.json().to_string()).into_data_stream(),
                };
            }
        };
        let response = match unguarded(self.clone()).oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (head, body) = response.into_parts();
        Reply { status: head.status, body: body.into_data_stream() }
    }

    /// The model's tokenizer.
    ///
    /// # Errors
    /// When the model is not there.
    pub fn tokenizer(&self) -> Result<Arc<Tokenizer>, Fault> {
        Ok(self.model()?.tokenizer.clone())
    }

    /// Takes no more requests, and frees the model when those that run have ended.
    pub fn close(&self) {
        self.forget();
    }

    /// The model, while it is there.
    ///
    /// # Errors
    /// When it is not.
    pub fn loaded(&self) -> Result<Hold<Model>, Fault> {
        self.model()
    }
}

impl From<Text> for TextPrompt {
    fn from(text: Text) -> TextPrompt {
        match text {
            Text::Plain(text) => TextPrompt::Text(text),
            Text::Tokens(tokens) => TextPrompt::Tokens(tokens),
        }
    }
}
