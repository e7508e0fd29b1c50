//! One model over several hosts: a stage that takes no requests.

use super::args::ServeArgs;
use super::front::{Front, runtime};
use super::reload::Settings;
use super::system;
use crate::error::Error;
use crate::load;
use crate::term::note;
use arclight_engine::StageServer;
use arclight_server::{Keys, StageSite};
use std::sync::Arc;
use std::thread;
use tokio::sync::oneshot;

/// Runs a stage before the last.
pub(super) fn run(args: &ServeArgs) -> Result<(), Error> {
    let file = Arc::new(load::open(&args.model)?);
    let mut options = args.loading()?;
    args.cores().choose(&file, &mut options)?;
    let server = StageServer::bind(args.hosts.listen(), &file, &options)?;
    let (status, stop, layers) = (server.status(), server.stopper(), server.layers());
    let site = Arc::new(StageSite::new(args.options(file.path())?, status.clone()));
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let settings = Settings::new(Keys::default(), args, Box::new(|_| Ok(Box::new(|| {}))));
        let front = Front::open(site, settings, args).await?;
        note!(
            "serving layers {} to {} as stage {}/{} on {}; /health and /metrics on {}",
            layers.start,
            layers.end - 1,
            status.stage,
            status.of,
            server.address(),
            front.urls(),
        );
        system::serving();
        let (ended, end) = oneshot::channel();
        let computing = thread::Builder::new().name("stage".to_owned()).spawn(move || {
            server.run();
            let _ = ended.send(());
        });
        let fault = |source| Error::Io { what: "cannot start a thread".into(), source };
        let computing = computing.map_err(fault)?;
        let failed = async {
            // It ends by itself only when it has panicked.
            let _ = end.await;
            Error::Refused("the thread that computes has ended: see above".to_owned())
        };
        let served = front.run(failed).await;
        stop.stop();
        let _ = computing.join();
        served
    });
    runtime.shutdown_background();
    served
}
