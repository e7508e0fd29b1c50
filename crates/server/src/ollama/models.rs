//! What models there are: `/api/tags`, `/api/show`, `/api/ps`, `/api/version`.

use super::options::check_model;
use super::wire::rfc3339;
use crate::fault::Fault;
use crate::http::Body;
use crate::model::{Abilities, Info, Model};
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The version of Ollama whose API is spoken here: clients look at it before they use a feature.
const API: &str = "0.12.11";

/// What lists of models say about one. Names there always have a tag.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Tag {
    name: String,
    model: String,
    size: u64, // bytes
    digest: String,
    details: Map<String, Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    modified_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_vram: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_length: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OllamaModels")]
pub(crate) struct Models {
    models: Vec<Tag>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OllamaVersion")]
pub(crate) struct Version {
    version: &'static str,
    server: &'static str,
}

/// What a model's file says about itself.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OllamaModel")]
pub(crate) struct Shown {
    modelfile: String,
    /// How tokens are chosen where a request does not say, a line each.
    parameters: String,
    template: String,
    /// What the model is told before a conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    license: Json,
    details: Map<String, Json>,
    model_info: Map<String, Json>,
    capabilities: Vec<&'static str>,
    #[schemars(extend("format" = "date-time"))]
    modified_at: String,
}

impl Models {
    pub(crate) fn new(models: Vec<Tag>) -> Models {
        Models { models }
    }
}

/// `GET /api/tags`: the model under all its names.
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Result<JsonBody<Models>, Fault> {
    let model = app.model()?;
    let all = app.options.names.iter().map(|name| Tag::of_file(name, &model.info));
    Ok(JsonBody(Models::new(all.collect())))
}

/// `GET /api/ps`: it is loaded, on the CPU, and stays.
pub(crate) async fn ps(State(app): State<Arc<App>>) -> Result<JsonBody<Models>, Fault> {
    let model = app.model()?;
    Ok(JsonBody(Models::new(vec![Tag::of_loaded(app.name(), &model, None)])))
}

/// `GET /api/version`.
pub(crate) async fn version() -> JsonBody<Version> {
    JsonBody(Version { version: API, server: concat!("arclight ", env!("CARGO_PKG_VERSION")) })
}

/// The model to show.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaShow")]
pub(crate) struct ShowBody {
    /// One of the model's names.
    #[schemars(required, length(min = 1))]
    model: Option<String>,
    /// The older name of `model`.
    name: Option<String>,
}

/// `POST /api/show`: what the file says about itself.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    body: Body,
) -> Result<JsonBody<Shown>, Fault> {
    let fields: ShowBody = body.json().await?;
    let name = fields.name()?;
    check_model(&app, Some(&name))?;
    let model = app.model()?;
    Ok(JsonBody(Shown::of(&app, &name, &model.info, model.abilities())))
}

impl ShowBody {
    /// The name that is asked for.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn name(self) -> Result<String, Fault> {
        let name = self.model.or(self.name).filter(|name| !name.is_empty());
        name.ok_or_else(|| Fault::field("model", "model is missing"))
    }
}

impl Shown {
    /// A model of an app, loaded or not.
    pub(crate) fn of(app: &App, name: &str, info: &Info, abilities: Abilities) -> Shown {
        let options = &app.options;
        let mut metadata: Map<String, Json> =
            info.metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        metadata.insert("general.parameter_count".into(), info.parameters.into());
        Shown {
            modelfile: options.recipe.modelfile(name),
            parameters: parameters(app),
            template: info.template.clone().unwrap_or_default(),
            system: options.system.clone(),
            license: (options.recipe.license.clone())
                .or_else(|| metadata.get("general.license").cloned())
                .unwrap_or_else(|| "".into()),
            details: details(info),
            model_info: metadata,
            capabilities: capabilities(abilities),
            modified_at: modified(info),
        }
    }
}

