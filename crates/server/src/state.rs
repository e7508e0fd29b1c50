//! What all requests share: options, figures and, once it is loaded, the model.

use crate::error::Error;
use crate::fault::Fault;
use crate::hold::{Hold, Owner};
use crate::http;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::page::Token;
use crate::recover;
use crate::responses::Store;
use crate::status::Watcher;
use arclight_engine::{
    LoadOptions, LoadProgress, ModelFile, Pooling, ReplicaOptions, Replicas, Score,
};
use chat::{Family, Format, Needs};
use gguf::{Gguf, Value};
use grammar::Vocabulary;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Instant, SystemTime};
use tokenizer::{ChatTemplate, Escaper, Tokenizer};
use tokio::sync::Notify;
use vision::Processor;

/// A model that can answer.
pub struct Model {
    pub(crate) replicas: Replicas,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// `None` if the file has none: it continues texts only.
    pub(crate) template: Option<Template>,
    /// How it marks reasoning and calls.
    pub(crate) format: Format,
    pub(crate) vocabulary: Vocabulary,
    /// Bytes that a token stands for at most; `None` if it may stand for any number.
    pub(crate) longest_token: Option<usize>,
    /// How its file says that texts become vectors; `None` if in a way that is not supported.
    pub(crate) pooling: Option<Pooling>,
    /// Whether it gives texts scores instead of vectors.
    pub(crate) score: Option<Score>,
    pub(crate) info: Info,
    /// What is made of pictures, if it sees any.
    pub(crate) processor: Option<Processor>,
    /// Keeps text of requests from being read as control tokens; `None` if it is to be.
    pub(crate) escaper: Option<Escaper>,
}

/// A chat template, and what conversations must look like for it.
pub(crate) struct Template {
    pub(crate) program: ChatTemplate,
    pub(crate) needs: Needs,
    /// The text behind which an answer is over, if no token says so.
    pub(crate) end: Option<&'static str>,
}

/// How a model talks, where its file does not say, or says it wrong.
#[derive(Clone, Debug, Default)]
pub struct ChatStyle {
    /// How it marks reasoning and calls. `None`: told from its template.
    pub family: Option<Family>,
    /// Its template's source. `None`: the file's.
    pub template: Option<String>,
    /// The text behind which an answer is over in that template, if there is one.
    pub end: Option<&'static str>,
    /// Names of control tokens in the text of requests are read as these tokens: in messages, tools, and texts
    /// that become vectors or scores.
    pub parse_special: bool,
}

/// The description of a model.
#[derive(Clone, Debug, Default)]
pub struct Info {
    /// Its architecture, as in `qwen3`.
    pub architecture: String,
    /// Values in all tensors.
    pub parameters: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// The block type that most of its bytes have, as in `Q4_K`.
    pub quantization: String,
    /// Tokens that it was trained to hold.
    pub trained_context: Option<u32>,
    /// The source of its chat template.
    pub template: Option<String>,
    /// What the file says about itself that is neither long nor a list.
    pub metadata: BTreeMap<String, Json>,
    /// How a query and a document are written for a model that ranks, with `{query}` and `{document}` in it.
    pub rank_template: Option<String>,
    /// When the file was written, if the system records it.
    pub modified: Option<SystemTime>,
}

