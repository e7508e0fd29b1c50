//! The arguments of `arclight serve`, and what they mean for the server and for loading.

use super::access::AccessArgs;
use super::cores::Cores;
use super::files::FileArgs;
use super::gateway::GatewayArgs;
use super::places::Place;
use super::sampling::SamplingArgs;
use super::stage::HostArgs;
use super::tools::ToolArgs;
use crate::args::{ModelArg, bytes, count};
use crate::chat_template::GivenTemplate;
use crate::embed::PoolingArg;
use crate::error::Error;
use crate::images::ImageArgs;
use crate::logging;
use crate::machine_args::MachineArgs;
use crate::speculate::SpeculateArgs;
use arclight_engine::{DiskCache, KvSize, LoadOptions, ModelFile, ReplicaOptions};
use arclight_server::{ChatStyle, Media, Options, ServedAdapter};
use chat::Family;
use clap::{Args, ValueHint};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use topology::Machine;

/// Serve models over HTTP, with the APIs of OpenAI, Anthropic and Ollama
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(super) model: ModelArg,
    /// Further models: each is loaded when a request names it
    #[arg(value_name = "MODEL", value_hint = ValueHint::FilePath)]
    pub(super) more: Vec<PathBuf>,
    /// Models that the configuration file has tables for: their names, options, and whether they are pinned.
    #[arg(skip)]
    pub(crate) tables: Vec<OwnArgs>,
    /// What is said of each option.
    #[arg(skip)]
    pub(crate) said: Said,
    /// TOML file with options, by the names they have here: port = 80, api-key-file = "keys"
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Address to listen on; 0.0.0.0 for all of this machine's, unix:PATH for a socket in the file system;
    /// can be given several times
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', default_value = "127.0.0.1")]
    host: Vec<String>,
    /// Port to listen on; 0 for any that is free
    #[arg(short, long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Serve what is for operators here, and not at --host: /metrics, /status, /slots, loading and adapters by hand;
    /// ADDRESS:PORT or unix:PATH, can be given several times
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    admin_listen: Vec<String>,
    /// Collector of OpenTelemetry that gets traces of requests, by OTLP over HTTP, as in http://127.0.0.1:4318
    /// [default: none, or as OTEL_EXPORTER_OTLP_ENDPOINT says]
    #[arg(long, value_name = "URL")]
    pub(super) otlp_endpoint: Option<String>,
    /// Name of the model for clients; can be given several times [default: the file's name]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    alias: Vec<String>,
    /// Tokens that a request's prompt and answer can have [default: the model's, if memory allows]
    #[arg(short, long, value_name = "TOKENS", value_parser = count)]
    ctx: Option<usize>,
    /// Requests that are served at once, by each replica
    #[arg(long, value_name = "N", value_parser = count, default_value = "8")]
    parallel: usize,
    /// Copies of the model, each on its own part of the machine
    #[arg(long, value_name = "N", value_parser = count, default_value = "1")]
    replicas: usize,
    /// Tokens that the KV cache holds for all requests together [default: as many as they can use, if
    /// that fits in half of the memory]
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    kv_tokens: Option<usize>,
    /// Requests that may wait; more are refused with 429
    #[arg(long, value_name = "N", default_value = "64")]
    queue: usize,
    /// How long a step may last that takes a part of a prompt, so that answers of others go on
    /// [default: somewhat longer than without]
    #[arg(long, value_name = "MS", value_parser = count)]
    max_step_ms: Option<usize>,
    /// Compute every prompt anew, even if one before began alike
    #[arg(long)]
    no_prefix_cache: bool,
    /// Keep what was computed of ended requests in this folder, too: for when memory has no room for it
    /// any more, and for the next start
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "no_prefix_cache")]
    cache_dir: Option<PathBuf>,
    /// Bytes that the files of --cache-dir may have together, with K, M, G or T for KiB to TiB; what was
    /// used longest ago goes first
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = bytes,
        default_value = "16G",
        requires = "cache_dir"
    )]
    cache_bytes: u64,
    /// Folder in which clients may save what a request has left, and restore it, by /slots
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "no_prefix_cache")]
    slot_save_path: Option<PathBuf>,
    /// Bytes that the files of --slot-save-path may have together, with K, M, G or T for KiB to TiB; a save beyond it
    /// is refused
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = bytes,
        default_value = "16G",
        requires = "slot_save_path"
    )]
    slot_save_bytes: u64,
    /// How the model marks reasoning and tool calls, if its chat template does not tell: hermes,
    /// llama3, mistral, ... [default: told from the template]
    #[arg(long, value_name = "FAMILY")]
    pub(super) chat_format: Option<Family>,
    /// Template of conversations in the place of the model file's own: a file in Jinja, or one of chatml, gemma,
    /// llama3, mistral, plain
    #[arg(long, value_name = "FILE|NAME", value_hint = ValueHint::FilePath)]
    pub(super) chat_template: Option<GivenTemplate>,
    /// Read names of control tokens in the text of requests as these tokens: in messages, tools, and texts for
    /// vectors and scores, as in prompts of /v1/completions. Trusted clients only
    #[arg(long)]
    pub(super) parse_special: bool,
    /// How a text's tokens become one vector for /v1/embeddings [default: as the model's file says]
    #[arg(long, value_name = "KIND", value_enum)]
    pooling: Option<PoolingArg>,
    /// What to log: warn, debug, arclight_engine=debug, ... [default: requests, and what goes wrong]
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// How it is logged
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = logging::Format::Text)]
    pub(crate) log_format: logging::Format,
    #[command(flatten)]
    speculate: SpeculateArgs,
    #[command(flatten)]
    pub(super) several: SeveralArgs,
    #[command(flatten)]
    pub(super) hosts: HostArgs,
    #[command(flatten)]
    pub(super) gateway: GatewayArgs,
    #[command(flatten)]
    pub(super) files: FileArgs,
    #[command(flatten)]
    pub(super) tools: ToolArgs,
    #[command(flatten)]
    pub(super) access: AccessArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    images: ImageArgs,
    /// Folder below which clients may name images by file:// [default: none]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Images")]
    media_path: Option<PathBuf>,
    /// Millions of pixels of an image at most
    #[arg(long, value_name = "N", value_parser = count, default_value = "64", help_heading = "Images")]
    max_image_megapixels: usize,
    #[command(flatten)]
    machine: MachineArgs,
}

