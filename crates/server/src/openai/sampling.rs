//! Fields that chat completions and completions share: how tokens are chosen and how answers end.

use super::shapes;
use crate::adapters::AdapterScale;
use crate::fault::Fault;
use crate::http::{Client, Room};
use crate::lenient::{limit as limit_of, whole};
use crate::normal::{Constraint, Generation};
use crate::state::App;
use arclight_engine::SamplerParams;
use grammar::Spec;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Stop strings of a request, at most: all are searched for at every token.
const MOST_STOPS: usize = 64;
/// Log-probabilities of a token, as OpenAI allows.
const MOST_LOGPROBS: usize = 20;

/// The fields, as they stand in a request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Sampling {
    /// Number of answers.
    #[schemars(range(min = 1, max = 128))]
    #[serde(default, deserialize_with = "whole")]
    n: Option<usize>,
    /// Divisor of the logits; 0 takes the likeliest token.
    #[schemars(range(min = 0))]
    temperature: Option<f32>,
    /// Share of the probability from which tokens are drawn.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    top_p: Option<f32>,
    /// Number of likeliest tokens to draw from; 0 and -1 mean all.
    #[schemars(range(min = -1))]
    #[serde(default, deserialize_with = "whole")]
    top_k: Option<i64>,
    /// Least probability of a token as a share of the likeliest one's.
    #[schemars(range(min = 0, max = 1))]
    min_p: Option<f32>,
    /// Factor against tokens of the prompt and the answer; 1 is none.
    #[schemars(extend("exclusiveMinimum" = 0))]
    repetition_penalty: Option<f32>,
    /// The same as `repetition_penalty`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    repeat_penalty: Option<f32>,
    /// Last tokens that the factor is against: -1 for all, 0 for none.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(range(min = -1))]
    repeat_last_n: Option<i64>,
    /// Taken off the logits of tokens that the answer has.
    presence_penalty: Option<f32>,
    /// Taken off the logit of a token for each time that the answer has it.
    frequency_penalty: Option<f32>,
    /// Seed of the random numbers: the same seed gives the same answer.
    #[serde(default, deserialize_with = "whole")]
    seed: Option<i64>,
    /// Texts that end the answer.
    #[schemars(with = "Option<shapes::Stop>")]
    stop: Option<Json>,
    /// Tokens that end the answer.
    stop_token_ids: Option<Vec<u32>>,
    /// Token ids, and what is added to their logits.
    #[schemars(extend(
        "propertyNames" = {"pattern": "^[0-9]+$"},
        "additionalProperties" = {"type": "number", "minimum": -100, "maximum": 100},
    ))]
    logit_bias: Option<Map<String, Json>>,
    /// Tokens before which the answer does not end.
    #[serde(default, deserialize_with = "whole")]
    min_tokens: Option<usize>,
    /// Go on after the model's end of text.
    ignore_eos: Option<bool>,
    /// Lower ones are served first.
    #[serde(default, deserialize_with = "whole")]
    priority: Option<i8>,
    /// Requests of one key go to the same replica.
    prompt_cache_key: Option<String>,
    /// The form of the answer.
    #[schemars(with = "Option<shapes::ResponseFormat>")]
    response_format: Option<Json>,
    /// The form of the answer, in one of these ways.
    #[schemars(with = "Option<shapes::StructuredOutputs>")]
    structured_outputs: Option<Map<String, Json>>,
    /// A JSON schema that the answer fits, or its text.
    #[schemars(extend("type" = ["object", "string", "null"]))]
    guided_json: Option<Json>,
    /// A regular expression that the answer matches.
    #[schemars(with = "Option<String>")]
    guided_regex: Option<Json>,
    /// The answers to choose from.
    #[schemars(with = "Option<Vec<String>>", length(min = 1))]
    guided_choice: Option<Json>,
    /// A grammar of the answer, in Lark.
    #[schemars(with = "Option<String>")]
    guided_grammar: Option<Json>,
    /// A grammar of the answer, in llama.cpp's GBNF.
    grammar: Option<String>,
    /// A JSON schema that the answer fits.
    #[schemars(extend("type" = ["object", "null"]))]
    json_schema: Option<Json>,
    /// Last tokens of the prompt that are read; -1 for as many as the context holds.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(range(min = -1))]
    truncate_prompt_tokens: Option<i64>,
    /// Not supported: 1 is off.
    #[schemars(extend("enum" = [1, null]))]
    typical_p: Option<f32>,
    /// Not supported: 1 is off.
    #[schemars(extend("enum" = [1, null]))]
    tfs_z: Option<f32>,
    /// Not supported: 0 is off.
    #[schemars(extend("enum" = [0, null]))]
    mirostat: Option<f32>,
    /// Not supported: 0 is off.
    #[schemars(extend("enum" = [0, null]))]
    mirostat_mode: Option<f32>,
    /// Not supported: 0 is off.
    #[schemars(extend("enum" = [0, null]))]
    dynatemp_range: Option<f32>,
    /// Not supported: 0 is off.
    #[schemars(extend("enum" = [0, null]))]
    dry_multiplier: Option<f32>,
    /// Not supported: 0 is off.
    #[schemars(extend("enum" = [0, null]))]
    xtc_probability: Option<f32>,
    /// Not supported: -1 is off.
    #[schemars(extend("enum" = [-1, null]))]
    top_n_sigma: Option<f32>,
    /// Not supported: 0 is off.
    #[schemars(extend("enum" = [0, null]))]
    top_a: Option<f32>,
    /// Not supported: 1 is off.
    #[schemars(extend("enum" = [1, null]))]
    length_penalty: Option<f32>,
    /// Not supported.
    #[schemars(extend("enum" = [false, null]))]
    use_beam_search: Option<bool>,
    /// Not supported: bar tokens with `logit_bias`.
    #[schemars(with = "Option<Vec<Json>>", length(max = 0))]
    bad_words: Option<Json>,
    /// Not supported: use `echo` with `logprobs` of `/v1/completions`.
    #[schemars(with = "Option<()>")]
    prompt_logprobs: Option<Json>,
    /// Only the same as `n`.
    #[serde(default, deserialize_with = "whole")]
    best_of: Option<usize>,
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// The adapters that the request has: no others.
    #[schemars(with = "Option<Vec<AdapterScale>>")]
    lora: Option<Json>,
}

