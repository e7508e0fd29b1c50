//! From a request to an answer on its way: template, tokens, grammar, submission.
//!
//! What takes time by the length of its input runs on threads for that, so that a long conversation
//! does not keep the streams of others waiting.

use super::answer::{Answer, PromptInfo};
use super::beside::beside;
use super::choice::{Choice, Reading};
use super::constrain;
use super::guide::Guide;
use super::images::{self, sees_nothing};
use super::request::{ChatRequest, Generation, TextPrompt, TextRequest, ToolChoice};
use super::shorten::fitting;
use crate::fault::Fault;
use crate::hold::Hold;
use crate::model::Model;
use crate::spans::AnswerSpan;
use crate::state::App;
use arclight_engine::{Constraint, Request, SamplerParams};
use chat::{
    Parser, ParserOptions, Tool, normalize_arguments, normalize_messages, normalize_tools,
    normalize_with_images, tell_tools,
};
use grammar::Matcher;
use std::sync::Arc;
use std::time::Instant;
use tokenizer::{DecodeOptions, EncodeOptions, Message, RenderOptions, Rendered};

/// What a request has become before it is submitted.
struct Prepared {
    prompts: Vec<PromptInfo>,
    decode: DecodeOptions,
    echo: bool,
    /// `None` if all that is written is text.
    parser: Option<ParserOptions>,
    one_call: bool,
    matcher: Option<Matcher>,
    /// The grammar waits until this mark closes the reasoning that the prompt has opened.
    after: Option<&'static str>,
    generation: Generation,
}

/// Starts to answer a conversation.
///
/// # Errors
/// When the request cannot be served; nothing is computed then.
pub(crate) async fn chat(app: &Arc<App>, mut request: ChatRequest) -> Result<Answer, Fault> {
    let model = app.model()?;
    tell_system(app, &mut request);
    complete_generation(app, &mut request.generation);
    decode_images(app, &model, &mut request).await?;
    let prepared = beside(model.clone(), move |model| prepare_chat(model, request)).await?;
    submit(app, &model, prepared, "chat")
}

/// Starts to continue texts.
///
/// # Errors
/// When the request cannot be served; nothing is computed then.
pub(crate) async fn complete(app: &Arc<App>, mut request: TextRequest) -> Result<Answer, Fault> {
    let model = app.model()?;
    complete_generation(app, &mut request.generation);
    let prepared = beside(model.clone(), move |model| prepare_text(model, request)).await?;
    submit(app, &model, prepared, "text_completion")
}

/// Starts to continue texts, each with an answer of its own. `seeds`: of each text's first choice; empty for the same.
///
/// # Errors
/// When one of them cannot be served; nothing is computed then.
pub(crate) async fn complete_each(
    app: &Arc<App>,
    mut request: TextRequest,
    seeds: Vec<u64>,
) -> Result<Vec<Answer>, Fault> {
    let model = app.model()?;
    complete_generation(app, &mut request.generation);
    let mut prepared = beside(model.clone(), move |model| prepare_text(model, request)).await?;
    let mut choices = begin(&model, &prepared, &seeds)?.into_iter();
    let prompts = std::mem::take(&mut prepared.prompts);
    let generation = &prepared.generation;
    let one = |prompt| {
        let own = choices.by_ref().take(generation.n).collect();
        answer(app, &model, own, vec![prompt], (generation, "text_completion"))
    };
    Ok(prompts.into_iter().map(one).collect())
}

/// What the model is told where a conversation has nothing of the system's.
fn tell_system(app: &App, request: &mut ChatRequest) {
    let told = |message: &Message| matches!(&*message.role, "system" | "developer");
    // What stands before was told already.
    if let Some(system) = app.options.system.as_deref()
        && request.before.is_empty()
        && !request.messages.iter().any(told)
    {
        let content = system.into();
        request
            .messages
            .insert(0, Message { role: "system".into(), content, ..Message::default() });
    }
}

