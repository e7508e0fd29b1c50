//! Clients that add and remove models, as Ollama's API has it: `/api/pull`, `/api/create`, `/api/copy`, `/api/delete`.
//!
//! The program that has the models does it, as a [`ModelKeeper`]; here is what is served of it.

use super::lifecycle::{Entry, apart};
use super::{ModelEntry, Models};
use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::ollama::Recipe;
use axum::body::{Body as HttpBody, Bytes};
use axum::extract::{Extension, FromRequest, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, UnboundedSender};

/// Between two lines about the same file.
const PAUSE: Duration = Duration::from_millis(100);

/// Characters of a model's name.
const LONGEST_NAME: usize = 200;

/// How far the way of a model to this machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullStep {
    /// What happens now.
    Status(String),
    /// Bytes of a file that are here.
    File {
        /// SHA-256, as hexadecimal digits, if the site tells it.
        digest: Option<String>,
        /// Its name.
        name: String,
        /// Its bytes.
        total: u64,
        /// Those that are here.
        completed: u64,
    },
}

/// Adds models to those of a server and takes them away again, where that lasts.
pub trait ModelKeeper: Send + Sync {
    /// Brings a model by its name.
    ///
    /// # Errors
    /// In words for the client.
    fn pull(&self, name: &str, report: &mut dyn FnMut(PullStep)) -> Result<ModelEntry, String>;

    /// Makes a model of another.
    ///
    /// # Errors
    /// In words for the client.
    fn create(&self, name: &str, from: &str, recipe: Recipe) -> Result<ModelEntry, String>;

    /// Gives a model another name.
    ///
    /// # Errors
    /// In words for the client.
    fn copy(&self, from: &str, to: &str) -> Result<ModelEntry, String>;

    /// Whether a model can be removed.
    ///
    /// # Errors
    /// Why not, in words for the client.
    fn may_delete(&self, name: &str) -> Result<(), String>;

    /// Removes a model that is not loaded any more.
    ///
    /// # Errors
    /// In words for the client.
    fn delete(&self, name: &str) -> Result<(), String>;
}

/// A model to bring.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaPull")]
pub(crate) struct PullBody {
    /// OWNER/REPO, OWNER/REPO:QUANT, OWNER/REPO:FILE or a short name.
    #[schemars(required, length(min = 1))]
    model: Option<String>,
    /// The older name of `model`.
    name: Option<String>,
    /// Tell how far it is.
    #[schemars(extend("default" = true))]
    stream: Option<bool>,
}

/// A model to make of another.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaCreate")]
pub(crate) struct CreateBody {
    /// What it is called.
    #[schemars(required, length(min = 1))]
    model: Option<String>,
    /// The older name of `model`.
    name: Option<String>,
    /// The model that it is made from: one that the server has.
    #[schemars(required, length(min = 1))]
    from: Option<String>,
    /// What the model is told before a conversation.
    system: Option<String>,
    /// Its chat template, in Jinja.
    template: Option<String>,
    /// How tokens are chosen where a request does not say.
    #[schemars(with = "Option<Map<String, Json>>")]
    parameters: Option<Map<String, Json>>,
    /// A text, or several.
    license: Option<Json>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    files: Option<Json>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    adapters: Option<Json>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    messages: Option<Json>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    quantize: Option<Json>,
    /// Not supported: use the other fields.
    #[schemars(with = "Option<()>")]
    modelfile: Option<Json>,
    /// Tell how far it is.
    #[schemars(extend("default" = true))]
    stream: Option<bool>,
}

/// A model, and the name that it gets.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaCopy")]
pub(crate) struct CopyBody {
    /// The model's name.
    source: String,
    /// Its other name.
    destination: String,
}

/// The model to remove.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaDelete")]
pub(crate) struct DeleteBody {
    /// One of its names.
    #[schemars(required, length(min = 1))]
    model: Option<String>,
    /// The older name of `model`.
    name: Option<String>,
}

/// The end of a pull, or of making a model.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaProgress")]
pub(crate) struct Progress {
    /// What happens now; `success` at the end.
    status: String,
}

