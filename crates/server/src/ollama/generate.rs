//! `POST /api/generate`: a prompt in the model's template, in one of the request's, or as it stands.

use super::chat::with_images;
use super::options::Shared;
use super::prompt::{Prompt, Values};
use super::stream::{self, Kind, Lines};
use super::wire::{self, Head};
use crate::fault::Fault;
use crate::http::{Body, Client, Framing, respond};
use crate::model::Model;
use crate::normal::{self, Answer, ChatRequest, Generation, TextPrompt, TextRequest, ToolChoice};
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;
use std::sync::Arc;
use tokenizer::Message;

/// A prompt to answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaGenerate")]
pub(crate) struct GenerateBody {
    /// The prompt; without it the answer says that the model is loaded.
    prompt: Option<String>,
    /// What follows the gap that the answer fills.
    suffix: Option<String>,
    /// The message of the system.
    system: Option<String>,
    /// A part of Go's text/template, instead of the model's.
    template: Option<String>,
    /// Tokens of the exchange that the prompt follows.
    context: Option<Vec<u32>>,
    /// Give the prompt to the model as it stands.
    raw: Option<bool>,
    /// Images in base64.
    #[schemars(with = "Option<Vec<String>>")]
    images: Option<Vec<Json>>,
}

/// The endpoint.
pub(crate) async fn generate(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Fault> {
    let (fields, mut shared): (GenerateBody, Shared) = body.pair().await?;
    let mut head = Head::new(shared.check_model(&app)?);
    let model = app.model()?;
    let sees = fields.images.as_ref().is_some_and(|images| !images.is_empty());
    let suffix = fields.suffix.as_deref().filter(|suffix| !suffix.is_empty());
    if fields.prompt.as_deref().unwrap_or_default().is_empty() && suffix.is_none() {
        let mut object = head.loaded();
        object.insert("response".into(), "".into());
        return Ok(JsonBody(Json::Object(object)).into_response());
    }
    let raw = fields.raw.unwrap_or(false);
    let mut generation = shared.generation(&app, client)?;
    generation.room = body.into_room();
    let logprobs = generation.logprobs.is_some();
    let mut answer = start(&app, &model, fields, (&shared, generation)).await?;
    head.submitted(answer.submitted());
    // A raw prompt has no exchange to go on with, and tokens do not contain images.
    let tokenizer = (!raw && !sees).then(|| model.tokenizer.clone());
    if shared.stream.unwrap_or(true) {
        let lines = Lines::new(head, Kind::Generate(tokenizer), logprobs);
        return Ok(respond(answer, lines, Framing::Lines, app.options.ping));
    }
    let whole = answer.collect().await?.pop();
    let whole = whole.ok_or_else(|| Fault::internal("an answer has no choice"))?;
    let mut object = head.done(&whole.finish);
    if let Some(tokens) = tokenizer.and_then(|t| stream::exchange(&t, &answer, &whole.text)) {
        object.insert("context".into(), tokens.into());
    }
    object.insert("response".into(), whole.text.into());
    if !whole.reasoning.is_empty() {
        object.insert("thinking".into(), whole.reasoning.into());
    }
    if logprobs {
        object.insert("logprobs".into(), wire::logprobs(&whole.logprobs));
    }
    Ok(JsonBody(Json::Object(object)).into_response())
}

async fn start(
    app: &Arc<App>,
    model: &Model,
    fields: GenerateBody,
    (shared, generation): (&Shared, Generation),
) -> Result<Answer, Fault> {
    let raw = fields.raw.unwrap_or(false);
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    let prompt = fields.prompt.unwrap_or_default();
    let (system, suffix) = (some(fields.system), some(fields.suffix));
    let given = fields.images.filter(|images| !images.is_empty());
    let (template, context) = (some(fields.template), fields.context.unwrap_or_default());
    known(model, &context)?;
    // Where there is no template, there is no place for what only a template could show.
    let bare = if raw {
        Some("raw")
    } else if template.is_some() {
        None
    } else if suffix.is_some() {
        Some("a suffix without a template")
    } else if model.template.is_none() {
        Some("a model without a template")
    } else {
        None
    };
    if let Some(why) = bare {
        let given = [
            ("template", template.is_some()),
            ("system", system.is_some()),
            ("context", !context.is_empty()),
            ("images", given.is_some()),
        ];
        if let Some((field, _)) = given.iter().find(|(_, given)| *given) {
            return Err(Fault::field(*field, format!("{field} does not go with {why}")));
        }
        let prompts = vec![TextPrompt::Text(prompt)];
        let request = TextRequest { prompts, suffix, echo: false, generation };
        return normal::complete(app, request).await;
    }
    if let Some(template) = template {
        if given.is_some() {
            let message = "images do not go with a template of the request";
            return Err(Fault::field("images", message));
        }
        let template = Prompt::parse(&template)?;
        let texts = vec![prompt, system.unwrap_or_default(), suffix.unwrap_or_default()];
        let write = move |texts: &[String]| {
            let given =
                |at: usize| texts.get(at).map(String::as_str).filter(|text| !text.is_empty());
            let (system, suffix) = (given(1), given(2));
            template.render(&Values { system, prompt: given(0).unwrap_or_default(), suffix })
        };
        let tokens = normal::written_tokens(app, context, texts, write).await?;
        let prompts = vec![TextPrompt::Tokens(tokens)];
        let request = TextRequest { prompts, suffix: None, echo: false, generation };
        return normal::complete(app, request).await;
    }
    let system = system.map(|system| Message::new("system", system));
    let mut images = Vec::new();
    let content = with_images(prompt, given, ("images", &mut images))?;
    let asked = Message { content, ..Message::new("user", "") };
    let request = ChatRequest {
        messages: system.into_iter().chain([asked]).collect(),
        images,
        tools: Vec::new(),
        tool_choice: ToolChoice::None,
        parallel_tools: true,
        variables: shared.variables(app)?,
        open_turn: true,
        continue_last: false,
        before: context,
        shorten: false,
        generation,
    };
    normal::chat(app, request).await
}

fn known(model: &Model, tokens: &[u32]) -> Result<(), Fault> {
    let vocab = model.tokenizer.vocab_size();
    match tokens.iter().position(|&token| token as usize >= vocab) {
        Some(at) => {
            let message = format!("token {} does not exist: there are {vocab}", tokens[at]);
            Err(Fault::field(format!("context[{at}]"), message))
        }
        None => Ok(()),
    }
}