async fn decode_images(
    app: &App,
    model: &Hold<Model>,
    request: &mut ChatRequest,
) -> Result<(), Fault> {
    let images = std::mem::take(&mut request.images);
    request.images = images::decode(model, images, &app.now().media).await?;
    Ok(())
}

/// How an answer ends where the request does not say.
fn complete_generation(app: &App, generation: &mut Generation) {
    if generation.stop.is_empty() {
        generation.stop.clone_from(&app.options.stop);
    }
    generation.limit = generation.limit.or(app.options.answer_limit);
}

/// The prompt that a conversation becomes, as text.
///
/// # Errors
/// When the model has no template or it refuses the messages.
pub(crate) async fn prompt_text(app: &Arc<App>, mut request: ChatRequest) -> Result<String, Fault> {
    tell_system(app, &mut request);
    let text = move |model: &Model| Ok(render(model, &mut request)?.plain().into_owned());
    beside(app.model()?, text).await
}

/// The tokens of a conversation's prompt.
///
/// # Errors
/// When the model has no template or it refuses the messages.
pub(crate) async fn count(app: &Arc<App>, mut request: ChatRequest) -> Result<Vec<u32>, Fault> {
    tell_system(app, &mut request);
    let model = app.model()?;
    decode_images(app, &model, &mut request).await?;
    let encode = move |model: &Model| {
        let text = render(model, &mut request)?;
        Ok(encode_chat(model, text, &request, usize::MAX)?.tokens)
    };
    beside(model, encode).await
}

/// The tokens of texts as they would be continued.
///
/// # Errors
/// When a text or a token cannot be, or the model fills no gaps and there is a suffix.
pub(crate) async fn prompt_tokens(
    app: &Arc<App>,
    prompts: Vec<TextPrompt>,
    suffix: Option<String>,
) -> Result<Vec<Vec<u32>>, Fault> {
    let encode = move |model: &Model| {
        let most = model.replicas.context();
        let all = encode_prompts(model, prompts, suffix.as_deref(), most)?;
        Ok(all.into_iter().map(|prompt| prompt.tokens).collect())
    };
    beside(app.model()?, encode).await
}

/// The tokens of a prompt that `write` makes of texts of a request, after those of an earlier exchange.
///
/// # Errors
/// When it has more tokens than the context holds, or cannot be encoded.
pub(crate) async fn written_tokens(
    app: &Arc<App>,
    before: Vec<u32>,
    mut texts: Vec<String>,
    write: impl FnOnce(&[String]) -> String + Send + 'static,
) -> Result<Vec<u32>, Fault> {
    let encode = move |model: &Model| {
        let escaper = model.escaper.as_ref();
        let escape = escaper.map(|escaper| escaper.escape_texts(&mut texts)).transpose()?.flatten();
        let prompt = Rendered { text: write(&texts), escape };
        bounded(model, &prompt.plain(), model.replicas.context())?;
        Ok(encode_after(model, &before, &prompt)?.tokens)
    };
    beside(app.model()?, encode).await
}

fn prepare_chat(model: &Model, mut request: ChatRequest) -> Result<Prepared, Fault> {
    let prompt = fitting(model, &mut request)?;
    if let Some(end) = model.template.as_ref().and_then(|template| template.end) {
        request.generation.stop.push(end.to_owned());
    }
    let format = &model.format;
    let thinking = format.prompt_opens_reasoning(&prompt.text);
    let tools = tools(model, &mut request)?;
    let calls = !tools.is_empty();
    let ChatRequest { tool_choice, parallel_tools, continue_last, generation, .. } = request;
    let (matcher, after) = constrain::chat(
        model,
        &prompt.text,
        &tools,
        &tool_choice,
        parallel_tools,
        generation.constraint.as_ref(),
        thinking,
    )?;
    let parser = (calls || format.has_reasoning()).then(|| ParserOptions {
        tools,
        reasoning: true,
        prompt_opens_reasoning: thinking,
    });
    Ok(Prepared {
        prompts: vec![prompt],
        decode: DecodeOptions {
            skip_special: !(parser.is_some() && format.needs_special()),
            continues: continue_last,
        },
        echo: false,
        parser,
        one_call: !parallel_tools,
        matcher,
        after,
        generation,
    })
}