/// `POST /api/pull`. It goes on if the client does not wait for its end.
pub(super) async fn pull(
    State(models): State<Arc<Models>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Result<Response, Fault> {
    let keeper = models.keeper()?;
    let body = Body::from_request(request, models.common()).await?;
    let fields: PullBody = body.json().await?;
    let name = named(fields.model.or(fields.name))?;
    models.may(client, &[&name])?;
    models.check_free(&name)?;
    let work = move |tell: &UnboundedSender<Json>| {
        let mut last: Option<(String, Instant)> = None;
        let mut report = |step: PullStep| {
            let line = match step {
                PullStep::Status(status) => json!({"status": status}),
                PullStep::File { digest, name, total, completed } => {
                    let soon = last.as_ref().is_some_and(|(file, at)| {
                        *file == name && at.elapsed() < PAUSE && completed < total
                    });
                    if soon {
                        return;
                    }
                    last = Some((name.clone(), Instant::now()));
                    let mut line = json!({"status": format!("pulling {name}"), "total": total, "completed": completed});
                    if let Some(digest) = digest {
                        line["digest"] = format!("sha256:{digest}").into();
                    }
                    line
                }
            };
            // Nobody may be there any more.
            let _ = tell.send(line);
        };
        report(PullStep::Status("pulling manifest".to_owned()));
        keeper.pull(&name, &mut report)
    };
    models.make(fields.stream, work).await
}

/// `POST /api/create`.
pub(super) async fn create(
    State(models): State<Arc<Models>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Result<Response, Fault> {
    let keeper = models.keeper()?;
    let body = Body::from_request(request, models.common()).await?;
    let fields: CreateBody = body.json().await?;
    let name = named(fields.model.or(fields.name))?;
    for (field, value, instead) in [
        ("files", &fields.files, "put the file into the folder of models, or use /api/pull"),
        ("adapters", &fields.adapters, "start the server with --lora"),
        ("messages", &fields.messages, "send them with each request"),
        ("quantize", &fields.quantize, "use arclight quantize"),
        ("modelfile", &fields.modelfile, "use from, system, template and parameters"),
    ] {
        let empty = |value: &Json| {
            value.is_null() || *value == json!({}) || *value == json!([]) || *value == json!("")
        };
        if value.as_ref().is_some_and(|value| !empty(value)) {
            let message = format!("{field} is not supported: {instead}");
            return Err(Fault::unsupported(field, message));
        }
    }
    let from = fields.from.filter(|from| !from.is_empty());
    let from =
        from.ok_or_else(|| Fault::field("from", "from is missing: the model to make it of"))?;
    let base = models.meant(Some(&from)).map_err(|fault| fault.at("from"))?;
    models.may(client, &[&name, &from])?;
    models.check_free(&name)?;
    let recipe = Recipe {
        from: Some(from),
        system: fields.system,
        template: fields.template.filter(|template| !template.is_empty()),
        parameters: fields.parameters.unwrap_or_default(),
        license: fields.license,
    };
    recipe.apply(&mut base.app.options.clone())?;
    let base = base.app.name().to_owned();
    let work = move |tell: &UnboundedSender<Json>| {
        let _ = tell.send(json!({"status": "writing manifest"}));
        keeper.create(&name, &base, recipe)
    };
    models.make(fields.stream, work).await
}

/// `POST /api/copy`.
pub(super) async fn copy(
    State(models): State<Arc<Models>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Result<(), Fault> {
    let keeper = models.keeper()?;
    let body = Body::from_request(request, models.common()).await?;
    let fields: CopyBody = body.json().await?;
    let to = named(Some(fields.destination)).map_err(|fault| fault.at("destination"))?;
    let from = models.meant(Some(&fields.source)).map_err(|fault| fault.at("source"))?;
    models.may(client, &[&to, from.app.name()])?;
    models.check_free(&to)?;
    let from = from.app.name().to_owned();
    let entry = apart(move || keeper.copy(&from, &to)).await.map_err(refused)?;
    models.add(entry).await
}

/// `DELETE /api/delete`: when its requests have ended.
pub(super) async fn delete(
    State(models): State<Arc<Models>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Result<(), Fault> {
    let keeper = models.keeper()?;
    let body = Body::from_request(request, models.common()).await?;
    let fields: DeleteBody = body.json().await?;
    let asked = fields.model.or(fields.name).filter(|name| !name.is_empty());
    let asked = asked.ok_or_else(|| Fault::field("model", "model is missing"))?;
    let entry = models.meant(Some(&asked))?;
    let name = entry.app.name().to_owned();
    models.may(client, &[&name])?;
    if entry.pinned {
        let message = format!("{name:?} is pinned: it stays");
        return Err(Fault::field("model", message).code("pinned"));
    }
    keeper.may_delete(&name).map_err(refused)?;
    models.take_away(&entry);
    models.release(&entry).await?;
    let gone = apart(move || keeper.delete(&name)).await;
    if let Err(why) = gone {
        // It is there as before.
        models.write().push(entry);
        return Err(refused(why));
    }
    tracing::info!(model = entry.app.name(), "deleted");
    Ok(())
}

fn refused(why: String) -> Fault {
    Fault::invalid(why).code("model_not_changed")
}

/// A name that a model can have, without the tag that all have.
fn named(name: Option<String>) -> Result<String, Fault> {
    let fault = |why: &str| Fault::field("model", why.to_owned());
    let name = name.filter(|name| !name.is_empty()).ok_or_else(|| fault("model is missing"))?;
    let name = name.strip_suffix(":latest").unwrap_or(&name);
    let known = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
    let fine = name.len() <= LONGEST_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(known);
    if !fine {
        return Err(fault("a model's name has letters, digits and . _ - / :"));
    }
    Ok(name.to_owned())
}

/// The name of a model for people who gave it the tag.
fn line(value: &Json) -> Bytes {
    format!("{value}\n").into()
}

impl Models {
    /// What adds and removes models.
    fn keeper(&self) -> Result<Arc<dyn ModelKeeper>, Fault> {
        self.keeper.clone().ok_or_else(|| {
            let message = "models of this server cannot be changed: start it with --models-dir and \
                           --manage-models";
            Fault::new(StatusCode::NOT_IMPLEMENTED, message).code("not_supported")
        })
    }

    /// Whether the key of a client is for all these models.
    fn may(&self, client: Client, names: &[&str]) -> Result<(), Fault> {
        let Some(key) = self.common().options.keys.of(client.0) else { return Ok(()) };
        names.iter().try_for_each(|name| key.check(std::iter::once(*name)))
    }

    /// Whether a model can get a name: it is not that of one that cannot go.
    fn check_free(&self, name: &str) -> Result<(), Fault> {
        let Some(known) = self.find(name) else { return Ok(()) };
        let keeper = self.keeper()?;
        let other = known.app.name() != name;
        if other || known.pinned || keeper.may_delete(name).is_err() {
            let message = format!("there is a model with the name {name:?} that stays");
            return Err(Fault::field("model", message).code("name_taken"));
        }
        Ok(())
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Vec<Arc<Entry>>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_away(&self, entry: &Arc<Entry>) {
        self.write().retain(|one| !Arc::ptr_eq(one, entry));
    }

    /// Serves one more model, in the place of one of the same name.
    async fn add(self: &Arc<Models>, entry: ModelEntry) -> Result<(), Fault> {
        let entry = Arc::new(Entry::new(self.common(), entry));
        let name = entry.app.name().to_owned();
        let before = self.find(&name).filter(|before| before.app.name() == name);
        {
            let mut all = self.write();
            if let Some(before) = &before {
                all.retain(|one| !Arc::ptr_eq(one, before));
            }
            all.push(entry);
        }
        tracing::info!(model = name, "added");
        if let Some(before) = before {
            // Its requests end first.
            self.release(&before).await?;
        }
        Ok(())
    }

    /// Does what takes long on a thread of its own, tells of it line by line, and serves what has become of it.
    async fn make(
        self: &Arc<Models>,
        stream: Option<bool>,
        work: impl FnOnce(&UnboundedSender<Json>) -> Result<ModelEntry, String> + Send + 'static,
    ) -> Result<Response, Fault> {
        let (tell, mut lines) = mpsc::unbounded_channel::<Json>();
        let models = self.clone();
        let changed = tokio::spawn(async move {
            let told = tell.clone();
            let made = apart(move || work(&told)).await.map_err(refused);
            let done = match made {
                Ok(entry) => models.add(entry).await,
                Err(fault) => Err(fault),
            };
            let _ = tell.send(match &done {
                Ok(()) => json!({"status": "success"}),
                Err(fault) => {
                    tracing::warn!("a model was not added: {}", fault.message);
                    json!({"error": fault.message})
                }
            });
            done
        });
        if stream.unwrap_or(true) {
            let body = stream::unfold(lines, |mut lines| async move {
                let next = lines.recv().await?;
                Some((Ok::<_, Infallible>(line(&next)), lines))
            });
            let mut response = Response::new(HttpBody::from_stream(body));
            let kind = HeaderValue::from_static("application/x-ndjson");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            return Ok(response);
        }
        lines.close();
        let done = changed.await.unwrap_or_else(|_| Err(Fault::internal("it has panicked")));
        done?;
        let mut response = Response::new(HttpBody::from(json!({"status": "success"}).to_string()));
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_tag_that_all_have_and_stay_names() {
        let name = |text: &str| named(Some(text.to_owned())).ok();
        assert_eq!(name("qwen3:latest").as_deref(), Some("qwen3"));
        assert_eq!(name("hf.co/a/b:Q4_0").as_deref(), Some("hf.co/a/b:Q4_0"));
        for wrong in ["", "../a", "/a", "a b", "a\n", ".a", &"a".repeat(201)] {
            assert_eq!(name(wrong), None, "{wrong:?}");
        }
    }
}