impl Sampling {
    /// What they mean. `prompts` is how many there are, `limit` and `logprobs` what the endpoint's own
    /// fields say.
    ///
    /// # Errors
    /// When a value cannot be, or cannot be honoured.
    pub(crate) fn generation(
        mut self,
        app: &App,
        client: Client,
        prompts: usize,
        limit: Option<usize>,
        logprobs: Option<usize>,
    ) -> Result<Generation, Fault> {
        let n = self.n.unwrap_or(1);
        let most = app.now().choices;
        if n == 0 || n.saturating_mul(prompts) > most {
            return Err(Fault::field(
                "n",
                format!("n must be from 1 to {}", (most / prompts.max(1)).max(1)),
            ));
        }
        if self.best_of.is_some_and(|best| best != n) {
            let message = "best_of must be n: choosing among more answers is not supported";
            return Err(Fault::unsupported("best_of", message));
        }
        if logprobs.is_some_and(|n| n > MOST_LOGPROBS) {
            let message = format!("at most {MOST_LOGPROBS} log-probabilities can be given a token");
            return Err(Fault::field("logprobs", message));
        }
        self.refuse()?;
        let sampler = self.sampler(app)?;
        let keep_last = match limit_of("truncate_prompt_tokens", self.truncate_prompt_tokens)? {
            None if self.truncate_prompt_tokens.is_none() => None,
            None => Some(app.model()?.replicas.context()),
            Some(0) => {
                let message = "truncate_prompt_tokens must be at least 1, or -1";
                return Err(Fault::field("truncate_prompt_tokens", message));
            }
            some => some,
        };
        let constraint = self.constraint()?;
        let adapters = app.adapters(self.model.as_deref(), self.lora.as_ref())?;
        let stop = strings("stop", self.stop.as_ref())?;
        if stop.len() > MOST_STOPS {
            return Err(Fault::field("stop", format!("at most {MOST_STOPS} stop strings")));
        }
        Ok(Generation {
            n,
            sampler,
            limit,
            keep_last,
            min_tokens: self.min_tokens.unwrap_or(0),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            stop,
            stop_tokens: self.stop_token_ids.unwrap_or_default(),
            logprobs,
            constraint,
            adapters,
            // As vLLM has it, lower ones are served first here.
            priority: client.priority(-self.priority.unwrap_or(0).max(-i8::MAX)),
            affinity: self.prompt_cache_key.map(|key| {
                let mut hasher = DefaultHasher::new();
                key.hash(&mut hasher);
                hasher.finish()
            }),
            client: client.0,
            deadline: client.deadline(app.now().request_timeout),
            room: Room::default(),
        })
    }

