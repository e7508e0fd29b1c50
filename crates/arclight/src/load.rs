//! Loading for people: the file, the tokenizer beside the weights, a progress bar, and what it all
//! took.

use crate::args::ModelArg;
use crate::error::Error;
use crate::hub::named::{self, Missing};
use crate::model_file;
use crate::term::{self, note};
use crate::tune::few;
use arclight_engine::{
    Adapter, Encoder, Engine, FileRead, LoadOptions, ModelFile, PageCache, Reading, Speculation,
    Speculator,
};
use gguf::Gguf;
use std::time::{Duration, Instant};
use tokenizer::{ChatTemplate, Escaper, Tokenizer};
use topology::Machine;

/// The model that is used when none is named. `tools/demo-model` makes it.
static DEMO: &[u8] = include_bytes!("arclight-demo.gguf");
const DEMO_NAME: &str = "demo model";

/// Opens a model file, fetched if it has to be, or the demo model.
pub(crate) fn open(arg: &ModelArg) -> Result<ModelFile, Error> {
    match arg.named() {
        Some(text) => {
            let missing = if arg.offline { Missing::Offline } else { Missing::Fetch };
            let path = named::file(text, missing)?;
            let file = match arg.keep_converted {
                true => model_file::open_and_keep(path)?,
                false => model_file::open(path)?,
            };
            if Adapter::is_adapter(&file.gguf()?) {
                let path = file.path().display();
                return Err(Error::Refused(format!(
                    "{path} is an adapter: name its model, and give the adapter to --lora"
                )));
            }
            Ok(file)
        }
        None => {
            note!(
                "no model named: using the built-in demo model, which writes little stories and \
                 not much else"
            );
            Ok(ModelFile::from_bytes(DEMO_NAME, DEMO))
        }
    }
}

/// A model's sizes.
pub(crate) fn hparams(file: &ModelFile) -> Result<models::Hparams, Error> {
    models::Hparams::read(&file.gguf()?)
        .map_err(|source| Error::Model { path: file.path().to_owned(), source })
}

/// A model that can be talked to.
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    pub(crate) tokenizer: Tokenizer,
    /// `None` if the file has none.
    pub(crate) template: Option<ChatTemplate>,
    /// What guesses tokens ahead.
    pub(crate) speculator: Option<Speculator>,
    /// What encodes images.
    pub(crate) encoder: Option<Encoder>,
    tokenizer_time: Duration,
    total_time: Duration,
}

/// Loads everything of a model, and what guesses for it: the tokenizer on a thread of its own, beside the weights.
pub(crate) fn load(
    file: &ModelFile,
    options: &LoadOptions,
    speculation: &Speculation,
) -> Result<Loaded, Error> {
    let start = Instant::now();
    let options = &speculation.options(options.clone());
    let gguf = file.gguf()?;
    let (text, engine) = std::thread::scope(|scope| {
        let text = scope.spawn(|| {
            let start = Instant::now();
            text_side(file, &gguf)
                .map(|(tokenizer, template)| (tokenizer, template, start.elapsed()))
        });
        let engine = load_engine(file, options);
        (text.join(), engine)
    });
    // What is wrong with the model is more telling than what is wrong with its vocabulary.
    let engine = engine?;
    let (tokenizer, template, tokenizer_time) =
        text.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let speculator = Speculator::load(&engine, speculation, options)?;
    let total_time = start.elapsed();
    let encoder = None;
    Ok(Loaded { engine, tokenizer, template, speculator, encoder, tokenizer_time, total_time })
}

fn text_side(
    file: &ModelFile,
    gguf: &Gguf<'_>,
) -> Result<(Tokenizer, Option<ChatTemplate>), Error> {
    let fault = |source| Error::Tokenizer { path: file.path().to_owned(), source };
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).map_err(fault)?;
    let template = ChatTemplate::from_gguf(gguf.metadata()).map_err(fault)?;
    // Building a vocabulary leaves as much freed as it keeps.
    memory::trim_heap();
    Ok((tokenizer, template))
}

/// Loads the engine alone, with a progress bar on a terminal.
pub(crate) fn load_engine(file: &ModelFile, options: &LoadOptions) -> Result<Engine, Error> {
    load_engine_on(file, &Machine::read()?, options)
}