/// The tools that the model may call.
fn tools(model: &Model, request: &mut ChatRequest) -> Result<Vec<Tool>, Fault> {
    if request.tool_choice == ToolChoice::None || request.tools.is_empty() {
        return Ok(Vec::new());
    }
    if !model.format.has_tools() {
        return Err(constrain::no_tools());
    }
    let tool = |mut tool: serde_json::Value| {
        let mut take = |field: &str| tool["function"].get_mut(field).map(serde_json::Value::take);
        let parameters = take("parameters").unwrap_or_default();
        let name = match take("name") {
            Some(serde_json::Value::String(name)) => name,
            _ => String::new(),
        };
        Tool { name, parameters }
    };
    Ok(std::mem::take(&mut request.tools).into_iter().map(tool).collect())
}

/// The prompt. The request is as it was afterwards, but for defaults in its tools; values are not copied more than they
/// must be, since they are many times as large as their text.
pub(super) fn render(model: &Model, request: &mut ChatRequest) -> Result<Rendered, Fault> {
    let template = model.template.as_ref().ok_or_else(|| {
        Fault::invalid("this model has no chat template: it continues texts (/v1/completions)")
            .code("no_chat_template")
    })?;
    let mut messages = request.messages.clone();
    let mut told = request.tool_choice != ToolChoice::None && !request.tools.is_empty();
    if template.needs.tools && template.needs.object_arguments {
        normalize_arguments(&mut messages, &template.needs);
    }
    // Before marks of the server's own are written into the messages.
    let tools = if told { &mut *request.tools } else { &mut [] };
    let escape = match &model.escaper {
        Some(escaper) => escaper.escape(&mut messages, tools, &mut request.variables)?,
        None => None,
    };
    let last = request.continue_last.then(|| messages.last().cloned()).flatten();
    if !template.needs.tools {
        if told && !model.format.has_tools() {
            return Err(constrain::no_tools());
        }
        tell_tools(&mut messages, tools, &model.format);
        told = false;
    }
    match (&model.processor, request.images.is_empty()) {
        (_, true) => normalize_messages(&mut messages, &template.needs),
        (Some(processor), false) => {
            normalize_with_images(&mut messages, &template.needs, processor.mark_in_text())
        }
        (None, false) => return Err(sees_nothing("messages")),
    }
    .map_err(|e| Fault::field("messages", e.to_string()))?;
    if told {
        normalize_tools(&mut request.tools, &template.needs);
    }
    let options = RenderOptions {
        add_generation_prompt: request.open_turn && !request.continue_last,
        tools: told.then(|| std::mem::take(&mut request.tools).into()),
        extra: std::mem::take(&mut request.variables),
        now: None,
        escape,
    };
    let rendered = template.program.render(&messages, &options);
    request.variables = options.extra;
    if let Some(serde_json::Value::Array(tools)) = options.tools {
        request.tools = tools;
    }
    if let Some(escape) = escape {
        tokenizer::unescape_values(escape, &mut request.tools, &mut request.variables);
    }
    let mut text = rendered?;
    if request.continue_last {
        cut_after_last(&mut text, last.as_ref())?;
    }
    Ok(Rendered { text, escape })
}

/// Takes away what the template wrote to close the last message.
fn cut_after_last(text: &mut String, last: Option<&Message>) -> Result<(), Fault> {
    let last = last.filter(|m| m.role == "assistant");
    let content = last.and_then(|m| m.content.as_str()).map(str::trim_end);
    let fault = |why| Fault::field("messages", why);
    let content = content.filter(|c| !c.is_empty()).ok_or_else(|| {
        fault("to be continued, the last message must be the assistant's and have text")
    })?;
    let at = text.rfind(content.trim_start()).ok_or_else(|| {
        fault("the chat template does not show the last message as it is, so it cannot go on")
    })?;
    text.truncate(at + content.trim_start().len());
    Ok(())
}

