//! `arclight serve`: a model behind OpenAI's API.
//!
//! Here is what is about the command: its arguments (`args`), where else they may come from
//! (`settings`), signals, the lines that tell how far it is. The server itself is `arclight-server`.

mod args;
mod cores;
pub(crate) mod settings;

pub(crate) use args::ServeArgs;

use crate::chat_template::GivenTemplate;
use crate::error::Error;
use crate::term::{self, note};
use crate::tune::first::Untuned;
use crate::{hub, load, lora};
use arclight_engine::{LoadOptions, LoadProgress, ModelFile, ReplicaOptions};
use arclight_server::{App, ChatStyle, Model, Server};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use topology::Machine;

/// Runs the command.
pub(crate) fn run(args: &ServeArgs) -> Result<(), Error> {
    let file = Arc::new(load::open(&args.model)?);
    // What is wrong with the file is told before anything listens.
    file.gguf()?;
    let mut options = args.options(&file)?;
    let mut loading_options = args.loading()?;
    options.adapters = args.adapters(&file, &mut loading_options, &options.names)?;
    lora::report(&loading_options.adapters);
    let untuned = args.cores().choose(&file, &mut loading_options)?;
    let loading = Loading {
        file: file.clone(),
        options: loading_options,
        serving: args.serving(&file)?,
        style: ChatStyle {
            family: args.chat_format,
            ..GivenTemplate::style(args.chat_template.clone())
        },
    };
    let address = args.address()?;
    let cores = Machine::read()?.usable_cores();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(if cores > 4 { 2 } else { 1 })
        // These read long bodies and render templates: work for a few, not for as many as there are
        // requests.
        .max_blocking_threads(if cores > 4 { 4 } else { 2 })
        .thread_name("http")
        .enable_all()
        .build()
        .map_err(|source| Error::Io { what: "cannot start threads for HTTP".into(), source })?;
    let app = Arc::new(App::new(options));
    let served = runtime.block_on(serve(app, address, loading, untuned));
    // Whatever still runs for a request that was cut off is not waited for.
    runtime.shutdown_background();
    served
}

async fn serve(
    app: Arc<App>,
    address: SocketAddr,
    loading: Loading,
    untuned: Option<Untuned>,
) -> Result<(), Error> {
    let signals = Signals::install()?;
    allow_connections(app.connections());
    let server = Server::bind(app.clone(), address).await?;
    let address = server.address();
    note!("listening on http://{address}, loading {}", loading.file.path().display());
    let running = hub::Running::announce(address.to_string(), app.name(), loading.file.path());
    let _running = running
        .inspect_err(|e| tracing::warn!("arclight ps does not list this server: {}", e.line()))
        .ok();
    let (failed, failure) = oneshot::channel();
    let start = Instant::now();
    let queue = loading.serving.queue.unwrap_or(usize::MAX);
    std::thread::spawn(move || match loading.run() {
        Ok(model) => {
            let line = ready_line(&app, &model, address, queue, start.elapsed());
            let idle = model.replicas().idle_time(0);
            // Who reads the line may ask at once.
            app.ready(model);
            note!("{line}");
            if let Some(untuned) = untuned {
                let when_idle = move |task| Ok(idle.ask(task)?);
                untuned.learn(Box::new(when_idle), |line| note!("{line}"));
            }
        }
        Err(error) => {
            let _ = failed.send(error);
        }
    });
    let mut error = None;
    let stop = async {
        let failed = async {
            match failure.await {
                Ok(error) => error,
                // Loaded: nothing can fail there any more.
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            failed = failed => error = Some(failed),
            () = signals.first() => {}
        }
    };
    server.run(stop).await;
    error.map_or(Ok(()), Err)
}

/// Lets the process have as many files open as it has connections, since systems give 1024 to those
/// who do not ask.
fn allow_connections(connections: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    // Beside connections: the model, the log, what the runtime has.
    let need = connections as u64 + 64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= need) {
        return;
    }
    let most = limit.maximum.map_or(need, |maximum| maximum.min(need));
    limit.current = Some(most);
    if setrlimit(Resource::Nofile, limit).is_err() || most < need {
        tracing::warn!(
            "files that may be open are fewer than --max-connections {connections} needs: raise the \
             limit (ulimit -n {need})"
        );
    }
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
fn ready_line(
    app: &App,
    model: &Model,
    address: SocketAddr,
    queue: usize,
    time: Duration,
) -> String {
    let replicas = model.replicas().replicas();
    let slots: usize = replicas.iter().map(|r| r.sequences).sum();
    let threads: usize = replicas.iter().map(|r| r.threads).sum();
    let plan = replicas.first().map_or_else(String::new, |first| {
        let nodes = term::plural(first.nodes.len(), "node");
        let mode =
            if first.nodes.len() > 1 { format!(", {}", first.report.mode) } else { String::new() };
        match replicas.len() {
            1 => format!("{} on {nodes}{mode}", term::plural(threads, "thread")),
            n => format!(
                "{n} replicas, {} in all, each on {nodes}{mode}",
                term::plural(threads, "thread")
            ),
        }
    });
    format!(
        "serving {} on http://{address}/v1: context {}, {}, {queue} may wait, {plan}; loaded in {}",
        app.name(),
        model.replicas().context(),
        term::plural(slots, "slot"),
        term::seconds(time),
    )
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn install() -> Result<Signals, Error> {
        let listen = |kind| {
            signal(kind)
                .map_err(|source| Error::Io { what: "cannot listen to signals".into(), source })
        };
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits for one; after it a second ends the program at once.
    async fn first(mut self) {
        self.next().await;
        note!("stopping: requests are finished first; once more to end at once");
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(crate::interrupt::EXIT_CODE.into());
        });
    }
}