impl Info {
    /// What a model's file says.
    pub fn read(file: &ModelFile, gguf: &Gguf<'_>) -> Info {
        let meta = gguf.metadata();
        let text = |key: &str| meta.opt_str(key).ok().flatten().map(str::to_owned);
        let architecture = text("general.architecture").unwrap_or_default();
        let context = format!("{architecture}.context_length");
        let (mut parameters, mut types) = (0, BTreeMap::new());
        for tensor in gguf.tensors() {
            parameters += tensor.elements() as u64;
            *types.entry(tensor.ty.to_string()).or_insert(0) += tensor.data.len();
        }
        let quantization = types.into_iter().max_by_key(|(_, bytes)| *bytes);
        let short = |value: &Value<'_>| match value {
            Value::Array(_) => None,
            Value::Str(text) => {
                let text = str::from_utf8(text).ok().filter(|text| text.len() <= 200);
                text.map(Json::from)
            }
            Value::Bool(yes) => Some(Json::from(*yes)),
            Value::U64(n) => Some(Json::from(*n)),
            // As it is printed: the shortest digits that give the same number.
            value => serde_json::from_str(&value.to_string()).ok(),
        };
        Info {
            parameters,
            bytes: file.bytes() as u64,
            quantization: quantization.map(|(ty, _)| ty).unwrap_or_default(),
            trained_context: meta.opt_u32(&context).ok().flatten(),
            template: text("tokenizer.chat_template"),
            rank_template: text("tokenizer.chat_template.rerank"),
            metadata: meta
                .iter()
                .filter_map(|(key, value)| Some((key.to_owned(), short(value)?)))
                .collect(),
            modified: file.path().metadata().and_then(|file| file.modified()).ok(),
            architecture,
        }
    }
}

/// What a model's file says of texts.
struct Text {
    tokenizer: Tokenizer,
    template: Option<Template>,
    format: Format,
    info: Info,
}

impl Text {
    fn read(file: &ModelFile, gguf: &Gguf<'_>, style: &ChatStyle) -> Result<Text, Error> {
        let fault = |source| Error::Tokenizer { path: file.path().to_owned(), source };
        let tokenizer = Tokenizer::from_gguf(gguf.metadata()).map_err(fault)?;
        let template = match &style.template {
            Some(source) => Some(ChatTemplate::for_gguf(gguf.metadata(), source)),
            None => ChatTemplate::from_gguf(gguf.metadata()).transpose(),
        };
        let template = template.transpose().map_err(fault)?.map(|program| {
            let needs = Needs::probe(&program);
            let token = |end: &str| tokenizer.token_to_id(end.as_bytes());
            let ends = |end: &str| token(end).is_some_and(|id| tokenizer.is_eog(id));
            Template { program, needs, end: style.end.filter(|end| !ends(end)) }
        });
        let mut info = Info::read(file, gguf);
        info.template = style.template.clone().or(info.template);
        let format = match style.family {
            Some(family) => Format::new(family, &tokenizer),
            None => {
                let source = info.template.as_deref().unwrap_or_default();
                let format = Format::detect(source, &tokenizer);
                let tools = template.as_ref().is_none_or(|template| template.needs.tools);
                let own = format.has_tools() || tools;
                if own { format } else { format.calling_as(Family::Hermes, &tokenizer) }
            }
        };
        Ok(Text { tokenizer, template, format, info })
    }
}

/// What a model can do, beside going on with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// It fills gaps in texts.
    pub(crate) insert: bool,
    /// It sees images of conversations.
    pub(crate) vision: bool,
    /// It calls tools.
    pub(crate) tools: bool,
    /// It thinks before it answers.
    pub(crate) thinking: bool,
}

impl Abilities {
    /// What a file says, without loading the model. `sees`: it has an image encoder.
    ///
    /// # Errors
    /// When the file's vocabulary or chat template cannot be used.
    pub fn read(file: &ModelFile, style: &ChatStyle, sees: bool) -> Result<Abilities, Error> {
        let text = Text::read(file, &file.gguf()?, style)?;
        Ok(Abilities::of(&text.tokenizer, text.template.is_some(), &text.format, sees))
    }

    fn of(tokenizer: &Tokenizer, chats: bool, format: &Format, sees: bool) -> Abilities {
        let fim = tokenizer.fim();
        Abilities {
            insert: fim.prefix.is_some() && fim.suffix.is_some() && fim.middle.is_some(),
            vision: chats && sees,
            tools: chats && format.has_tools(),
            thinking: chats && format.has_reasoning(),
        }
    }
}

