//! Fields that chat and generate share: which model, how tokens are chosen, what the answer looks like.

use super::recipe::Recipe;
use crate::fault::Fault;
use crate::http::Client;
use crate::lenient::{limit, whole};
use crate::normal::{Constraint, Generation};
use crate::openai::sampling::strings;
use crate::openai::shapes;
use crate::options::Options as ServerOptions;
use crate::state::App;
use arclight_engine::SamplerParams;
use grammar::Spec;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

/// Log-probabilities of a token, as Ollama allows.
const MOST_LOGPROBS: usize = 20;

/// The shared fields, as they stand in a request. `keep_alive` is not among them: the model stays.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Shared {
    /// One of the model's names, or an adapter's.
    pub(super) model: Option<String>,
    /// Send the answer as it is made.
    #[schemars(extend("default" = true))]
    pub(super) stream: Option<bool>,
    /// The form of the answer: `json`, or a JSON schema.
    #[schemars(extend("anyOf" = [{"enum": ["", "json", null]}, {"type": "object"}]))]
    format: Option<Json>,
    /// How tokens are chosen and how the answer ends.
    options: Option<Options>,
    /// Whether to think, or how much.
    #[schemars(extend("enum" = [null, false, true, "low", "medium", "high"]))]
    think: Option<Json>,
    /// Give the log-probabilities of the answer's tokens.
    logprobs: Option<bool>,
    /// Likeliest tokens to give with each token; with `logprobs`.
    #[schemars(range(max = 20))]
    #[serde(default, deserialize_with = "whole")]
    top_logprobs: Option<usize>,
}

/// How tokens are chosen and how the answer ends. Options about loading models are not read: a model is loaded when
/// the server starts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaOptions")]
pub(super) struct Options {
    /// Tokens of the context; of more than the server has, those that it has.
    #[serde(default, deserialize_with = "whole")]
    num_ctx: Option<usize>,
    /// Most tokens of the answer; -1 and -2 mean the context.
    #[serde(default, deserialize_with = "whole")]
    num_predict: Option<i64>,
    /// Divisor of the logits; 0 takes the likeliest token.
    #[schemars(range(min = 0))]
    temperature: Option<f32>,
    /// Number of likeliest tokens to draw from; all if it is not above 0.
    #[serde(default, deserialize_with = "whole")]
    top_k: Option<i64>,
    /// Share of the probability from which tokens are drawn.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    top_p: Option<f32>,
    /// Least probability of a token as a share of the likeliest one's.
    #[schemars(range(min = 0, max = 1))]
    min_p: Option<f32>,
    /// Not supported: 1 is off.
    #[schemars(extend("enum" = [1, null]))]
    typical_p: Option<f32>,
    /// Not supported: 1 is off.
    #[schemars(extend("enum" = [1, null]))]
    tfs_z: Option<f32>,
    /// Not supported: 0 is off.
    #[schemars(extend("enum" = [0, null]))]
    #[serde(default, deserialize_with = "whole")]
    mirostat: Option<i64>,
    /// Factor against tokens of the prompt and the answer; 1 is none.
    #[schemars(extend("exclusiveMinimum" = 0))]
    repeat_penalty: Option<f32>,
    /// Last tokens that the factor is against: -1 for all, 0 for none.
    #[schemars(range(min = -1))]
    #[serde(default, deserialize_with = "whole")]
    repeat_last_n: Option<i64>,
    /// Taken off the logits of tokens that the answer has.
    presence_penalty: Option<f32>,
    /// Taken off the logit of a token for each time that the answer has it.
    frequency_penalty: Option<f32>,
    /// Seed of the random numbers: the same seed gives the same answer; -1 is none.
    #[serde(default, deserialize_with = "whole")]
    seed: Option<i64>,
    /// Texts that end the answer.
    #[schemars(with = "Option<shapes::Stop>")]
    stop: Option<Json>,
}

impl Recipe {
    /// Puts what it says into the options of a model; the context that it asks for.
    ///
    /// # Errors
    /// When a parameter cannot be, or cannot be honoured.
    pub fn apply(&self, options: &mut ServerOptions) -> Result<Option<usize>, Fault> {
        let read = Options::deserialize(Json::Object(self.parameters.clone()));
        let parameters =
            read.map_err(|e| Fault::field("parameters", format!("parameters: {e}")))?;
        options.system = self.system.clone().filter(|system| !system.is_empty());
        parameters.of_model(options)
    }
}

impl Shared {
    /// Checks the model's name.
    ///
    /// # Errors
    /// 404 if it is not this server's.
    pub(super) fn check_model(&self, app: &App) -> Result<String, Fault> {
        let name = self.model.as_deref().filter(|name| !name.is_empty());
        check_model(app, name)?;
        Ok(name.unwrap_or(app.name()).to_owned())
    }