/// What is said of each option, wherever it is said; of a model's own ones under `models.NAME.`.
pub(crate) type Said = BTreeMap<String, Vec<OsString>>;

/// A model that has options of its own.
#[derive(Clone, Debug)]
pub(crate) struct OwnArgs {
    /// The table's name, which is the model's name for clients unless it has an alias.
    pub(crate) name: String,
    /// All options that hold for it.
    pub(crate) args: Box<ServeArgs>,
    /// It is loaded at once and stays.
    pub(crate) pin: bool,
}

/// Which models, and how many at once.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Several models")]
pub(super) struct SeveralArgs {
    /// Folder of models, which are called as their files: each is loaded when a request names it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) models_dir: Option<PathBuf>,
    /// Let clients fetch, make, copy and delete models of the folder of --models-dir, by Ollama's API: /api/pull,
    /// /api/create, /api/copy, /api/delete
    #[arg(long, requires = "models_dir")]
    pub(super) manage_models: bool,
    /// Models that clients may have made at any time by --manage-models [default: 256]
    #[arg(
        long,
        value_name = "N",
        value_parser = count,
        default_value = "256",
        hide_default_value = true,
        requires = "manage_models"
    )]
    pub(super) max_managed_models: usize,
    /// Models in memory at once; the one that was asked for longest ago makes room [default: 4]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(super) max_models: Option<usize>,
    /// Memory for weights and KV caches of all models, with K, M, G or T for KiB to TiB [default: four
    /// fifths of what is free at the start]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(super) models_memory: Option<u64>,
    /// Time without requests after which a model is unloaded: 90s, 10m, 2h [default: when another needs
    /// its room]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) keep_alive: Option<Duration>,
    /// Model that is loaded at the start and stays, by its name; can be given several times
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) pin: Vec<String>,
}

/// A time: a number and s, m or h.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "it must be a number with s, m or h after it, as in 90s".to_owned();
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        _ => (text, 1.0),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * unit;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// How much of it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// Largest request, in MiB
    #[arg(long, value_name = "MIB", value_parser = count, default_value = "16")]
    max_body: usize,
    /// Choices of one request: n times its prompts
    #[arg(long, value_name = "N", value_parser = count, default_value = "128")]
    max_choices: usize,
    /// Connections with requests at once, and as many without; requests on further ones get 503, but for /health,
    /// /ping and /metrics
    #[arg(long, value_name = "N", value_parser = count, default_value = "1024")]
    max_connections: usize,
    /// Connections of one address at once [default: three quarters of --max-connections; no limit for
    /// this machine's own]
    #[arg(long, value_name = "N", value_parser = count)]
    max_connections_per_address: Option<usize>,
    /// Time for an answer, the wait in the queue included; 0 for no limit
    #[arg(long, value_name = "SECONDS", default_value = "3600")]
    request_timeout: u64,
    /// Time for a request to arrive
    #[arg(long, value_name = "SECONDS", value_parser = count, default_value = "30")]
    read_timeout: usize,
    /// Time that a client may leave its answer unread before it is cut off
    #[arg(long, value_name = "SECONDS", value_parser = count, default_value = "60")]
    write_timeout: usize,
    /// Time for requests to end after SIGTERM or Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    drain_timeout: u64,
}