/// How tokens are chosen where a request does not say, a line each.
fn parameters(app: &App) -> String {
    let options = app.now();
    let sampler = &options.sampler;
    let mut all: Vec<String> = [
        ("temperature", sampler.temperature.to_string()),
        ("top_k", sampler.top_k.to_string()),
        ("top_p", sampler.top_p.to_string()),
        ("min_p", sampler.min_p.to_string()),
        ("repeat_penalty", sampler.repetition_penalty.to_string()),
    ]
    .map(|(name, value)| format!("{name:<30} {value}"))
    .into();
    all.extend(app.options.stop.iter().map(|stop| format!("{:<30} {stop:?}", "stop")));
    all.extend(app.options.answer_limit.map(|limit| format!("{:<30} {limit}", "num_predict")));
    all.join("\n")
}

fn capabilities(abilities: Abilities) -> Vec<&'static str> {
    let Abilities { insert, vision, tools, thinking } = abilities;
    [
        ("completion", true),
        ("insert", insert),
        ("vision", vision),
        ("tools", tools),
        ("thinking", thinking),
    ]
    .into_iter()
    .filter_map(|(name, has)| has.then_some(name))
    .collect()
}

impl Tag {
    fn new(name: &str, info: &Info) -> Tag {
        let name = if name.contains(':') { name.to_owned() } else { format!("{name}:latest") };
        Tag {
            name: name.clone(),
            model: name,
            size: info.bytes,
            digest: digest(info),
            details: details(info),
            ..Tag::default()
        }
    }

    /// A model that there is.
    pub(crate) fn of_file(name: &str, info: &Info) -> Tag {
        Tag { modified_at: Some(modified(info)), ..Tag::new(name, info) }
    }

    /// A model that is loaded, until it `expires` if it does.
    pub(crate) fn of_loaded(name: &str, model: &Model, expires: Option<SystemTime>) -> Tag {
        /// A century, in which no server ends.
        const LONG: Duration = Duration::from_secs(100 * 365 * 86_400);
        Tag {
            expires_at: Some(rfc3339(expires.unwrap_or_else(|| SystemTime::now() + LONG))),
            size_vram: Some(0),
            context_length: Some(model.replicas.context()),
            ..Tag::new(name, &model.info)
        }
    }
}

fn details(info: &Info) -> Map<String, Json> {
    let pairs = [
        ("parent_model", "".into()),
        ("format", "gguf".into()),
        ("family", info.architecture.as_str().into()),
        ("families", json!([info.architecture])),
        ("parameter_size", short(info.parameters).into()),
        ("quantization_level", info.quantization.as_str().into()),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn modified(info: &Info) -> String {
    rfc3339(info.modified.unwrap_or(SystemTime::UNIX_EPOCH))
}

/// Tells models apart, as 64 hexadecimal digits: of what the file says about itself, not of its
/// bytes, which are too many to be read for that.
fn digest(info: &Info) -> String {
    (0..4_u64).fold(String::new(), |mut text, part| {
        let mut hasher = DefaultHasher::new();
        (part, &info.architecture, info.parameters, info.bytes).hash(&mut hasher);
        (&info.quantization, &info.template).hash(&mut hasher);
        info.metadata.iter().for_each(|(key, value)| (key, value.to_string()).hash(&mut hasher));
        let _ = write!(text, "{:016x}", hasher.finish());
        text
    })
}

/// A number of parameters as people write it.
fn short(count: u64) -> String {
    let count = count as f64;
    match [(1e9, "B"), (1e6, "M"), (1e3, "K")].iter().find(|(unit, _)| count >= *unit) {
        Some((unit, letter)) => format!("{:.1}{letter}", count / unit),
        None => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short() {
        assert_eq!(short(4_022_468_096), "4.0B");
        assert_eq!(short(596_049_920), "596.0M");
        assert_eq!(short(12), "12");
    }

    #[test]
    fn digests_tell_models_apart() {
        let one = Info { parameters: 1, ..Info::default() };
        let other = Info { parameters: 2, ..Info::default() };
        assert_eq!(digest(&one).len(), 64);
        assert_eq!(digest(&one), digest(&one.clone()));
        assert_ne!(digest(&one), digest(&other));
        assert_ne!(digest(&one)[..16], digest(&one)[16..32]);
    }
}
