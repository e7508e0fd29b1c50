//! `arclight embed`: the vectors of a file's lines.

mod npy;

use crate::args::{ModelArg, count};
use crate::error::Error;
use crate::load;
use crate::machine_args::MachineArgs;
use crate::replace;
use crate::term::{self, note};
use arclight_engine::{LoadOptions, ModelFile, ReplicaOptions, Replicas, Request};
use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tokenizer::{EncodeOptions, Tokenizer};

/// Turn texts into vectors (embeddings)
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EmbedArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Text to embed; may be given more than once [default: the lines of --file]
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    prompt: Vec<String>,
    /// File with a text on each line [default: standard input]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Where the vectors go [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// How they are written [default: npy for a file whose name ends so, else json]
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Option<Format>,
    /// How a text's tokens become one vector [default: as the model's file says]
    #[arg(long, value_name = "HOW", value_enum)]
    pooling: Option<PoolingArg>,
    /// Keep the first so many values of each vector, for models that were trained so
    #[arg(long, value_name = "N", value_parser = count)]
    dimensions: Option<usize>,
    /// Leave vectors as long as they are instead of making their length 1
    #[arg(long)]
    raw: bool,
    /// Cut texts that are longer than the context; otherwise they are refused
    #[arg(long)]
    truncate: bool,
    /// Texts that are computed at once
    #[arg(long, value_name = "N", value_parser = count, default_value_t = 32)]
    batch: usize,
    #[command(flatten)]
    machine: MachineArgs,
}

const EXAMPLES: &str = "\
As JSON, each line is {\"index\", \"tokens\", \"embedding\"}. As npy, the file is a matrix of f32 for NumPy, a row for
each text. Texts of unequal length are computed together, without padding.

Examples:
  arclight embed model.gguf -p 'How do I sort a list?'
  arclight embed model.gguf -f texts.txt -o vectors.npy";

/// Formats by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Npy,
}

/// Kinds of pooling by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolingArg {
    /// The first token's state
    First,
    /// The last token's state
    Last,
    /// The mean of all tokens' states
    Mean,
}

impl From<PoolingArg> for models::Pooling {
    fn from(arg: PoolingArg) -> models::Pooling {
        match arg {
            PoolingArg::First => models::Pooling::First,
            PoolingArg::Last => models::Pooling::Last,
            PoolingArg::Mean => models::Pooling::Mean,
        }
    }
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    index: usize,
    tokens: usize,
    embedding: &'a [f32],
}