    /// How answers are made.
    ///
    /// # Errors
    /// When a value cannot be, or cannot be honoured.
    pub(super) fn generation(&mut self, app: &App, client: Client) -> Result<Generation, Fault> {
        let mut generation = Generation::new(app, client);
        generation.adapters = app.adapters(self.model.as_deref(), None)?;
        if let Some(options) = &self.options {
            options.apply(app, &mut generation)?;
        }
        generation.constraint = match self.format.take() {
            None | Some(Json::Null) => None,
            Some(Json::String(word)) if word.is_empty() => None,
            Some(Json::String(word)) if word == "json" => Some(Spec::JsonObject),
            Some(schema @ Json::Object(_)) => Some(Spec::JsonSchema(schema)),
            Some(_) => {
                return Err(Fault::field("format", "format must be \"json\" or a JSON schema"));
            }
        }
        .map(|spec| Constraint { field: "format".into(), spec });
        generation.logprobs = match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (_, Some(n)) if n > MOST_LOGPROBS => {
                let message = format!("top_logprobs must be from 0 to {MOST_LOGPROBS}");
                return Err(Fault::field("top_logprobs", message));
            }
            (true, top) => Some(top.unwrap_or(0)),
            (false, _) => None,
        };
        Ok(generation)
    }

    /// Template variables that say how much to think. Without `think` the template decides.
    ///
    /// # Errors
    /// For what is neither yes or no nor a level, and for a model that does not think.
    pub(super) fn variables(&self, app: &App) -> Result<Map<String, Json>, Fault> {
        let mut variables = Map::new();
        let thinks = match &self.think {
            None | Some(Json::Null) => return Ok(variables),
            Some(Json::Bool(thinks)) => *thinks,
            Some(Json::String(level)) if matches!(level.as_str(), "low" | "medium" | "high") => {
                variables.insert("reasoning_effort".into(), level.as_str().into());
                true
            }
            Some(_) => {
                let message = "think must be true, false, \"low\", \"medium\" or \"high\"";
                return Err(Fault::field("think", message));
            }
        };
        if thinks && !app.model()?.format.has_reasoning() {
            let message = format!("{:?} does not support thinking", app.name());
            return Err(Fault::unsupported("think", message));
        }
        variables.insert("enable_thinking".into(), thinks.into());
        Ok(variables)
    }
}

impl Options {
    fn apply(&self, app: &App, generation: &mut Generation) -> Result<(), Fault> {
        self.refuse()?;
        let context = app.model()?.replicas.context();
        if let Some(asked) = self.num_ctx.filter(|&asked| asked > context) {
            tracing::info!(asked, context, "a request asks for a larger context than there is");
        }
        let sampler = &mut generation.sampler;
        self.sampler(sampler)?;
        if let Some(seed) = self.seed.filter(|&seed| seed != -1) {
            sampler.seed = seed as u64;
        }
        // -1 is without end, -2 as long as the context.
        generation.limit =
            self.num_predict.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
        generation.stop = strings("options.stop", self.stop.as_ref())?;
        generation.stop.retain(|stop| !stop.is_empty());
        Ok(())
    }

    /// How tokens are chosen, but for the seed.
    fn sampler(&self, sampler: &mut SamplerParams) -> Result<(), Fault> {
        let set = |to: &mut f32, value: Option<f32>| *to = value.unwrap_or(*to);
        set(&mut sampler.temperature, self.temperature);
        set(&mut sampler.top_p, self.top_p);
        set(&mut sampler.min_p, self.min_p);
        set(&mut sampler.repetition_penalty, self.repeat_penalty);
        set(&mut sampler.presence_penalty, self.presence_penalty);
        set(&mut sampler.frequency_penalty, self.frequency_penalty);
        if self.repeat_last_n.is_some() {
            sampler.repetition_window = limit("options.repeat_last_n", self.repeat_last_n)?;
        }
        if let Some(k) = self.top_k {
            // None of them: all of them.
            sampler.top_k = usize::try_from(k).unwrap_or(0);
        }
        Ok(sampler.check()?)
    }

    /// What holds for a model that has these as its parameters; the context that it asks for.
    ///
    /// # Errors
    /// When a value cannot be, or cannot be honoured.
    pub(super) fn of_model(&self, options: &mut ServerOptions) -> Result<Option<usize>, Fault> {
        self.refuse()?;
        if self.seed.is_some_and(|seed| seed != -1) {
            let message = "a model has no seed here: a request has";
            return Err(Fault::unsupported("parameters.seed", message));
        }
        self.sampler(&mut options.sampler)?;
        options.stop = strings("parameters.stop", self.stop.as_ref())?;
        options.stop.retain(|stop| !stop.is_empty());
        options.answer_limit =
            self.num_predict.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
        Ok(self.num_ctx.filter(|&tokens| tokens > 0))
    }

    /// What cannot be honoured here.
    fn refuse(&self) -> Result<(), Fault> {
        let off = [
            ("typical_p", self.typical_p.is_none_or(|p| p == 1.0)),
            ("tfs_z", self.tfs_z.is_none_or(|z| z == 1.0)),
            ("mirostat", self.mirostat.is_none_or(|m| m == 0)),
        ];
        if let Some((name, _)) = off.iter().find(|(_, off)| !off) {
            let field = format!("options.{name}");
            let message = format!("{field} is not supported: use top_k, top_p or min_p");
            return Err(Fault::unsupported(field, message));
        }
        Ok(())
    }
}

/// Whether a name means this model; one that names none does.
///
/// # Errors
/// 404 for another name.
pub(super) fn check_model(app: &App, name: Option<&str>) -> Result<(), Fault> {
    let known = app.check_name(name);
    match name.and_then(|name| name.strip_suffix(":latest")) {
        Some(untagged) if known.is_err() => app.check_name(Some(untagged)).and(Ok(())).or(known),
        _ => known,
    }
}
