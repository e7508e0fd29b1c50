//! `arclight run`: a prompt in, text out.

use crate::args::{ModelArg, SamplerArgs, count};
use crate::chat::ChatArgs;
use crate::chat::tools::McpArgs;
use crate::chat_template::{self, Rendering, TemplateArgs};
use crate::error::Error;
use crate::images::{self, ImageArgs};
use crate::load::{self, Loaded};
use crate::machine_args::MachineArgs;
use crate::output::{Format, Output};
use crate::profile::{self, Recorder};
use crate::report::{self, Cause, Look, Meter, phases};
use crate::screen::Screen;
use crate::session::{Answer, AnswerOptions, End, Session, report_speed, why};
use crate::speculate::SpeculateArgs;
use crate::term::{self, note};
use crate::{chat, interrupt};
use arclight_engine::{LoadOptions, Prompt, SamplerParams};
use clap::{Args, ValueHint};
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use tokenizer::{Message, Rendered};
use topology::Machine;
use vision::Picture;

/// Continue a text, answer a question with --chat, or talk if there is no prompt
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Text to continue [default: standard input; on a terminal a conversation, as by `arclight chat`]
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    prompt: Option<String>,
    /// File with the text to continue
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Take the prompt as a question: put it into the model's chat template
    #[arg(long)]
    chat: bool,
    /// Image that the prompt asks about; can be given several times, and implies --chat
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    image: Vec<PathBuf>,
    #[command(flatten)]
    template: TemplateArgs,
    /// Most tokens to generate [default: 512; in a conversation as many as the context holds]
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    tokens: Option<usize>,
    /// Tokens that prompt and answer can have together [default: the model's, if memory allows]
    #[arg(short, long, value_name = "TOKENS", value_parser = count)]
    ctx: Option<usize>,
    /// End before this text; can be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Go on after the model has ended its text
    #[arg(long)]
    ignore_eos: bool,
    /// End with where the model's memory is, what each node read, and where the time went
    #[arg(long, conflicts_with = "quiet")]
    report: bool,
    /// End with what the machine's counters tell of the prompt and of decoding: instructions per cycle, misses, remote
    /// loads, faults
    #[arg(long, conflicts_with = "quiet")]
    counters: bool,
    /// Record what every thread does: a trace for ui.perfetto.dev goes into this file, and tables of
    /// operators are printed at the end
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "quiet")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    sampler: SamplerArgs,
    #[command(flatten)]
    speculate: SpeculateArgs,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

const EXAMPLES: &str = "\
Examples:
  arclight run                                     a little story by the demo model
  arclight run qwen3:4b                            talk with a model, which is fetched if it is not here
  arclight run model.gguf -p 'The sea is'          continue a text
  arclight run model.gguf --chat -p 'Why is the sky blue?'
  arclight run model.gguf --image photo.jpg -p 'What is this?'
  arclight run model.gguf --report -p 'The sea is'  which node or thread it waits for
  arclight run model.gguf --profile out.json -p 'The sea is'  which operators take the time
  git diff | arclight run model.gguf --chat --system 'Describe this change in a line.' -q";

/// What the demo model continues when it is told nothing.
const DEMO_PROMPT: &str = "Once upon a time";

/// Tokens of an answer where nothing is said of them.
const TOKENS: usize = 512;