/// The same on a machine that was read before: threads that are pinned since then see less of it.
pub(crate) fn load_engine_on(
    file: &ModelFile,
    machine: &Machine,
    options: &LoadOptions,
) -> Result<Engine, Error> {
    // Its weights are nearly all of a file.
    let bar = term::byte_bar("loading", file.bytes());
    let engine = Engine::load_on(file, machine, options, &mut |p| {
        bar.set_length(p.total as u64);
        bar.set_position(p.done as u64);
    });
    bar.finish_and_clear();
    Ok(engine?)
}

/// What was read, how fast, and what became of the page cache.
fn reading(read: &FileRead, time: Duration) -> String {
    let gb_per_s = read.bytes as f64 / time.as_secs_f64() / 1e9;
    let how = match (read.reading, read.page_cache) {
        (Reading::Direct, _) => "past the page cache",
        (_, PageCache::Keep) => "mapped; the file may stay in the page cache",
        (_, PageCache::Drop) => {
            "mapped; memory does not hold file and weights, so the page cache gave the file up"
        }
    };
    format!("read {} at {} GB/s, {how}", term::size(read.bytes), term::rate(gb_per_s))
}

impl Loaded {
    /// Keeps the text of messages from being read as control tokens, unless that is wanted.
    pub(crate) fn escaper(&self, parse_special: bool) -> Result<Option<Escaper>, Error> {
        if parse_special {
            return Ok(None);
        }
        let marker = self.encoder.as_ref().map(|encoder| encoder.processor().marker());
        let escaper = Escaper::new(&self.tokenizer, self.template.as_ref(), marker.as_slice())?;
        Ok(Some(escaper))
    }

    /// Loads what encodes images, on the same cores.
    pub(crate) fn see(&mut self, file: &ModelFile, options: &LoadOptions) -> Result<(), Error> {
        self.encoder = Some(Encoder::load(file, &self.engine, options, &mut |_| {})?);
        Ok(())
    }

    /// Tells on standard error what loading took in time and memory.
    pub(crate) fn report(&mut self) {
        let report = self.engine.report();
        let (build, pack, read) = (report.build, report.pack, report.read);
        let (nodes, mode) = (report.nodes.clone(), report.mode);
        let unpacked = report.unpacked.clone();
        let (name, context) = (self.engine.hparams().name.clone(), self.engine.context());
        let engine = &self.engine;
        let plan = engine.plan();
        let (threads, isa) = (plan.threads(), engine.kernels().isa());
        let groups = plan.groups.len();
        let few = few::words(&plan.phases, threads);
        let graph = engine.graph();
        let classes = graph.classes().iter().enumerate();
        let windows: Vec<(usize, usize)> = classes
            .filter_map(|(class, keep)| Some((graph.class_layers(class), keep.window()?)))
            .collect();
        let how = if groups > 1 { format!(", {mode}") } else { String::new() };
        note!(
            "loaded {name} in {}: file and graph {}, tokenizer {}, weights {}",
            term::seconds(self.total_time),
            term::seconds(build),
            term::seconds(self.tokenizer_time),
            term::seconds(pack),
        );
        if let Some(read) = read {
            note!("{}", reading(&read, pack));
        }
        for (at, bytes) in nodes.iter().enumerate() {
            let node = if nodes.len() > 1 { format!("node {at}: ") } else { String::new() };
            note!(
                "memory {node}weights {}, activations {}, KV up to {} for {context} tokens",
                term::size(bytes.weights),
                term::size(bytes.activations),
                term::size(bytes.kv),
            );
        }
        crate::lora::report(self.engine.adapters());
        for (layers, window) in windows {
            note!(
                "{} with a window of {window} tokens, and KV for it",
                term::plural(layers, "layer")
            );
        }
        for of in unpacked {
            note!(
                "{} of {} unpacked to 8 bits: {} of weights, {} in the file",
                term::plural(of.tensors, "tensor"),
                of.ty,
                term::size(of.memory),
                term::size(of.file),
            );
        }
        let few = few.map_or_else(String::new, |words| format!("; {words}"));
        note!(
            "{} on {}{how}, {isa} kernels{few}",
            term::plural(threads, "thread"),
            term::plural(groups, "node"),
        );
    }
}