    /// Fields of other servers that are known and cannot be honoured here, where they would do something.
    fn refuse(&self) -> Result<(), Fault> {
        let off = [
            ("typical_p", self.typical_p, 1.0),
            ("tfs_z", self.tfs_z, 1.0),
            ("mirostat", self.mirostat, 0.0),
            ("mirostat_mode", self.mirostat_mode, 0.0),
            ("dynatemp_range", self.dynatemp_range, 0.0),
            ("dry_multiplier", self.dry_multiplier, 0.0),
            ("xtc_probability", self.xtc_probability, 0.0),
            ("top_n_sigma", self.top_n_sigma, -1.0),
            ("top_a", self.top_a, 0.0),
            ("length_penalty", self.length_penalty, 1.0),
        ];
        if let Some((field, _, off)) =
            off.iter().find(|(_, value, off)| value.is_some_and(|v| v != *off))
        {
            let message =
                format!("{field} is not supported: leave it out, or use {off}, which is off");
            return Err(Fault::unsupported(*field, message));
        }
        let given = |value: &Option<Json>| {
            value
                .as_ref()
                .is_some_and(|v| !v.is_null() && v.as_array().is_none_or(|v| !v.is_empty()))
        };
        let refused = [
            ("use_beam_search", self.use_beam_search == Some(true), "answers are sampled here"),
            ("bad_words", given(&self.bad_words), "bar tokens with logit_bias"),
            (
                "prompt_logprobs",
                given(&self.prompt_logprobs),
                "use echo with logprobs of /v1/completions",
            ),
        ];
        match refused.iter().find(|(_, refused, _)| *refused) {
            Some((field, _, why)) => {
                Err(Fault::unsupported(*field, format!("{field} is not supported: {why}")))
            }
            None => Ok(()),
        }
    }

    fn sampler(&self, app: &App) -> Result<SamplerParams, Fault> {
        let options = app.now();
        let default = &options.sampler;
        let top_k = match self.top_k {
            None => default.top_k,
            // Several clients say -1 for all.
            Some(-1) => 0,
            Some(k) => usize::try_from(k)
                .map_err(|_| Fault::field("top_k", "top_k must be 0 or -1 for all, or more"))?,
        };
        let params = SamplerParams {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k,
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            repetition_penalty: self
                .repetition_penalty
                .or(self.repeat_penalty)
                .unwrap_or(default.repetition_penalty),
            repetition_window: match self.repeat_last_n {
                None => default.repetition_window,
                some => limit_of("repeat_last_n", some)?,
            },
            presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
            seed: self.seed.map_or_else(|| fastrand::u64(..), |seed| seed as u64),
            logit_bias: self.logit_bias(app)?,
        };
        params.check()?;
        Ok(params)
    }

    /// Token ids as text, and what is added to their logits.
    fn logit_bias(&self, app: &App) -> Result<Vec<(u32, f32)>, Fault> {
        let Some(bias) = &self.logit_bias else { return Ok(Vec::new()) };
        let vocab = app.model()?.tokenizer.vocab_size();
        let entry = |(token, value): (&String, &Json)| {
            let at = || format!("logit_bias.{token}");
            let id = token.parse().ok().filter(|&id: &u32| (id as usize) < vocab);
            let id = id.ok_or_else(|| {
                Fault::field(at(), format!("{token:?} is no token id: ids are below {vocab}"))
            })?;
            let value = value.as_f64().filter(|v| (-100.0..=100.0).contains(v));
            let value = value.ok_or_else(|| Fault::field(at(), "a bias is from -100 to 100"))?;
            Ok((id, value as f32))
        };
        bias.iter().map(entry).collect()
    }