/// Runs the command.
pub(crate) fn run(args: &RunArgs) -> Result<(), Error> {
    let params = args.sampler.params()?;
    let speculation = args.speculate.speculation(args.model.offline)?;
    let talks = args.is_question() || is_conversation(args);
    let TemplateArgs { system, no_think, chat_template, parse_special } = &args.template;
    if !talks && (system.is_some() || *no_think || chat_template.is_some() || *parse_special) {
        let text = "--system, --no-think, --chat-template and --parse-special are for conversations: \
                    add --chat";
        return Err(Error::Usage(text.to_owned()));
    }
    // What is wrong with the file is told before a prompt is asked for.
    let file = load::open(&args.model)?;
    file.gguf()?;
    let talks_by = chat_template.is_some() || chat_template::require_template(&file).is_ok();
    if is_conversation(args) && talks_by {
        drop(file);
        return chat::run(&conversation(args));
    }
    let given = prompt(args)?;
    let prompt = given.as_deref().unwrap_or(DEMO_PROMPT);
    let pictures =
        args.image.iter().map(|path| images::picture(path)).collect::<Result<Vec<_>, _>>()?;
    let encoder = match pictures.is_empty() {
        true => None,
        false => {
            let encoder = args.images.file(&file, args.model.offline)?;
            Some(encoder.ok_or_else(images::sees_nothing)?)
        }
    };
    let recorder = args.profile.as_deref().map(Recorder::create).transpose()?;
    interrupt::install();
    if args.is_question() && chat_template.is_none() {
        chat_template::require_template(&file)?;
    }
    let (options, untuned) = args.machine.options_at_start(&file)?;
    if let (Some(untuned), Some(model), false) = (&untuned, args.model.named(), term::is_quiet()) {
        untuned.tell_once(model);
    }
    let options = LoadOptions { context: args.ctx, stats: args.report, ..options };
    let mut loaded = load::load(&file, &options, &speculation)?;
    drop(file);
    encoder.iter().try_for_each(|file| loaded.see(file, &options))?;
    if let Some(given) = chat_template {
        given.replace(&mut loaded)?;
    }
    let tokens = encode(args, &loaded, prompt, &pictures)?;
    let mut screen = Screen::stdout();
    if !term::is_quiet() {
        loaded.report();
    }
    // On a terminal the text is whole with the prompt before it; in a pipe only what is new, but for the
    // story of the demo model, whose beginning nobody gave.
    if given.is_none() {
        screen.show(prompt)?;
    } else if !term::is_quiet()
        && !args.is_question()
        && term::is_interactive()
        && std::io::stdout().is_terminal()
    {
        eprint_prompt(prompt);
        screen.after(prompt);
    }
    let options = AnswerOptions {
        params,
        limit: Some(args.tokens.unwrap_or(TOKENS)),
        stop: args.stop.clone(),
        ignore_eos: args.ignore_eos,
        continues: !args.is_question(),
        special: false,
    };
    let mut session = Session::new(loaded);
    if args.report || args.counters {
        let machine = Machine::read()?;
        let meter = match args.counters {
            true => Meter::of_threads(&machine, session.engine().pool()),
            false => Meter::of_memory(&machine),
        };
        session.count_with(meter);
    }
    if args.profile.is_some() {
        profile::begin(session.engine())?;
    }
    let look = (args.report || args.profile.is_some()).then(|| Look::new(session.engine()));
    let answer = session.answer(&tokens, &options, |text| Ok(screen.show(text)?))?;
    let causes = match look {
        Some(look) => look.causes(session.engine(), &Machine::read()?),
        None => Vec::new(),
    };
    screen.end(answer.text.ends_with('\n'))?;
    if !term::is_quiet() {
        report_end(&answer, &options.params, session.context());
    }
    if let Some(untuned) = &untuned {
        untuned.finds().take().iter().for_each(|line| note!("{line}"));
    }
    if args.report {
        report_nodes(&mut session, &answer, &causes)?;
    }
    if args.counters {
        report_counters(&mut session, &answer)?;
    }
    if let Some(recorder) = recorder {
        report_operators(recorder, &mut session, &answer)?;
        if !args.report {
            causes.iter().for_each(|cause| note!("{cause}"));
        }
    }
    match answer.end {
        End::Interrupted => Err(Error::Interrupted),
        _ => Ok(()),
    }
}

impl RunArgs {
    /// Whether the prompt goes into the chat template.
    fn is_question(&self) -> bool {
        self.chat || !self.image.is_empty()
    }
}

/// Whether a user sits at a terminal and has given nothing to continue.
fn is_conversation(args: &RunArgs) -> bool {
    let no_prompt = args.prompt.is_none() && args.file.is_none();
    let of_one_answer = args.ignore_eos
        || args.report
        || args.counters
        || term::is_quiet()
        || args.profile.is_some();
    no_prompt
        && args.image.is_empty()
        && !of_one_answer
        && (args.model.named().is_some() || args.chat)
        && std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
}

/// The same as `arclight chat` has it.
fn conversation(args: &RunArgs) -> ChatArgs {
    ChatArgs {
        model: args.model.clone(),
        template: args.template.clone(),
        tokens: args.tokens,
        ctx: args.ctx,
        stop: args.stop.clone(),
        sampler: args.sampler.clone(),
        speculate: args.speculate.clone(),
        mcp: McpArgs::default(),
        images: args.images.clone(),
        machine: args.machine.clone(),
    }
}