impl Model {
    /// What it can do.
    pub(crate) fn abilities(&self) -> Abilities {
        let sees = self.replicas.sees();
        Abilities::of(&self.tokenizer, self.template.is_some(), &self.format, sees)
    }

    /// Loads a model: the tokenizer on a thread of its own, beside the weights. How it marks
    /// reasoning and calls is detected from its template, unless `style` says it. A model whose template knows no
    /// tools is told of them, and calls them, as Hermes does.
    ///
    /// # Errors
    /// When the file, the machine or the options do not allow it.
    pub fn load(
        file: &Arc<ModelFile>,
        options: &LoadOptions,
        serving: &ReplicaOptions,
        style: &ChatStyle,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Model, Error> {
        let gguf = file.gguf()?;
        let encoder = serving.encoder.as_deref();
        let processor = encoder.map(arclight_engine::processor).transpose()?;
        let (text, replicas) = std::thread::scope(|scope| {
            let text = scope.spawn(|| Text::read(file, &gguf, style));
            let replicas = Replicas::load(file, options, serving, progress);
            (text.join(), replicas)
        });
        // What is wrong with the model is more telling than what is wrong with its vocabulary.
        let replicas = replicas?;
        let text = text.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let Text { tokenizer, template, format, info } = text;
        let longest_token = tokenizer.longest_token();
        let escaper = (!style.parse_special).then(|| {
            let program = template.as_ref().map(|template| &template.program);
            let marker = processor.as_ref().map(Processor::marker);
            Escaper::new(&tokenizer, program, marker.as_slice())
        });
        let fault = |source| Error::Tokenizer { path: file.path().to_owned(), source };
        let escaper = escaper.transpose().map_err(fault)?;
        let tokenizer = Arc::new(tokenizer);
        let vocabulary = Vocabulary::new(tokenizer.clone());
        let pooling = Pooling::of(&gguf).ok();
        let score = Score::of(&gguf).ok().flatten();
        let model = Model {
            replicas,
            tokenizer,
            template,
            format,
            vocabulary,
            longest_token,
            pooling,
            score,
            info,
            processor,
            escaper,
        };
        Ok(model)
    }

    /// What it says of itself.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Answers that run and wait at most: no request can have more.
    pub(crate) fn capacity(&self) -> usize {
        let queue = self.replicas.queue();
        queue.map_or(usize::MAX, |queue| queue.saturating_add(self.replicas.slots()))
    }

    /// The engines.
    pub fn replicas(&self) -> &Replicas {
        &self.replicas
    }
}

/// How far the server is.
enum Phase {
    Loading,
    Ready(Owner<Model>),
    /// It has failed, why, and when it is loaded again.
    Failed(String, Instant),
    /// What runs still needs the model, if it was there already.
    Stopping {
        model: Option<Owner<Model>>,
    },
}

/// What can change while the server runs.
struct Now {
    options: Arc<Options>,
    /// Requests that may wait, if it was changed.
    queue: Option<Option<usize>>,
}

impl Now {
    fn new(options: &Options) -> RwLock<Now> {
        let options = Arc::new(options.clone());
        RwLock::new(Now { options, queue: None })
    }
}

/// What all requests share.
pub struct App {
    /// As the server was started.
    pub(crate) options: Options,
    now: RwLock<Now>,
    pub(crate) metrics: Arc<Metrics>,
    /// Statuses of all requests; of several models, those of the server alone.
    pub(crate) statuses: http::Statuses,
    /// When the server was started, in seconds since 1970.
    pub(crate) started: u64,
    /// Responses that can be gone on from.
    pub(crate) responses: Arc<Store>,
    /// What is remembered for `/status.json`.
    pub(crate) status: Watcher,
    /// Is notified when answers have ended or left a queue, and when models have been loaded or unloaded; one for all
    /// models.
    pub(crate) released: Arc<Notify>,
    /// Room for bodies, of all models.
    pub(crate) bodies: Arc<http::Bodies>,
    /// What the page has that other pages have not.
    pub(crate) token: Token,
    phase: RwLock<Phase>,
}

impl App {
    /// A server's state before its model is there.
    pub fn new(options: Options) -> App {
        App {
            bodies: Arc::new(http::Bodies::new(http::Bodies::units(
                options.body_limit,
                options.memory,
            ))),
            now: Now::new(&options),
            options,
            metrics: Arc::new(Metrics::default()),
            statuses: http::Statuses::default(),
            started: now(),
            responses: Arc::default(),
            released: Arc::default(),
            token: Token::random(),
            status: Watcher::default(),
            phase: RwLock::new(Phase::Loading),
        }
    }

