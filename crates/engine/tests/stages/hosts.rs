//! Hosts of a model in one process, which speak over the loopback interface.

use arclight_engine::{
    Engine, LoadOptions, ModelFile, StageKey, StageOptions, StageServer, StageStatus, StageStop,
};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The stages before the front.
pub(crate) struct Hosts {
    pub(crate) file: Arc<ModelFile>,
    pub(crate) of: usize,
    pub(crate) stages: Vec<Host>,
}

/// A stage that runs.
pub(crate) struct Host {
    pub(crate) address: String,
    pub(crate) status: Arc<StageStatus>,
    stop: StageStop,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Options of tests.
pub(crate) fn options() -> LoadOptions {
    LoadOptions {
        no_pin: true,
        threads: Some(1),
        context: Some(256),
        sequences: Some(4),
        step_outputs: Some(64),
        step_tokens: Some(64),
        ..LoadOptions::default()
    }
}

/// Runs stage `number` of `of`.
pub(crate) fn host(
    file: &Arc<ModelFile>,
    (number, of): (usize, usize),
    address: &str,
    options: &LoadOptions,
) -> Result<Host, arclight_engine::Error> {
    let key = options.stage.as_ref().map(|stage| stage.key.clone()).unwrap_or_default();
    let stage = Some(StageOptions { number, of, peers: Vec::new(), key, without_key: false });
    let options = LoadOptions { stage, ..options.clone() };
    let (file, address) = (file.clone(), address.to_owned());
    // The thread that binds may not be the one that computes.
    let server = StageServer::bind(&address, &file, &options)?;
    let (address, status, stop) = (server.address().to_string(), server.status(), server.stopper());
    let thread = Some(std::thread::spawn(move || server.run()));
    Ok(Host { address, status, stop, thread })
}

impl Hosts {
    /// Runs all stages before the front.
    pub(crate) fn run(bytes: Vec<u8>, of: usize, options: &LoadOptions) -> Hosts {
        let file = Arc::new(ModelFile::from_bytes("tiny", bytes));
        let host = |number| host(&file, (number, of), "127.0.0.1:0", options).unwrap();
        let stages = (1..of).map(host).collect();
        Hosts { file, of, stages }
    }

    /// The front's options.
    pub(crate) fn front(&self, options: &LoadOptions) -> LoadOptions {
        let peers = self.stages.iter().map(|host| host.address.clone()).collect();
        let key = StageKey::default();
        let stage =
            Some(StageOptions { number: self.of, of: self.of, peers, key, without_key: false });
        LoadOptions { stage, ..options.clone() }
    }

    /// The front's engine.
    pub(crate) fn engine(&self, options: &LoadOptions) -> Engine {
        Engine::load(&self.file, &self.front(options), &mut |_| {}).unwrap()
    }
}