const AFTER_HELP: &str = "\
Every option can also be an environment variable (--max-body: ARCLIGHT_MAX_BODY) or stand in the
file of --config (max-body = 32; model = \"model.gguf\"). Options come before variables, variables
before the file.

Examples:
  arclight serve model.gguf                        on http://127.0.0.1:8080/v1
  arclight serve model.gguf --host 0.0.0.0 --api-key-file keys --parallel 16
  arclight serve --config /etc/arclight.toml
  arclight serve --models-dir /models              what requests name is loaded
  arclight serve big.gguf --stage 1/2 --stage-key-file key --stage-listen 0.0.0.0:7001
  arclight serve big.gguf --stage 2/2 --stage-key-file key --stages host1:7001
  curl localhost:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'";

impl ServeArgs {
    pub(crate) fn options(&self, file: &Path) -> Result<Options, Error> {
        let seconds = |n: u64| Duration::from_secs(n);
        if let Some(folder) = &self.slot_save_path {
            arclight_server::open_slot_folder(folder)
                .map_err(|e| Error::Usage(format!("--slot-save-path {}: {e}", folder.display())))?;
        }
        let pixels = (self.max_image_megapixels as u64).saturating_mul(1_000_000);
        let names =
            if self.alias.is_empty() { vec![self.name_of(file)] } else { self.alias.clone() };
        Ok(Options {
            names,
            keys: self.access.keys()?.into(),
            origins: self.access.cors_origin.clone(),
            hosts: self.host_names(),
            body_limit: self.limits.max_body << 20,
            memory: Machine::read()?.memory_limit(),
            read_timeout: seconds(self.limits.read_timeout as u64),
            write_timeout: seconds(self.limits.write_timeout as u64),
            request_timeout: Some(self.limits.request_timeout).filter(|&s| s > 0).map(seconds),
            connections: self.limits.max_connections,
            per_address: self.limits.max_connections_per_address,
            page: !self.access.no_page,
            measure_reads: Some(crate::report::limits),
            choices: self.limits.max_choices,
            drain: seconds(self.limits.drain_timeout),
            sampler: self.sampling.params()?,
            pooling: self.pooling.map(Into::into),
            slot_saves: self.slot_save_path.clone(),
            slot_save_bytes: self.slot_save_bytes,
            media: Media {
                folder: self.media_path.clone(),
                pixels,
                all_pixels: Media::all_pixels(pixels),
                bytes: (self.limits.max_body as u64) << 20,
                ..Media::default()
            },
            ..Options::default()
        })
    }

    /// The model's name for clients: that of its file, or as it was asked for where files are named by digests.
    pub(super) fn name_of(&self, file: &Path) -> String {
        match self.model.named() {
            Some(asked) if is_digest(file) => asked.to_string_lossy().into_owned(),
            _ => name_of(file),
        }
    }

    /// How the model is to be loaded, but for the cores: [`Self::cores`].
    pub(crate) fn loading(&self) -> Result<LoadOptions, Error> {
        Ok(LoadOptions {
            context: self.ctx,
            sequences: Some(self.parallel),
            kv_size: self.kv_tokens.map_or(KvSize::Fit, KvSize::Tokens),
            // For /metrics: two looks at the clock for each wait.
            stats: true,
            stage: self.hosts.stage()?,
            ..self.machine.untuned()
        })
    }

    /// Reads the adapters, and tells what clients can name.
    pub(crate) fn adapters(
        &self,
        file: &ModelFile,
        options: &mut LoadOptions,
        names: &[String],
    ) -> Result<Vec<ServedAdapter>, Error> {
        self.machine.lora.add_named(file, options)?;
        let all = options.adapters.iter().zip(self.machine.lora.scales());
        all.map(|(one, scale)| match names.contains(&one.name) {
            false => Ok(ServedAdapter { name: one.name.clone(), scale }),
            true => {
                let message = format!("--lora: {} is the model's own name already", one.name);
                Err(Error::Usage(message))
            }
        })
        .collect()
    }

    /// What decides on the cores.
    pub(super) fn cores(&self) -> Cores {
        // A profile is for a model that is whole.
        let tuned = (!self.hosts.has_stage()).then(|| self.machine.tuned.clone());
        let kernels = self.machine.tuned.kernels.clone();
        Cores { tuned, kernels, replicas: self.replicas }
    }

    pub(crate) fn serving(&self, model: &ModelFile) -> Result<ReplicaOptions, Error> {
        let encoder = self.images.file(model, self.model.offline)?;
        Ok(ReplicaOptions {
            replicas: self.replicas,
            queue: Some(self.queue),
            max_step: self.max_step_ms.map(|ms| Duration::from_millis(ms as u64)),
            prefix_cache: !self.no_prefix_cache,
            disk: self
                .cache_dir
                .clone()
                .map(|folder| DiskCache { folder, bytes: self.cache_bytes }),
            saves: self.slot_save_path.is_some(),
            speculation: self.speculate.speculation(self.model.offline)?,
            encoder: encoder.map(Arc::new),
            ..ReplicaOptions::default()
        })
    }

    /// How conversations are written and answers read.
    pub(crate) fn style(&self) -> ChatStyle {
        let given = GivenTemplate::style(self.chat_template.clone());
        ChatStyle { family: self.chat_format, parse_special: self.parse_special, ..given }
    }

    /// Where it listens.
    pub(super) fn places(&self) -> Result<Vec<Place>, Error> {
        let place = |host: &String| Place::read("--host", host, (host.as_str(), self.port));
        self.host.iter().map(place).collect()
    }

    /// Where it listens for operators alone.
    pub(super) fn admin_places(&self) -> Result<Vec<Place>, Error> {
        let place = |text: &String| Place::read("--admin-listen", text, text.as_str());
        self.admin_listen.iter().map(place).collect()
    }

    /// Requests that may wait.
    pub(super) fn queue(&self) -> Option<usize> {
        Some(self.queue)
    }

    /// Leaves as in `before` what a reload would do something about that cannot change.
    pub(super) fn as_started(&mut self, before: &ServeArgs) {
        self.slot_save_path.clone_from(&before.slot_save_path);
        self.log_format = before.log_format;
    }

    /// The names by which browsers may address the server: those that were given for that, and those to listen on.
    fn host_names(&self) -> Vec<String> {
        let is_name = |host: &&String| {
            host.parse::<IpAddr>().is_err() && !host.starts_with("unix:") && !host.is_empty()
        };
        let names = self.host.iter().filter(is_name);
        self.access.allowed_host.iter().chain(names).cloned().collect()
    }
}

impl ServeArgs {
    /// Which model.
    pub(crate) fn model(&self) -> &ModelArg {
        &self.model
    }

    /// How much of the machine.
    pub(crate) fn machine(&self) -> &MachineArgs {
        &self.machine
    }

    /// Whether there are models to choose from.
    pub(crate) fn has_several(&self) -> bool {
        !self.more.is_empty() || self.several.models_dir.is_some() || !self.tables.is_empty()
    }

    /// The same for another model.
    pub(super) fn for_model(&self, path: PathBuf) -> ServeArgs {
        let model = self.model.named_as(path);
        ServeArgs { model, more: Vec::new(), alias: Vec::new(), tables: Vec::new(), ..self.clone() }
    }

    /// The same without other models.
    pub(super) fn for_own_model(&self) -> ServeArgs {
        ServeArgs { more: Vec::new(), tables: Vec::new(), ..self.clone() }
    }

    /// The same with a name, unless it has one.
    pub(super) fn named(mut self, name: &str) -> ServeArgs {
        if self.alias.is_empty() {
            self.alias.push(name.to_owned());
        }
        self
    }
}

/// A model's name for clients: its file's, without what is only about files.
fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gguf").unwrap_or(&name);
    // The first part of a split model stands for all.
    let name = match name.rsplit_once("-00001-of-") {
        Some((name, parts)) if parts.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => name,
    };
    name.replace(' ', "-")
}

/// Whether a file is one of Ollama's.
fn is_digest(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sha256-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_called_as_their_files() {
        let name = |path: &str| name_of(Path::new(path));
        assert_eq!(name("/models/Qwen3-4B-Q4_K_M.gguf"), "Qwen3-4B-Q4_K_M");
        assert_eq!(name("big-00001-of-00003.gguf"), "big");
        assert_eq!(name("demo model"), "demo-model");
    }
}