pub(super) fn encode_chat(
    model: &Model,
    prompt: Rendered,
    request: &ChatRequest,
    most: usize,
) -> Result<PromptInfo, Fault> {
    bounded(model, &prompt.plain(), most)?;
    let before = &request.before;
    if !request.images.is_empty() {
        if !before.is_empty() {
            let message = "tokens of an earlier exchange do not go with images";
            return Err(Fault::field("context", message));
        }
        return images::encode(model, &prompt, &request.images);
    }
    encode_after(model, before, &prompt)
}

/// The tokens of a rendered prompt, after those of an earlier exchange.
fn encode_after(model: &Model, before: &[u32], prompt: &Rendered) -> Result<PromptInfo, Fault> {
    // Templates write their control tokens, often BOS too; it is not doubled.
    let mut tokens = model.tokenizer.encode_rendered(&prompt.text, prompt.escape, true)?;
    if !before.is_empty() {
        // What stands before has begun with it already.
        let bos = tokens.first().is_some_and(|&first| Some(first) == model.tokenizer.bos());
        tokens.splice(..usize::from(bos), before.iter().copied());
    }
    let text = prompt.plain().into_owned();
    Ok(PromptInfo { text, tokens, images: Vec::new(), added: 0 })
}

fn prepare_text(model: &Model, request: TextRequest) -> Result<Prepared, Fault> {
    let TextRequest { prompts, suffix, echo, generation } = request;
    let most = if generation.keep_last.is_some() { usize::MAX } else { model.replicas.context() };
    let constraint = generation.constraint.as_ref();
    let matcher = constraint.map(|c| constrain::compile(model, &c.field, &c.spec)).transpose()?;
    let mut prompts = encode_prompts(model, prompts, suffix.as_deref(), most)?;
    if let Some(most) = generation.keep_last {
        prompts.iter_mut().for_each(|prompt| keep_last(model, prompt, most));
    }
    Ok(Prepared {
        prompts,
        decode: DecodeOptions { skip_special: true, continues: true },
        echo,
        parser: None,
        one_call: false,
        matcher,
        after: None,
        generation,
    })
}

/// Texts as tokens. Those that have more than `most` of them are refused early where that is cheap.
fn encode_prompts(
    model: &Model,
    prompts: Vec<TextPrompt>,
    suffix: Option<&str>,
    most: usize,
) -> Result<Vec<PromptInfo>, Fault> {
    let prompts = prompts.into_iter().enumerate().map(|(at, prompt)| match (prompt, suffix) {
        (TextPrompt::Text(text), None) => {
            bounded(model, &text, most)?;
            encode_text(model, text)
        }
        (TextPrompt::Text(text), Some(suffix)) => encode_gap(model, text, suffix),
        (TextPrompt::Tokens(_), Some(_)) => {
            Err(Fault::field("suffix", "a suffix goes with a prompt of text, not of tokens"))
        }
        (TextPrompt::Tokens(tokens), None) => known_tokens(model, tokens, "prompt", at),
    });
    prompts.collect()
}

/// Refuses a text that has more than `most` tokens however it is cut into them, before it is: no token of a
/// vocabulary of pairs stands for more bytes than its longest one.
fn bounded(model: &Model, text: &str, most: usize) -> Result<(), Fault> {
    match model.longest_token {
        Some(longest) if text.len() / longest.max(1) > most => {
            Err(Fault::too_long(text.len() / longest.max(1), most))
        }
        _ => Ok(()),
    }
}