    /// The state of another model of the same server.
    pub(crate) fn beside(&self, options: Options) -> App {
        App {
            now: Now::new(&options),
            options,
            metrics: Arc::new(Metrics::default()),
            statuses: http::Statuses::default(),
            started: self.started,
            responses: self.responses.clone(),
            released: self.released.clone(),
            bodies: self.bodies.clone(),
            token: self.token.clone(),
            status: Watcher::default(),
            phase: RwLock::new(Phase::Loading),
        }
    }

    /// Hands over the model: requests are served from now on, unless the server is about to end.
    pub fn ready(&self, model: Model) {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*phase, Phase::Loading | Phase::Failed(..)) {
            if let Some(queue) = self.changing().queue {
                model.replicas.set_queue(queue);
            }
            let released = self.released.clone();
            model.replicas.on_release(move || released.notify_waiters());
            *phase = Phase::Ready(Owner::new(model));
        }
        drop(phase);
        self.released.notify_waiters();
    }

    fn changing(&self) -> std::sync::RwLockReadGuard<'_, Now> {
        self.now.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The options as they are at this moment.
    pub(crate) fn now(&self) -> Arc<Options> {
        self.changing().options.clone()
    }

    /// Takes other limits, times and defaults of sampling for requests to come, and lets so many wait. Names, adapters,
    /// keys, origins, hosts and the folder of slots stay as they are.
    pub fn change(&self, options: Options, queue: Option<usize>) {
        let own = self.options.clone();
        let options = Options {
            names: own.names,
            adapters: own.adapters,
            keys: own.keys,
            origins: own.origins,
            hosts: own.hosts,
            slot_saves: own.slot_saves,
            measure_reads: own.measure_reads,
            ping: own.ping,
            memory: own.memory,
            ..options
        };
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        self.bodies.grow(http::Bodies::units(options.body_limit, options.memory));
        (now.options, now.queue) = (Arc::new(options), Some(queue));
        drop(now);
        if let Ok(model) = self.model() {
            model.replicas.set_queue(queue);
        }
    }

    /// Its adapters' names, by their numbers.
    pub fn adapter_names(&self) -> Vec<String> {
        self.options.adapters.iter().map(|one| one.name.clone()).collect()
    }

    /// Connections that it has at once.
    pub fn connections(&self) -> usize {
        self.options.connections
    }

    /// Takes no more requests. The model stays until the last of them has ended.
    pub(crate) fn stop(&self) {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        let model = match std::mem::replace(&mut *phase, Phase::Stopping { model: None }) {
            Phase::Ready(model) => Some(model),
            Phase::Stopping { model } => model,
            Phase::Loading | Phase::Failed(..) => None,
        };
        *phase = Phase::Stopping { model };
    }

    /// The model of a server that was stopped.
    pub(crate) fn take_stopped(&self) -> Option<Owner<Model>> {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        match &mut *phase {
            Phase::Stopping { model } => model.take(),
            Phase::Loading | Phase::Ready(_) | Phase::Failed(..) => None,
        }
    }

