//! What models there are: `/api/tags`, `/api/show`, `/api/ps`, `/api/version`.

use super::options::check_model;
use super::wire::rfc3339;
use crate::fault::Fault;
use crate::http::Body;
use crate::state::{App, Info, Model};
use axum::Json as JsonBody;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The version of Ollama whose API is spoken here: clients look at it before they use a feature.
const API: &str = "0.12.11";

/// `GET /api/tags`: the model under all its names.
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Result<JsonBody<Json>, Fault> {
    let model = app.model()?;
    let one = |name: &String| {
        let mut entry = entry(name, &model.info);
        entry.insert("modified_at".into(), modified(&model.info).into());
        Json::Object(entry)
    };
    Ok(JsonBody(json!({"models": app.options.names.iter().map(one).collect::<Vec<_>>()})))
}

/// `GET /api/ps`: it is loaded, on the CPU, and stays.
pub(crate) async fn ps(State(app): State<Arc<App>>) -> Result<JsonBody<Json>, Fault> {
    /// A century, in which no server ends.
    const LONG: Duration = Duration::from_secs(100 * 365 * 86_400);
    let model = app.model()?;
    let mut entry = entry(app.name(), &model.info);
    entry.insert("expires_at".into(), rfc3339(SystemTime::now() + LONG).into());
    entry.insert("size_vram".into(), 0.into());
    entry.insert("context_length".into(), model.replicas.context().into());
    Ok(JsonBody(json!({"models": [entry]})))
}

/// `GET /api/version`.
pub(crate) async fn version() -> JsonBody<Json> {
    JsonBody(json!({"version": API, "server": concat!("arclight ", env!("CARGO_PKG_VERSION"))}))
}

#[derive(Debug, Deserialize)]
struct ShowBody {
    model: Option<String>,
    /// What `model` was called once.
    name: Option<String>,
}

/// `POST /api/show`: what the file says about itself.
pub(crate) async fn show(State(app): State<Arc<App>>, body: Body) -> Result<JsonBody<Json>, Fault> {
    let fields: ShowBody = body.json().await?;
    let name = fields.model.or(fields.name).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Fault::field("model", "model is missing"))?;
    check_model(&app, Some(&name))?;
    let model = app.model()?;
    let info = &model.info;
    let mut metadata: Map<String, Json> =
        info.metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    metadata.insert("general.parameter_count".into(), info.parameters.into());
    let template = info.template.as_deref().unwrap_or_default();
    Ok(JsonBody(json!({
        "modelfile": format!("FROM {name}\n"),
        "parameters": parameters(&app),
        "template": template,
        "license": metadata.get("general.license").cloned().unwrap_or_else(|| "".into()),
        "details": details(info),
        "model_info": metadata,
        "capabilities": capabilities(&model),
        "modified_at": modified(info),
    })))
}

/// How tokens are chosen where a request does not say, a line each.
fn parameters(app: &App) -> String {
    let sampler = &app.options.sampler;
    [
        ("temperature", sampler.temperature.to_string()),
        ("top_k", sampler.top_k.to_string()),
        ("top_p", sampler.top_p.to_string()),
        ("min_p", sampler.min_p.to_string()),
        ("repeat_penalty", sampler.repetition_penalty.to_string()),
    ]
    .map(|(name, value)| format!("{name:<30} {value}"))
    .join("\n")
}

fn capabilities(model: &Model) -> Vec<&'static str> {
    let fim = model.tokenizer.fim();
    let insert = fim.prefix.is_some() && fim.suffix.is_some() && fim.middle.is_some();
    let chats = model.template.is_some();
    [
        ("completion", true),
        ("insert", insert),
        ("tools", chats && model.format.has_tools()),
        ("thinking", chats && model.format.has_reasoning()),
    ]
    .into_iter()
    .filter_map(|(name, has)| has.then_some(name))
    .collect()
}

/// What lists of models tell about one. Names there always have a tag.
fn entry(name: &str, info: &Info) -> Map<String, Json> {
    let name = if name.contains(':') { name.to_owned() } else { format!("{name}:latest") };
    let mut entry = Map::new();
    entry.insert("name".into(), name.as_str().into());
    entry.insert("model".into(), name.into());
    entry.insert("size".into(), info.bytes.into());
    entry.insert("digest".into(), digest(info).into());
    entry.insert("details".into(), details(info));
    entry
}

fn details(info: &Info) -> Json {
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": info.architecture,
        "families": [info.architecture],
        "parameter_size": short(info.parameters),
        "quantization_level": info.quantization,
    })
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
