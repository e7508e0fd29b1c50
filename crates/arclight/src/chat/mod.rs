//! `arclight chat`: a conversation in the terminal.

mod commands;
mod input;
mod lines;
pub(crate) mod tools;

use crate::args::{ModelArg, SamplerArgs, count};
use crate::chat_template::{
    GivenTemplate, Rendering, TemplateArgs, escape, render, require_template,
};
use crate::error::Error;
use crate::images::{self, ImageArgs};
use crate::machine_args::MachineArgs;
use crate::screen::Screen;
use crate::session::{Answer, AnswerOptions, End, Session, report_speed, why};
use crate::speculate::SpeculateArgs;
use crate::term::note;
use crate::{interrupt, load, replace};
use arclight_engine::{LoadOptions, ModelFile, Prompt};
use clap::Args;
use commands::Command;
use input::Line;
use lines::Lines;
use serde_json::Value as Json;
use std::path::Path;
use tokenizer::{Escaper, Message};
use tools::{Call, Calling, Consent, McpArgs, ROUNDS, Servers};
use vision::Piece;

/// Talk with a model
#[derive(Args, Debug)]
#[command(after_help = format!("{}\n{EXAMPLES}", commands::HELP))]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    #[command(flatten)]
    pub(crate) template: TemplateArgs,
    /// Most tokens of an answer [default: as many as the context holds]
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub(crate) tokens: Option<usize>,
    /// Tokens that the conversation can have [default: the model's, if memory allows]
    #[arg(short, long, value_name = "TOKENS", value_parser = count)]
    pub(crate) ctx: Option<usize>,
    /// End an answer before this text; can be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    #[command(flatten)]
    pub(crate) sampler: SamplerArgs,
    #[command(flatten)]
    pub(crate) mcp: McpArgs,
    #[command(flatten)]
    pub(crate) speculate: SpeculateArgs,
    #[command(flatten)]
    pub(crate) images: ImageArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

const EXAMPLES: &str = "\
Examples:
  arclight chat                                    with the demo model
  arclight chat model.gguf --system 'Answer in one sentence.'
  arclight chat model.gguf --no-think --temp 0.6
  arclight chat model.gguf --mcp 'uvx mcp-server-time' --mcp-allow get_current_time";

/// The template that a model talks by.
fn template_source(args: &ChatArgs, file: &ModelFile) -> Result<String, Error> {
    if let Some(given) = &args.template.chat_template {
        return Ok(given.source().to_owned());
    }
    let gguf = file.gguf()?;
    let source = gguf.metadata().opt_str("tokenizer.chat_template").ok().flatten();
    Ok(source.unwrap_or_default().to_owned())
}

/// Runs the command.
pub(crate) fn run(args: &ChatArgs) -> Result<(), Error> {
    let params = args.sampler.params()?;
    let speculation = args.speculate.speculation(args.model.offline)?;
    interrupt::install();
    let file = load::open(&args.model)?;
    if args.template.chat_template.is_none() {
        require_template(&file)?;
    }
    let encoder = args.images.file(&file, args.model.offline)?;
    let source = template_source(args, &file)?;
    let servers = args.mcp.connect()?;
    let (options, untuned) = args.machine.options_at_start(&file)?;
    let options = LoadOptions { context: args.ctx, ..options };
    // Threads that are begun now are not pinned with those of the engine.
    let mut lines = Lines::new(untuned)?;
    let mut loaded = load::load(&file, &options, &speculation)?;
    drop(file);
    encoder.iter().try_for_each(|file| loaded.see(file, &options))?;
    if let Some(given) = &args.template.chat_template {
        given.replace(&mut loaded)?;
    }
    loaded.report();
    let escaper = loaded.escaper(args.template.parse_special)?;
    let calling =
        servers.as_ref().map(|servers| Calling::new(&loaded, &source, servers)).transpose()?;
    note!("Type a message, or /help. Ctrl-C stops an answer, Ctrl-D ends the conversation.");
    let options = AnswerOptions {
        params,
        limit: args.tokens,
        stop: GivenTemplate::stops(args.template.chat_template.as_ref(), &args.stop),
        ignore_eos: false,
        continues: false,
        special: calling.as_ref().is_some_and(Calling::needs_special),
    };
    let mut chat = Chat {
        session: Session::new(loaded),
        escaper,
        options,
        system: args.template.system.clone(),
        no_think: args.template.no_think,
        turns: Vec::new(),
        shown: Vec::new(),
        last: None,
        tools: servers.zip(calling),
    };
    loop {
        match lines.next(chat.session.engine())? {
            Line::Text(text) => match Command::parse(&text) {
                None => chat.say(text, &mut lines)?,
                Some(Ok(Command::Quit)) => break,
                Some(Ok(command)) => chat.obey(command, &mut lines)?,
                Some(Err(fault)) => anstream::eprintln!("{fault}"),
            },
            Line::Empty => {}
            Line::End => break,
        }
    }
    lines.save();
    Ok(())
}

/// A message, and what stands for its images.
struct Turn {
    message: Message,
    images: Vec<Vec<Piece>>,
}