/// Leaves the last tokens of a prompt.
fn keep_last(model: &Model, prompt: &mut PromptInfo, most: usize) {
    if prompt.tokens.len() > most {
        prompt.tokens.drain(..prompt.tokens.len() - most);
        prompt.text = model.tokenizer.decode(&prompt.tokens, false);
        prompt.added = 0;
    }
}

pub(super) fn encode_text(model: &Model, text: String) -> Result<PromptInfo, Fault> {
    let whole = EncodeOptions { add_special: true, parse_special: true };
    let tokens = model.tokenizer.encode(&text, whole)?;
    // BOS, unless the text spells it.
    let bos = model.tokenizer.bos();
    let added = bos.is_some()
        && tokens.first() == bos.as_ref()
        && bos
            .and_then(|bos| model.tokenizer.token_bytes(bos))
            .is_some_and(|bos| !text.as_bytes().starts_with(bos));
    Ok(PromptInfo { text, tokens, images: Vec::new(), added: usize::from(added) })
}

/// A text with a gap, for models that were trained to fill one: prefix, suffix, middle.
fn encode_gap(model: &Model, prefix: String, suffix: &str) -> Result<PromptInfo, Fault> {
    let fim = model.tokenizer.fim();
    let (Some(before), Some(after), Some(middle)) = (fim.prefix, fim.suffix, fim.middle) else {
        return Err(Fault::unsupported(
            "suffix",
            "this model was not trained to fill gaps: its vocabulary has no tokens for that",
        ));
    };
    let plain = |text: &str| model.tokenizer.encode(text, EncodeOptions::default());
    let begin = EncodeOptions { add_special: true, parse_special: false };
    let mut tokens = model.tokenizer.encode("", begin)?;
    // The end token that a model expects after every text must not stand before a gap.
    tokens.retain(|&token| Some(token) == model.tokenizer.bos());
    let added = tokens.len();
    tokens.push(before);
    tokens.extend(plain(&prefix)?);
    tokens.push(after);
    tokens.extend(plain(suffix)?);
    tokens.push(middle);
    Ok(PromptInfo { text: prefix, tokens, images: Vec::new(), added })
}

/// The tokens of a text that is no prompt, in which names of control tokens are text.
pub(super) fn encode_plain(model: &Model, text: &str) -> Result<Vec<u32>, Fault> {
    let parse_special = model.escaper.is_none();
    Ok(model.tokenizer.encode(text, EncodeOptions { add_special: true, parse_special })?)
}

/// Tokens that a request has in `field`, at position `at`.
pub(super) fn known_tokens(
    model: &Model,
    tokens: Vec<u32>,
    field: &str,
    at: usize,
) -> Result<PromptInfo, Fault> {
    let vocab = model.tokenizer.vocab_size();
    if let Some(token) = tokens.iter().find(|&&t| t as usize >= vocab) {
        let message = format!("token {token} of {field} {at} does not exist: there are {vocab}");
        return Err(Fault::field(field, message));
    }
    let text = model.tokenizer.decode(&tokens, false);
    Ok(PromptInfo { text, tokens, images: Vec::new(), added: 0 })
}

fn submit(
    app: &Arc<App>,
    model: &Hold<Model>,
    prepared: Prepared,
    operation: &'static str,
) -> Result<Answer, Fault> {
    let choices = begin(model, &prepared, &[])?;
    Ok(answer(app, model, choices, prepared.prompts, (&prepared.generation, operation)))
}

