//! `arclight serve`: a model behind OpenAI's API.
//!
//! Here is what is about the command: its arguments (`args`), where else they may come from
//! (`settings`), several models (`several`), a model over several hosts (`hosts`), sockets (`front`), signals and the
//! service manager (`system`), the lines that tell how far it is. The server itself is `arclight-server`.

mod access;
pub(crate) mod args;
mod cores;
mod files;
pub(crate) mod front;
mod gateway;
mod hosts;
mod keeper;
mod maker;
mod manifest;
mod places;
mod reload;
mod sampling;
pub(crate) mod settings;
mod several;
mod stage;
mod stored;
mod system;
mod telemetry;
mod tools;

use crate::error::Error;
use crate::hub::servers::Running;
use crate::term::{self, note};
use crate::tune::first::Untuned;
use crate::{load, lora};
use arclight_engine::{LoadOptions, LoadProgress, ModelFile, ReplicaOptions};
use arclight_server::{App, ChatStyle, Model};
use args::ServeArgs;
use front::{Front, runtime};
use reload::Settings;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::Traces;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Runs the command.
pub(crate) fn run(args: &ServeArgs) -> Result<(), Error> {
    memory::limit_arenas();
    if let Some(value) = settings::linked_port() {
        tracing::warn!(
            "ARCLIGHT_PORT={value} is not taken as the option port: it is what Kubernetes says of a Service named \
             arclight (enableServiceLinks: false leaves it out)"
        );
    }
    let _traces = Traces::begin(args.otlp_endpoint.as_deref())?;
    args.hosts.check(args.has_several())?;
    if args.has_several() {
        return several::run(args);
    }
    if args.hosts.takes_no_requests() {
        return hosts::run(args);
    }
    let file = Arc::new(load::open(&args.model)?);
    // What is wrong with the file is told before anything listens.
    file.gguf()?;
    let mut options = args.options(file.path())?;
    let mut loading_options = args.loading()?;
    options.files = args.files.open()?;
    options.page_tools = args.tools.connect()?;
    options.adapters = args.adapters(&file, &mut loading_options, &options.names)?;
    lora::report(&loading_options.adapters);
    let untuned = args.cores().choose(&file, &mut loading_options)?;
    if let Some(untuned) = &untuned {
        untuned.try_fewer(&mut loading_options, |line| note!("{line}"));
    }
    let loading = Loading {
        file: file.clone(),
        options: loading_options,
        serving: args.serving(&file)?,
        style: args.style(),
    };
    let runtime = runtime()?;
    let keys = options.keys.clone();
    let app = Arc::new(App::new(options));
    let (changing, ended) = (app.clone(), app.clone());
    let prepare = move |args: &ServeArgs| {
        let (app, options, queue) = (changing.clone(), args.options(file.path())?, args.queue());
        Ok(Box::new(move || app.change(options, queue)) as Box<dyn FnOnce()>)
    };
    let settings = Settings::new(keys, args, Box::new(prepare));
    let served = runtime.block_on(serve(app, args, settings, loading, untuned));
    // Whatever still runs for a request that was cut off is not waited for.
    runtime.shutdown_background();
    ended.end(Duration::from_secs(5));
    served
}

async fn serve(
    app: Arc<App>,
    args: &ServeArgs,
    settings: Settings,
    mut loading: Loading,
    untuned: Option<Untuned>,
) -> Result<(), Error> {
    if let Some(publisher) = args.gateway.publisher().await? {
        loading.serving.cache_events = Some(publisher.of(app.name(), app.adapter_names()));
    }
    let front = Front::open(app.clone(), settings, args).await?;
    note!("listening on {}, loading {}", front.urls(), loading.file.path().display());
    let running = Running::announce(front.listed(), app.name(), loading.file.path());
    let _running = running
        .inspect_err(|e| tracing::warn!("arclight ps does not list this server: {}", e.line()))
        .ok();
    let (failed, failure) = oneshot::channel();
    let start = Instant::now();
    let queue = loading.serving.queue.unwrap_or(usize::MAX);
    let (base, runtime) = (front.base(), Handle::current());
    std::thread::spawn(move || match loading.run() {
        Ok(model) => {
            let line = ready_line(&app, &model, &base, queue, start.elapsed());
            let idle = model.replicas().idle_time(0);
            // Who reads the line may ask at once.
            app.ready(model);
            note!("{line}");
            runtime.block_on(async { system::serving() });
            if let Some(untuned) = untuned {
                let when_idle = move |task| Ok(idle.ask(task)?);
                untuned.learn(Box::new(when_idle), |line| note!("{line}"));
            }
            app.keep_loaded(|| loading.run().map_err(|e| e.line()));
        }
        Err(error) => {
            let _ = failed.send(error);
        }
    });
    let failed = async {
        match failure.await {
            Ok(error) => error,
            // Loaded: nothing can fail there any more.
            Err(_) => std::future::pending().await,
        }
    };
    front.run(failed).await
}

/// What is to be loaded, and how.
struct Loading {
    file: Arc<ModelFile>,
    options: LoadOptions,
    serving: ReplicaOptions,
    style: ChatStyle,
}

impl Loading {
    fn run(&self) -> Result<Model, Error> {
        let bar = term::byte_bar("loading", self.file.bytes() * self.serving.replicas);
        let progress = &mut |p: LoadProgress| {
            bar.set_length(p.total as u64);
            bar.set_position(p.done as u64);
        };
        let model = Model::load(&self.file, &self.options, &self.serving, &self.style, progress);
        bar.finish_and_clear();
        Ok(model?)
    }
}

/// The line that says what is served where.
fn ready_line(app: &App, model: &Model, base: &str, queue: usize, time: Duration) -> String {
    let replicas = model.replicas().replicas();
    let slots: usize = replicas.iter().map(|r| r.sequences).sum();
    let threads: usize = replicas.iter().map(|r| r.threads).sum();
    let plan = replicas.first().map_or_else(String::new, |first| {
        let nodes = term::plural(first.groups, "node");
        let mode =
            if first.groups > 1 { format!(", {}", first.report.mode) } else { String::new() };
        match replicas.len() {
            1 => format!("{} on {nodes}{mode}", term::plural(threads, "thread")),
            n => format!(
                "{n} replicas, {} in all, each on {nodes}{mode}",
                term::plural(threads, "thread")
            ),
        }
    });
    format!(
        "serving {} on {base}: context {}, {}, {queue} may wait, {plan}; loaded in {}",
        app.name(),
        model.replicas().context(),
        term::plural(slots, "slot"),
        term::seconds(time),
    )
}
