//! Clients that add and remove models, as Ollama's API has it: `/api/pull`, `/api/create`, `/api/copy`, `/api/delete`.
//!
//! The program that has the models does it, as a [`ModelKeeper`]; here is what is served of it.

use super::lifecycle::{Entry, apart, removed};
use super::progress::{Reader, Reporter};
use super::shapes::{CopyBody, CreateBody, DeleteBody, PullBody};
use super::{ModelEntry, Models};
use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::ollama::Recipe;
use crate::owned::owned;
use axum::extract::{Extension, FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// Characters of a model's name.
const LONGEST_NAME: usize = 200;

/// Pulls that run and wait.
const PULLS: usize = 8;

/// Changes other than pulls that run at once; each has a thread.
const WORKING: usize = 4;

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

/// `POST /api/pull`. It goes on if the client does not wait for its end; a client that asks for the same model follows
/// the pull that runs.
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
    let reader = models.begin_pull(keeper, name)?;
    reader.response(fields.stream.unwrap_or(true)).await
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
    let reserved = models.reserve(&name, true)?;
    let recipe = Recipe {
        from: Some(from),
        system: fields.system,
        template: fields.template.filter(|template| !template.is_empty()),
        parameters: fields.parameters.unwrap_or_default(),
        license: fields.license,
    };
    recipe.check_size()?;
    recipe.apply(&mut base.app.options.clone())?;
    let base = base.app.name().to_owned();
    let (reporter, reader) = Reporter::new();
    tokio::spawn(async move {
        reporter.status("writing manifest");
        let done = models.make(move || keeper.create(&name, &base, recipe)).await;
        drop(reserved);
        reporter.end(done);
    });
    reader.response(fields.stream.unwrap_or(true)).await
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
    let reserved = models.reserve(&to, true)?;
    let from = from.app.name().to_owned();
    owned(async move {
        let _reserved = reserved;
        models.make(move || keeper.copy(&from, &to)).await
    })
    .await
}

/// `DELETE /api/delete`: when its requests have ended, also if the client does not wait for that.
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
    let reserved = models.reserve(&name, false)?;
    keeper.may_delete(&name).map_err(refused)?;
    owned(async move {
        let _reserved = reserved;
        models.delete(keeper, entry).await
    })
    .await
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