    /// Takes the model away, which can be handed over again.
    pub(crate) fn unload(&self) -> Option<Owner<Model>> {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *phase, Phase::Loading) {
            Phase::Ready(model) => Some(model),
            Phase::Loading | Phase::Failed(..) => None,
            stopping @ Phase::Stopping { .. } => {
                *phase = stopping;
                None
            }
        }
    }

    /// Takes no more requests, and does not keep the model.
    pub(crate) fn forget(&self) {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *phase, Phase::Stopping { model: None });
        drop(phase);
        // The end of a model takes long.
        drop(before);
    }

    /// Tells clients from now on that the model has failed, and when it is loaded again. The model, if it was there.
    pub(crate) fn fail(&self, why: &str, again: Instant) -> Option<Owner<Model>> {
        let model = self.unload();
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*phase, Phase::Loading | Phase::Failed(..)) {
            *phase = Phase::Failed(why.to_owned(), again);
        }
        model
    }

    /// Why the model does not work, if it has failed.
    pub(crate) fn failure(&self) -> Option<String> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Ready(model) => model.failure(),
            Phase::Failed(why, _) => Some(why.clone()),
            Phase::Loading | Phase::Stopping { .. } => None,
        }
    }

    /// Whether requests are still taken.
    ///
    /// # Errors
    /// When the server is about to end.
    pub(crate) fn check_running(&self) -> Result<(), Fault> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Stopping { .. } => Err(stopping()),
            Phase::Loading | Phase::Ready(_) | Phase::Failed(..) => Ok(()),
        }
    }

    /// The model.
    ///
    /// # Errors
    /// While it is being loaded, and when the server is about to end.
    pub(crate) fn model(&self) -> Result<Hold<Model>, Fault> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Loading => Err(Fault::unavailable("the model is being loaded").code("loading")),
            Phase::Ready(model) => Ok(model.hold()),
            Phase::Failed(why, again) => Err(recover::refused(why, *again)),
            Phase::Stopping { .. } => Err(stopping()),
        }
    }

    /// What the model and its adapters are called.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = &str> {
        let adapters = self.options.adapters.iter().map(|one| one.name.as_str());
        self.options.names.iter().map(String::as_str).chain(adapters)
    }

    /// The model's id on the wire.
    pub fn name(&self) -> &str {
        self.options.names.first().map_or("default", String::as_str)
    }

    /// Whether a request means this model, or one of its adapters; one that names none does.
    ///
    /// # Errors
    /// 404 for another name.
    pub(crate) fn check_name(&self, name: Option<&str>) -> Result<(), Fault> {
        match name {
            Some(_) if self.adapter(name).is_some() => Ok(()),
            Some(name) if !self.options.names.iter().any(|n| n == name) => Err(Fault {
                status: axum::http::StatusCode::NOT_FOUND,
                ..Fault::field(
                    "model",
                    format!("the model {name:?} does not exist: this server has {:?}", self.name()),
                )
                .code("model_not_found")
            }),
            _ => Ok(()),
        }
    }
}

fn stopping() -> Fault {
    Fault::unavailable("the server is shutting down").code("stopping")
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// A new id: a prefix and 24 letters and digits, as OpenAI's are.
pub(crate) fn id(prefix: &str) -> String {
    let random = std::iter::repeat_with(fastrand::alphanumeric);
    prefix.chars().chain(random.take(24)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_more_when_more_is_allowed() {
        let app = App::new(Options { body_limit: 1 << 20, ..Options::default() });
        // Of several models each is told.
        let beside = app.beside(Options { body_limit: 1 << 20, ..Options::default() });
        let free = app.bodies.free();
        let change = |body_limit| {
            for app in [&app, &beside] {
                app.change(Options { body_limit, ..Options::default() }, None);
            }
        };
        change(2 << 20);
        let more = app.bodies.free();
        assert!(more > free);
        // What arrives at this moment has room already, so none is taken away.
        change(1 << 20);
        change(2 << 20);
        assert_eq!(app.bodies.free(), more);
        assert_eq!(app.now().body_limit, 2 << 20);
    }
}