    /// What the answer must look like; of several ways to say it only one may be used.
    fn constraint(&mut self) -> Result<Option<Constraint>, Fault> {
        let mut found = Vec::new();
        let mut add = |field: &str, spec| found.push(Constraint { field: field.to_owned(), spec });
        if let Some(grammar) = self.grammar.take().filter(|grammar| !grammar.is_empty()) {
            add("grammar", Spec::Gbnf(grammar));
        }
        if let Some(schema) = self.json_schema.take().filter(|schema| !schema.is_null()) {
            add("json_schema", spec("json_schema", "json", schema)?);
        }
        if let Some(format) = self.response_format.take()
            && let Some(spec) = response_format(format)?
        {
            add("response_format", spec);
        }
        let guided = [
            ("guided_json", "json", self.guided_json.take()),
            ("guided_regex", "regex", self.guided_regex.take()),
            ("guided_choice", "choice", self.guided_choice.take()),
            ("guided_grammar", "grammar", self.guided_grammar.take()),
        ];
        for (field, kind, value) in guided {
            if let Some(value) = value {
                add(field, spec(field, kind, value)?);
            }
        }
        for (kind, value) in self.structured_outputs.take().into_iter().flatten() {
            if !value.is_null() {
                let field = format!("structured_outputs.{kind}");
                add(&field, spec(&field, &kind, value)?);
            }
        }
        match found.len() {
            0 | 1 => Ok(found.pop()),
            _ => {
                let (a, b) = (&found[0].field, &found[1].field);
                let message = format!("{a} and {b} exclude each other: use one");
                Err(Fault::field(b.as_str(), message))
            }
        }
    }
}

/// OpenAI's `response_format`; `None` for plain text.
pub(crate) fn response_format(mut format: Json) -> Result<Option<Spec>, Fault> {
    let field = "response_format";
    match format.get("type").and_then(Json::as_str) {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(Spec::JsonObject)),
        Some("json_schema") => {
            // OpenAI wraps it; some clients give the schema beside the type.
            let within = |format: &mut Json| format.get_mut("schema").map(Json::take);
            let schema = format.get_mut("json_schema").and_then(within);
            let schema = schema.or_else(|| within(&mut format));
            let schema = schema.filter(|s| s.is_object() || s.is_boolean()).ok_or_else(|| {
                let at = "response_format.json_schema.schema";
                Fault::field(at, format!("{at} is missing: it must be a JSON schema"))
            })?;
            Ok(Some(Spec::JsonSchema(schema)))
        }
        Some(other) => Err(Fault::field(
            "response_format.type",
            format!("{other:?} is not supported: use text, json_object or json_schema"),
        )),
        None => Err(Fault::field(field, "response_format must be an object with a type")),
    }
}

fn spec(field: &str, kind: &str, value: Json) -> Result<Spec, Fault> {
    let wrong = |need| Fault::field(field, format!("{field} must be {need}"));
    let text = |value: Json| match value {
        Json::String(text) => Ok(text),
        _ => Err(wrong("a string")),
    };
    match kind {
        "json" => match value {
            Json::String(text) => serde_json::from_str(&text)
                .map(Spec::JsonSchema)
                .map_err(|e| Fault::field(field, format!("{field} is not valid JSON: {e}"))),
            Json::Object(_) | Json::Bool(_) => Ok(Spec::JsonSchema(value)),
            _ => Err(wrong("a JSON schema")),
        },
        "regex" => text(value).map(Spec::Regex),
        "grammar" => text(value).map(Spec::Lark),
        "choice" => {
            let choices = strings(field, Some(&value))?;
            if choices.is_empty() {
                Err(wrong("a list of strings"))
            } else {
                Ok(Spec::Choice(choices))
            }
        }
        "json_object" => match value.as_bool() {
            Some(true) => Ok(Spec::JsonObject),
            _ => Err(wrong("true")),
        },
        _ => Err(Fault::unsupported(field, format!("{field} is not supported"))),
    }
}

/// A string or a list of strings.
pub(crate) fn strings(field: &str, value: Option<&Json>) -> Result<Vec<String>, Fault> {
    let wrong = || Fault::field(field, format!("{field} must be a string or a list of strings"));
    match value {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::String(text)) => Ok(vec![text.clone()]),
        Some(Json::Array(list)) => {
            list.iter().map(|s| s.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}