/// Runs the command.
pub(crate) fn run(args: &EmbedArgs) -> Result<(), Error> {
    let texts = args.texts()?;
    let format = args.format();
    if format == Format::Npy && args.output.is_none() && std::io::stdout().is_terminal() {
        return Err(Error::Usage("a matrix is not for a terminal: give -o FILE".to_owned()));
    }
    let file = load::open(&args.model)?;
    let gguf = file.gguf()?;
    let fault = |source| Error::Model { path: file.path().to_owned(), source };
    let pooling = match args.pooling {
        Some(pooling) => pooling.into(),
        None => models::Pooling::of(&gguf).map_err(fault)?,
    };
    let ranks = models::Score::of(&gguf).map_err(fault)?.is_some();
    if ranks && !args.raw {
        let what = "this model ranks texts: --raw gives its scores";
        return Err(Error::Refused(what.to_owned()));
    }
    let tokenizer = Tokenizer::from_gguf(gguf.metadata())
        .map_err(|source| Error::Tokenizer { path: file.path().to_owned(), source })?;
    drop(gguf);
    let options = LoadOptions {
        sequences: Some(args.batch.min(texts.len()).max(1)),
        ..args.machine.options(&file)?
    };
    let replicas = loaded(&Arc::new(file), &options)?;
    let mut tokens = Vec::with_capacity(texts.len());
    for (at, text) in texts.iter().enumerate() {
        tokens.push(args.encoded(&tokenizer, text, at, replicas.context())?);
    }
    let bar = term::count_bar("texts", texts.len());
    let start = Instant::now();
    let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
    // As many as keep the machine busy, and memory small.
    for some in tokens.chunks(args.batch.saturating_mul(8)) {
        let request =
            |tokens: &Vec<u32>| Request { pooling: Some(pooling), ..Request::new(tokens.clone()) };
        for mut ticket in replicas.submit_all(some.iter().map(request).collect())? {
            if let Some(event) = ticket.next() {
                event?;
            }
            vectors.push(args.finished(ticket.pooled())?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let took = start.elapsed();
    args.write(format, &vectors, &tokens)?;
    let all: usize = tokens.iter().map(Vec::len).sum();
    if args.output.is_some() {
        note!(
            "{} of {} values, {all} tokens in {}, {} tokens/s",
            term::plural(vectors.len(), "vector"),
            vectors[0].len(),
            term::seconds(took),
            term::rate(all as f64 / took.as_secs_f64()),
        );
    }
    Ok(())
}

/// The model, with a progress bar on a terminal.
fn loaded(file: &Arc<ModelFile>, options: &LoadOptions) -> Result<Replicas, Error> {
    let bar = term::byte_bar("loading", file.bytes());
    let serving = ReplicaOptions { prefix_cache: false, ..ReplicaOptions::default() };
    let replicas = Replicas::load(file, options, &serving, &mut |p| {
        bar.set_length(p.total as u64);
        bar.set_position(p.done as u64);
    });
    bar.finish_and_clear();
    Ok(replicas?)
}

impl EmbedArgs {
    fn texts(&self) -> Result<Vec<String>, Error> {
        if !self.prompt.is_empty() {
            return Ok(self.prompt.clone());
        }
        let text = match &self.file {
            Some(path) if path != Path::new("-") => {
                std::fs::read_to_string(path).map_err(|e| Error::read(path, e))?
            }
            _ => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text)?;
                text
            }
        };
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.is_empty() {
            return Err(Error::Usage("there is no text: give -p TEXT or -f FILE".to_owned()));
        }
        Ok(lines)
    }

    fn format(&self) -> Format {
        let npy =
            self.output.as_deref().is_some_and(|path| path.extension() == Some("npy".as_ref()));
        self.format.unwrap_or(if npy { Format::Npy } else { Format::Json })
    }

    /// The tokens of text number `at`.
    fn encoded(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        at: usize,
        context: usize,
    ) -> Result<Vec<u32>, Error> {
        let encode = EncodeOptions { add_special: true, parse_special: false };
        let mut tokens = tokenizer.encode(text, encode)?;
        let line = at + 1;
        if tokens.is_empty() {
            return Err(Error::Refused(format!(
                "text {line} is empty and this model adds nothing"
            )));
        }
        if tokens.len() > context {
            if !self.truncate {
                let len = tokens.len();
                return Err(Error::Refused(format!(
                    "text {line} has {len} tokens, more than the context of {context}: cut it, or use --truncate"
                )));
            }
            arclight_engine::cut(&mut tokens, context);
        }
        Ok(tokens)
    }

    /// A vector as it is written.
    fn finished(&self, vector: &[f32]) -> Result<Vec<f32>, Error> {
        let wanted = self.dimensions.unwrap_or(vector.len());
        let some = match self.raw {
            true => vector.get(..wanted).map(<[f32]>::to_vec),
            false => arclight_engine::unit(vector, Some(wanted)),
        };
        some.ok_or_else(|| {
            Error::Usage(format!("--dimensions {wanted}: vectors have {} values", vector.len()))
        })
    }

    fn write(
        &self,
        format: Format,
        vectors: &[Vec<f32>],
        tokens: &[Vec<u32>],
    ) -> Result<(), Error> {
        let mut bytes = Vec::new();
        match format {
            Format::Npy => npy::write(&mut bytes, vectors)?,
            Format::Json => {
                for (index, (embedding, tokens)) in vectors.iter().zip(tokens).enumerate() {
                    let line = Line { index, tokens: tokens.len(), embedding };
                    serde_json::to_writer(&mut bytes, &line).map_err(std::io::Error::from)?;
                    bytes.push(b'\n');
                }
            }
        }
        match &self.output {
            Some(path) => replace::bytes(path, &bytes).map_err(|e| Error::write(path, e))?,
            None => std::io::stdout().lock().write_all(&bytes)?,
        }
        Ok(())
    }
}