/// Begins the answers to all prompts, whose choices follow each other. `seeds`: of each prompt's first choice, where
/// they are not all the same.
fn begin(model: &Model, prepared: &Prepared, seeds: &[u64]) -> Result<Vec<Choice>, Fault> {
    let Prepared { prompts, generation, .. } = prepared;
    let vocab = model.tokenizer.vocab_size();
    if let Some(token) = generation.stop_tokens.iter().find(|&&t| t as usize >= vocab) {
        let message = format!("token {token} does not exist: there are {vocab}");
        return Err(Fault::field("stop_token_ids", message));
    }
    let choices = prompts.len() * generation.n;
    if choices > model.capacity() {
        let message = format!(
            "{choices} answers are wanted, and this server runs and queues {} at most",
            model.capacity()
        );
        return Err(Fault::field(if generation.n > 1 { "n" } else { "prompt" }, message));
    }
    let mut end_tokens = generation.stop_tokens.clone();
    // A grammar says where an answer ends, so nothing may come after it.
    if !generation.ignore_eos || prepared.matcher.is_some() {
        end_tokens.extend(model.tokenizer.eog_ids());
    }
    let echoed = generation.logprobs.filter(|_| prepared.echo);
    // A prompt is computed for a token of the answer; with a limit of 0 that token is not sent.
    let discard = generation.limit == Some(0) && echoed.is_some();
    let context = model.replicas.context();
    // The engine would give one token more than the context holds, which nothing can follow.
    let limit = |prompt: &PromptInfo| {
        let room = context.saturating_sub(prompt.tokens.len());
        generation.limit.map_or(room, |limit| limit.min(room))
    };
    let request = |(at, prompt): (usize, &PromptInfo), choice: usize| Request {
        sampler: SamplerParams {
            seed: seeds.get(at).unwrap_or(&generation.sampler.seed).wrapping_add(choice as u64),
            ..generation.sampler.clone()
        },
        limit: if discard { Some(1) } else { Some(limit(prompt)) },
        min_tokens: generation.min_tokens,
        end_tokens: end_tokens.clone(),
        constraint: prepared.guide(model),
        logprobs: generation.logprobs.filter(|_| !discard),
        prompt_logprobs: echoed,
        adapters: generation.adapters.clone(),
        affinity: generation.affinity,
        priority: generation.priority,
        client: generation.client,
        deadline: generation.deadline,
        images: prompt.images.clone(),
        ..Request::new(prompt.tokens.clone())
    };
    let requests: Vec<Request> = prompts
        .iter()
        .enumerate()
        .flat_map(|prompt| (0..generation.n).map(move |choice| (prompt, choice)))
        .map(|(prompt, choice)| request(prompt, choice))
        .collect();
    let lengths: Vec<usize> = requests.iter().map(|r| r.prompt.len()).collect();
    // Before: the first token may be there when the call returns.
    let submitted = Instant::now();
    let tickets = model.replicas.submit_all(requests)?;
    let choices = tickets.into_iter().zip(lengths).map(|(ticket, prompt_tokens)| {
        let parser = prepared.parser.as_ref();
        let reading = Reading {
            tokenizer: model.tokenizer.clone(),
            decode: prepared.decode,
            stop: generation.stop.clone(),
            thinking: parser.as_ref().is_some_and(|p| p.prompt_opens_reasoning),
            parser: parser.map(|options| Parser::new(&model.format, options)),
            one_call: prepared.one_call,
            prompt_tokens,
            submitted,
            discard,
        };
        Choice::new(ticket, reading)
    });
    Ok(choices.collect())
}

/// What choices belong to: the answer to some prompts.
fn answer(
    app: &App,
    model: &Model,
    choices: Vec<Choice>,
    prompts: Vec<PromptInfo>,
    (generation, operation): (&Generation, &'static str),
) -> Answer {
    let tokenizer = model.tokenizer.clone();
    let adapters = app.metrics.adapters.hold(&generation.adapters);
    let metrics = app.metrics.clone();
    let key = app.options.keys.of(generation.client);
    let trace = AnswerSpan::begin(operation, app.name());
    Answer::new(choices, prompts, tokenizer, (metrics, adapters, key), trace)
}

impl Prepared {
    /// The grammar for one choice.
    fn guide(&self, model: &Model) -> Option<Box<dyn Constraint>> {
        let matcher = self.matcher.clone()?;
        Some(Box::new(match self.after {
            Some(close) => Guide::after(close, matcher, model.tokenizer.clone()),
            None => Guide::new(matcher),
        }))
    }
}