/// The prompt, from wherever it comes; `None` for the one of the demo model.
fn prompt(args: &RunArgs) -> Result<Option<String>, Error> {
    if let Some(prompt) = &args.prompt {
        return Ok(Some(prompt.clone()));
    }
    if let Some(path) = &args.file {
        let text = std::fs::read_to_string(path).map_err(|e| Error::read(path, e))?;
        return Ok(Some(without_line_end(text)));
    }
    let mut text = String::new();
    let mut stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let what = || "cannot read the prompt from standard input".to_owned();
        stdin.read_to_string(&mut text).map_err(|source| Error::Io { what: what(), source })?;
    }
    let text = without_line_end(text);
    match text.is_empty() {
        false => Ok(Some(text)),
        true if args.model.named().is_none() && !args.is_question() => Ok(None),
        true => Err(Error::Usage(
            "there is no prompt: give one with -p, with -f, or on standard input".to_owned(),
        )),
    }
}

/// Editors and `echo` end a text with a line end that is not meant as part of it.
fn without_line_end(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

fn encode(
    args: &RunArgs,
    loaded: &Loaded,
    prompt: &str,
    pictures: &[Picture],
) -> Result<Prompt, Error> {
    let prompt = match args.is_question() {
        // A prompt that is continued is read with its control tokens.
        false => Rendered { text: prompt.to_owned(), escape: None },
        true => {
            let system =
                args.template.system.iter().map(|text| Message::new("system", text.as_str()));
            let asked = images::message(prompt, pictures.len());
            let mut messages: Vec<Message> = system.chain([asked]).collect();
            let escaper = loaded.escaper(args.template.parse_special)?;
            let escape = chat_template::escape(escaper.as_ref(), &mut messages, &mut [])?;
            if let Some(encoder) = &loaded.encoder {
                images::normalize(loaded.template.as_ref(), &mut messages, encoder)?;
            }
            let rendering = Rendering { no_think: args.template.no_think, escape };
            chat_template::render(loaded.template.as_ref(), &messages, rendering)?
        }
    };
    if let Some(encoder) = &loaded.encoder {
        let pieces = pictures.iter().map(|picture| encoder.processor().pieces(picture));
        let pieces = pieces.collect::<Result<Vec<_>, _>>().map_err(Error::refused)?;
        return images::prompt(&loaded.tokenizer, &prompt, encoder, &pieces);
    }
    let tokens = loaded.tokenizer.encode_rendered(&prompt.text, prompt.escape, true)?;
    Ok(Prompt { tokens, images: Vec::new() })
}

/// The end of the prompt, dim, for the text to go on from.
fn eprint_prompt(prompt: &str) {
    const SHOWN: usize = 400;
    let skip = prompt.chars().count().saturating_sub(SHOWN);
    let end: String = prompt.chars().skip(skip).collect();
    let dim = term::DIM;
    let dots = if skip > 0 { "…" } else { "" };
    anstream::eprint!("\n{dim}{dots}{end}{dim:#}");
}

/// The table at the end.
fn report_end(answer: &Answer, params: &SamplerParams, context: usize) {
    note!("");
    report_speed(answer);
    note!("ended      {}", why(answer.end, context));
    if params.temperature > 0.0 {
        note!("seed       {}", params.seed);
    }
    if let Ok(bytes) = memory::peak_resident_bytes() {
        note!("memory     {} resident at most", term::size(bytes as usize));
    }
}

/// The table of nodes.
fn report_nodes(session: &mut Session, answer: &Answer, causes: &[Cause]) -> Result<(), Error> {
    anstream::eprintln!();
    match report::after(session.engine(), &answer.phases, causes)? {
        Some(nodes) => nodes.lines().iter().for_each(|line| anstream::eprintln!("{line}")),
        None => note!("nothing was computed that could be reported on"),
    }
    Ok(())
}

/// The table of counters.
fn report_counters(session: &mut Session, answer: &Answer) -> Result<(), Error> {
    let threads = session.engine().plan().threads();
    let computed = answer.phases.iter().filter(|phase| phase.activity.counts.tokens > 0);
    let figures = computed.flat_map(|phase| {
        let name = if phase.decoding { "decode" } else { "prompt" };
        phases::figures(name, threads, phase)
    });
    let mut text = Vec::new();
    phases::print(&mut Output::to(&mut text, Format::Text), &figures.collect::<Vec<_>>())?;
    anstream::eprint!("\n{}", String::from_utf8_lossy(&text));
    Ok(())
}

/// The tables of operators.
fn report_operators(
    mut recorder: Recorder,
    session: &mut Session,
    answer: &Answer,
) -> Result<(), Error> {
    recorder.engine(session.engine())?;
    for (phase, profile) in ["prompt", "generation"].iter().zip(&answer.profiles) {
        recorder.add(phase, profile)?;
    }
    let limits = profile::limits(session.engine())?;
    recorder.tables(&limits).iter().for_each(|table| anstream::eprintln!("\n{table}"));
    note!("\n{}", recorder.finish()?);
    Ok(())
}