impl Turn {
    fn text(&self) -> String {
        text_of(&self.message)
    }
}

/// The text of a message.
fn text_of(message: &Message) -> String {
    let of = |part: &Json| part["text"].as_str().unwrap_or_default().to_owned();
    match &message.content {
        Json::Array(parts) => parts.iter().map(of).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}

struct Chat {
    session: Session,
    /// `None` if messages are read with control tokens.
    escaper: Option<Escaper>,
    options: AnswerOptions,
    system: Option<String>,
    no_think: bool,
    /// User and assistant in turn.
    turns: Vec<Turn>,
    /// Images for the next message.
    shown: Vec<Vec<Piece>>,
    last: Option<Answer>,
    /// Servers whose tools the model may call.
    tools: Option<(Servers, Calling)>,
}

impl Chat {
    /// The conversation as the template wants it.
    fn messages(&self) -> Vec<Message> {
        let system = self.system.iter().map(|text| Message::new("system", text.as_str()));
        system.chain(self.turns.iter().map(|turn| turn.message.clone())).collect()
    }

    /// A message of the user's, and the answer. What is wrong with it is told, and the message
    /// forgotten; only a broken output ends the conversation.
    fn say(&mut self, text: String, lines: &mut Lines) -> Result<(), Error> {
        let before = self.turns.len();
        let images = std::mem::take(&mut self.shown);
        self.turns.push(Turn { message: images::message(&text, images.len()), images });
        let answered = match self.tools.is_some() {
            true => self.answer_with_tools(lines),
            false => self.answer(),
        };
        match answered {
            Ok(()) => Ok(()),
            Err(fatal @ (Error::ReaderGone | Error::Stdout(_))) => Err(fatal),
            Err(e) => {
                // An image can be asked about again.
                self.turns.truncate(before + 1);
                self.shown = self.turns.pop().map_or_else(Vec::new, |turn| turn.images);
                anstream::eprintln!("{}", e.line());
                Ok(())
            }
        }
    }

    /// The assistant's turn.
    fn answer(&mut self) -> Result<(), Error> {
        let prompt = self.prompt()?;
        self.check_room(&prompt)?;
        let mut screen = Screen::stdout();
        let answer = self.session.answer(&prompt, &self.options, |text| Ok(screen.show(text)?))?;
        screen.end(answer.text.ends_with('\n'))?;
        drop(screen);
        let message = Message::new("assistant", answer.text.as_str());
        self.turns.push(Turn { message, images: Vec::new() });
        self.ended(answer);
        Ok(())
    }

    /// The assistant's turns until it calls no tool any more, and the results between them.
    fn answer_with_tools(&mut self, lines: &mut Lines) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            let calls = self.answer_or_call()?;
            if calls.is_empty() {
                return Ok(());
            }
            for call in calls {
                let text = self.run_tool(&call, lines)?;
                let message = tools::result(&call, &text);
                self.turns.push(Turn { message, images: Vec::new() });
            }
        }
        note!("[{ROUNDS} rounds of calls: say something for it to go on]");
        Ok(())
    }

    /// One answer, and the calls in it.
    fn answer_or_call(&mut self) -> Result<Vec<Call>, Error> {
        let prompt = self.prompt()?;
        self.check_room(&prompt)?;
        let text = self.session.tokenizer.decode(&prompt.tokens, false);
        let Some((_, calling)) = &self.tools else { return Ok(Vec::new()) };
        let mut reader = calling.reader(&text);
        let mut screen = Screen::stdout();
        let mut ends_line = true;
        let answer = self.session.answer(&prompt, &self.options, |text| {
            let shown = reader.push(text);
            ends_line = if shown.is_empty() { ends_line } else { shown.ends_with('\n') };
            Ok(screen.show(&shown)?)
        })?;
        let shown = reader.end();
        ends_line = if shown.is_empty() { ends_line } else { shown.ends_with('\n') };
        screen.show(&shown)?;
        screen.end(ends_line)?;
        drop(screen);
        let interrupted = answer.end == End::Interrupted;
        let (message, calls) = reader.message();
        self.turns.push(Turn { message, images: Vec::new() });
        self.ended(answer);
        Ok(if interrupted { Vec::new() } else { calls })
    }

    /// Calls a tool, if it may be; what the model is told.
    fn run_tool(&mut self, call: &Call, lines: &mut Lines) -> Result<String, Error> {
        let Some((servers, _)) = &mut self.tools else { return Ok(String::new()) };
        anstream::eprintln!("[{} {}]", call.name, call.arguments);
        let mut consent = servers.allows(&call.name).then_some(Consent::Once);
        while consent.is_none() {
            anstream::eprintln!("call it? y(es), n(o), a(lways)");
            consent = match lines.next(self.session.engine())? {
                Line::Text(text) => Consent::parse(&text),
                Line::Empty | Line::End => Some(Consent::No),
            };
        }
        match consent {
            Some(Consent::Always) => servers.allow(&call.name),
            Some(Consent::Once) => {}
            Some(Consent::No) | None => {
                return Ok("error: the user does not allow this call".to_owned());
            }
        }
        let text = servers.call(call);
        anstream::eprintln!("[= {}]", tools::shown(&text));
        Ok(text)
    }

    /// Whether there is room for an answer.
    fn check_room(&self, prompt: &Prompt) -> Result<(), Error> {
        let (tokens, context) = (prompt.tokens.len(), self.session.context());
        if tokens >= context {
            return Err(Error::Refused(format!(
                "the conversation would have {tokens} tokens, but the context holds {context}: say it \
                 in fewer words, begin anew with /clear, or start again with a larger --ctx"
            )));
        }
        Ok(())
    }

    /// Tells why an answer ended, if that is not by itself.
    fn ended(&mut self, answer: Answer) {
        let context = self.session.context();
        match answer.end {
            End::Context => note!(
                "[the context of {context} tokens is full: begin anew with /clear, or start again \
                 with a larger --ctx]"
            ),
            End::Interrupted | End::Limit => note!("[ended {}]", why(answer.end, context)),
            End::Token | End::Stop => {}
        }
        // Another answer to the same message is not to be the same one.
        self.options.params.seed = self.options.params.seed.wrapping_add(1);
        self.last = Some(answer);
    }

    /// The conversation as a prompt.
    fn prompt(&self) -> Result<Prompt, Error> {
        let mut messages = self.messages();
        let Session { template, tokenizer, encoder, .. } = &self.session;
        let images: Vec<_> = self.turns.iter().flat_map(|turn| &turn.images).cloned().collect();
        let encoder = encoder.as_ref().filter(|_| !images.is_empty());
        let mut tools = self.tools.as_ref().map(|(_, calling)| calling.tools(&mut messages));
        // Before marks of the program's own are written into the messages.
        let told = tools.as_deref_mut().unwrap_or_default();
        let escape = escape(self.escaper.as_ref(), &mut messages, told)?;
        if let Some(encoder) = encoder {
            images::normalize(template.as_ref(), &mut messages, encoder)?;
        }
        let rendering = Rendering { no_think: self.no_think, escape };
        let prompt = match (&self.tools, template, tools) {
            (Some((_, calling)), Some(template), Some(tools)) => {
                calling.render(template, messages, tools, rendering)?
            }
            _ => render(template.as_ref(), &messages, rendering)?,
        };
        if let Some(encoder) = encoder {
            return images::prompt(tokenizer, &prompt, encoder, &images);
        }
        let tokens = tokenizer.encode_rendered(&prompt.text, prompt.escape, true)?;
        Ok(Prompt { tokens, images: Vec::new() })
    }

    /// Takes an image for the next message. What is wrong with it is told.
    fn show(&mut self, path: &Path) {
        let Some(encoder) = &self.session.encoder else {
            anstream::eprintln!("{}", images::sees_nothing().line());
            return;
        };
        let taken = images::picture(path).and_then(|picture| {
            let pieces = encoder.processor().pieces(&picture).map_err(Error::refused)?;
            Ok((pieces, picture.width(), picture.height()))
        });
        match taken {
            Ok((pieces, width, height)) => {
                self.shown.push(pieces);
                note!("[an image of {width} by {height} pixels goes with the next message]");
            }
            Err(e) => anstream::eprintln!("{}", e.line()),
        }
    }

    fn obey(&mut self, command: Command, lines: &mut Lines) -> Result<(), Error> {
        match command {
            Command::Help => anstream::eprint!("{}", commands::HELP),
            Command::Image(path) => self.show(&path),
            Command::Clear => {
                self.turns.clear();
                self.shown.clear();
                note!("[a new conversation]");
            }
            Command::System(text) => {
                self.system = (!text.is_empty()).then_some(text);
                self.turns.clear();
                let what = if self.system.is_some() { "" } else { "out" };
                note!("[a new conversation, with{what} a system message]");
            }
            Command::Save(path) => match replace::bytes(&path, self.transcript().as_bytes()) {
                Ok(()) => note!("[saved as {}]", path.display()),
                Err(e) => anstream::eprintln!("cannot write {}: {e}", path.display()),
            },
            Command::Stats => self.stats(),
            Command::Regenerate => {
                let spoken = self.turns.iter().rposition(|turn| turn.message.role == "user");
                let Some(at) = spoken else {
                    anstream::eprintln!("there is no message to answer yet");
                    return Ok(());
                };
                self.turns.truncate(at + 1);
                if let Some(turn) = self.turns.pop() {
                    let text = turn.text();
                    self.shown = turn.images;
                    self.say(text, lines)?;
                }
            }
            Command::Quit => {}
        }
        Ok(())
    }

    fn stats(&self) {
        let (used, context) = (self.session.used(), self.session.context());
        note!("context    {used} of {context} tokens");
        if let Some(answer) = &self.last {
            report_speed(answer);
        }
    }

    /// The conversation for people and for Markdown.
    fn transcript(&self) -> String {
        let part = |m: &Message| format!("## {}\n\n{}\n\n", m.role, text_of(m).trim());
        self.messages().iter().map(part).collect()
    }
}
