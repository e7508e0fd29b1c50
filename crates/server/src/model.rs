//! A model that can answer, and what its file says of texts.

use crate::error::Error;
use arclight_engine::{
    LoadOptions, LoadProgress, ModelFile, Pooling, ReplicaOptions, Replicas, Score,
};
use chat::{Family, Format, Needs};
use gguf::{Gguf, Value};
use grammar::Vocabulary;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;
use tokenizer::{ChatTemplate, Escaper, Tokenizer};
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
