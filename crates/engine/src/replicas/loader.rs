//! A replica's thread from its beginning: it loads, and then serves.

use super::lanes::Seat;
use super::options::ReplicaOptions;
use super::queue::Shared;
use super::runner::{Crew, serve};
use super::status::ReplicaInfo;
use super::watch::Watch;
use crate::control::Control;
use crate::disk::{Store, fingerprint};
use crate::encoder::Encoder;
use crate::engine::Engine;
use crate::error::{Error, message};
use crate::file::ModelFile;
use crate::load::LoadProgress;
use crate::options::LoadOptions;
use crate::speculate::Speculator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use topology::{CpuList, Machine};

/// What a thread that loads tells.
pub(super) enum News {
    Progress(LoadProgress),
    Loaded(Box<(ReplicaInfo, Seat)>),
    Failed(Error),
}

/// Loads one replica, on its own thread.
#[derive(Clone)]
pub(super) struct Loader {
    pub me: usize,
    pub file: Arc<ModelFile>,
    pub part: Machine,
    pub options: LoadOptions,
    pub serving: ReplicaOptions,
    pub disk: Option<Arc<Store>>,
    pub control: Control,
}

/// A replica that is loaded.
pub(super) struct Loaded {
    pub(super) crew: Crew,
    pub(super) seat: Seat,
    info: ReplicaInfo,
}

impl Loader {
    pub(super) fn run(self, news: Sender<(usize, News)>, shared: &Receiver<Arc<Shared>>) {
        let me = self.me;
        // Nobody listens any more when another has failed.
        let tell = |what| _ = news.send((me, what));
        let Loaded { crew, seat, info } = match self.load(&mut |now| tell(News::Progress(now))) {
            Ok(loaded) => loaded,
            Err(error) => return tell(News::Failed(error)),
        };
        tell(News::Loaded(Box::new((info, seat))));
        let serving = self.serving.clone();
        drop((self, news));
        if let Ok(shared) = shared.recv() {
            serve(me, crew, &serving, shared);
        }
    }

    /// Loads it; a panic is an error, too.
    pub(super) fn load(&self, told: &mut dyn FnMut(LoadProgress)) -> Result<Loaded, Error> {
        let replica = self.me;
        let fault = |source| Error::Replica { replica, cpus: self.cpus(), source };
        match catch_unwind(AssertUnwindSafe(|| self.load_now(told))) {
            Ok(loaded) => loaded.map_err(|error| fault(Box::new(error))),
            Err(panic) => {
                let reason = format!("it panicked: {}", message(&*panic));
                Err(fault(Box::new(Error::ReplicaFailed { replica, reason })))
            }
        }
    }

    fn load_now(&self, told: &mut dyn FnMut(LoadProgress)) -> Result<Loaded, Error> {
        let (part, options) = (&self.part, &self.options);
        let file = self.file.for_another()?;
        let mut engine = Engine::load_part(&file, part, options, &self.control, told)?;
        if self.serving.cache_events.is_some() {
            engine.tell_cache_events();
        }
        if self.disk.is_some() || self.serving.saves {
            let context = engine.context();
            let root = fingerprint(&file, &engine.executor, context)?;
            engine.name_pages(root);
            self.disk.iter().for_each(|disk| engine.keep_on_disk(disk.clone()));
        }
        let ReplicaOptions { speculation, always_speculate, encoder, .. } = &self.serving;
        let speculator = Speculator::load(&engine, speculation, options)?;
        let speculator = match always_speculate {
            true => speculator.map(Speculator::always),
            false => speculator,
        };
        let encoder = encoder
            .as_ref()
            .map(|file| Encoder::load(&*file.for_another()?, &engine, options, &mut |_| {}));
        let encoder = encoder.transpose()?;
        let mut watch = Watch::new(&mut engine);
        let groups = watch.look(&mut engine);
        let limits = engine.limits();
        let plan = engine.plan();
        let info = ReplicaInfo {
            nodes: plan.groups.iter().filter_map(|g| g.node).collect(),
            groups: plan.groups.len(),
            cpus: self.cpus(),
            threads: plan.threads(),
            // Each is to have a token and a row of logits in every step.
            sequences: options.sequences.unwrap_or(1).min(limits.tokens).min(limits.outputs),
            report: engine.report().clone(),
        };
        let seat = Seat {
            nodes: info.nodes.clone(),
            threads: info.threads,
            slots: info.sequences,
            pages: engine.pages(),
            groups,
            experts: watch.experts(),
            company: engine.company().cloned().unwrap_or_default(),
        };
        let cores = self.control.cores.clone();
        Ok(Loaded { crew: Crew { engine, speculator, encoder, watch, cores }, seat, info })
    }

    fn cpus(&self) -> CpuList {
        self.part.cpus().iter().map(|c| c.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gguf::TensorType;
    use std::sync::atomic::Ordering::Relaxed;
    use testkit::TinyModel;
    use topology::fake::FakeMachine;

    #[test]
    fn a_load_can_be_stopped() {
        let file = ModelFile::from_bytes("tiny", TinyModel::qwen3(TensorType::Q4_0).gguf());
        let machine = FakeMachine::uniform(1, 2).machine().unwrap();
        let options = LoadOptions { no_pin: true, context: Some(64), ..LoadOptions::default() };
        let control = Control::default();
        let mut matrices = 0;
        let mut load = |after| {
            let mut told = |_| {
                matrices += 1;
                control.stop.store(matrices == after, Relaxed);
            };
            let loaded = Engine::load_part(&file, &machine, &options, &control, &mut told).is_ok();
            (loaded, std::mem::take(&mut matrices))
        };
        assert!(load(usize::MAX).1 > 3);
        assert_eq!(load(2), (false, 2));
    }
}