/// Models that are being made or removed.
pub(super) struct Changes {
    /// Their names, and whether they are being made.
    names: Mutex<BTreeMap<String, bool>>,
    /// Pulls that run and wait, for clients that ask for the same.
    pulls: Mutex<BTreeMap<String, Reader>>,
    /// One pull runs at a time, so that none takes the room on the disk that another has checked.
    pulling: Semaphore,
    working: Semaphore,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes {
            names: Mutex::default(),
            pulls: Mutex::default(),
            pulling: Semaphore::new(1),
            working: Semaphore::new(WORKING),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name that only one change has, until it is dropped.
struct Reserved {
    models: Arc<Models>,
    name: String,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        lock(&self.models.changes.names).remove(&self.name);
        lock(&self.models.changes.pulls).remove(&self.name);
    }
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

    /// Reserves a name for a change.
    ///
    /// # Errors
    /// When another change has it; of a model that is made, when the name is not free, or clients have made too many.
    fn reserve(self: &Arc<Models>, name: &str, makes: bool) -> Result<Reserved, Fault> {
        let mut names = lock(&self.changes.names);
        if names.contains_key(name) {
            let message = format!("the model {name:?} is being made or deleted: try again later");
            let fault = Fault::new(StatusCode::CONFLICT, message).code("model_changing");
            return Err(Fault { retry_after: Some(1), ..fault });
        }
        if makes {
            self.check_free(name)?;
            let entries = self.entries();
            let made = entries.iter().filter(|entry| entry.made).map(|entry| entry.app.name());
            let making = names.iter().filter(|(_, makes)| **makes).map(|(name, _)| &**name);
            let all: BTreeSet<&str> = made.chain(making).filter(|one| *one != name).collect();
            let most = self.shared().machine.limits().made;
            if all.len() >= most {
                let message = format!(
                    "clients have made {} models, and {most} is the most that --max-managed-models allows: delete one \
                     first",
                    all.len()
                );
                return Err(Fault::new(StatusCode::CONFLICT, message).code("too_many_models"));
            }
        }
        names.insert(name.to_owned(), makes);
        Ok(Reserved { models: self.clone(), name: name.to_owned() })
    }

    /// Begins a pull, or follows one of the same model.
    fn begin_pull(
        self: &Arc<Models>,
        keeper: Arc<dyn ModelKeeper>,
        name: String,
    ) -> Result<Reader, Fault> {
        let mut pulls = lock(&self.changes.pulls);
        if let Some(reader) = pulls.get(&name) {
            return Ok(reader.clone());
        }
        if pulls.len() >= PULLS {
            let message = format!("{PULLS} models are being pulled already: try again later");
            let fault = Fault::new(StatusCode::TOO_MANY_REQUESTS, message).code("too_many_pulls");
            return Err(Fault { retry_after: Some(60), ..fault });
        }
        let reserved = self.reserve(&name, true)?;
        let (mut reporter, reader) = Reporter::new();
        pulls.insert(name.clone(), reader.clone());
        drop(pulls);
        let models = self.clone();
        tokio::spawn(async move {
            reporter.status("pulling manifest");
            let turn = match models.changes.pulling.try_acquire() {
                Ok(turn) => Ok(turn),
                Err(_) => {
                    reporter.status("waiting for another pull to end");
                    models.changes.pulling.acquire().await
                }
            };
            let work = move || {
                let made = keeper.pull(&name, &mut |step| reporter.step(step));
                Ok((reporter, made))
            };
            match apart(work).await {
                Ok((reporter, made)) => {
                    drop(turn);
                    let done = models.serve(made).await;
                    drop(reserved);
                    reporter.end(done);
                }
                Err(why) => tracing::error!("a pull has ended: {why}"),
            }
        });
        Ok(reader)
    }

    /// Has a model made on a thread of its own, and serves it.
    async fn make(
        self: &Arc<Models>,
        work: impl FnOnce() -> Result<ModelEntry, String> + Send + 'static,
    ) -> Result<(), Fault> {
        let turn = self.changes.working.acquire().await;
        let made = apart(work).await;
        drop(turn);
        self.serve(made).await
    }

    /// Serves a model that was made, in the place of one of the same name, whose requests end first.
    async fn serve(self: &Arc<Models>, made: Result<ModelEntry, String>) -> Result<(), Fault> {
        let made = made.inspect_err(|why| tracing::warn!("a model was not added: {why}"));
        let entry = self.shared().add(self.common(), made.map_err(refused)?);
        tracing::info!(model = entry.app.name(), "added");
        if let Some(before) = self.replace(entry) {
            self.release(&before).await?;
            self.forget(&before);
        }
        Ok(())
    }

    /// Removes a model: from the list, from memory, then for good. If that fails it is there as before.
    async fn delete(
        self: &Arc<Models>,
        keeper: Arc<dyn ModelKeeper>,
        entry: Arc<Entry>,
    ) -> Result<(), Fault> {
        let name = entry.app.name().to_owned();
        // It may have been deleted since it was looked for.
        let at = self.take_away(&entry).ok_or_else(|| removed(&name))?;
        self.release(&entry).await?;
        let turn = self.changes.working.acquire().await;
        let gone = apart(move || keeper.delete(&name)).await;
        drop(turn);
        match gone {
            Ok(()) => {
                self.forget(&entry);
                tracing::info!(model = entry.app.name(), "deleted");
                Ok(())
            }
            Err(why) => {
                self.put_back(&entry, at);
                Err(refused(why))
            }
        }
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
