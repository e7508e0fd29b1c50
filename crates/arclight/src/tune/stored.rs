//! Profiles on disk: where they are, for whom they are, and how they become options of loading.
//!
//! A profile is for one machine (as far as this process may use it), one model (its tensors' names, types
//! and shapes) and one version of the program with the kernels that it has here. What does not fit is
//! told and not used.

use super::matrices;
use crate::error::Error;
use crate::home;
use crate::kernel_files;
use crate::model_info::ModelInfo;
use crate::replace;
use crate::term::note;
use arclight_engine::{CpuList, HugePages, LoadOptions, Phase, Schedules};
use gguf::Gguf;
use kernels::Foreign;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use topology::Machine;
use tune::tuner::{Identity, Level, Objective, Outcome, Profile, Table};

/// The name of the choice between page sizes.
pub(super) const PAGES: &str = "huge-pages";
/// Its values, the default first.
pub(super) const PAGE_SIZES: [(&str, HugePages); 2] =
    [("transparent", HugePages::Transparent), ("off", HugePages::Off)];

/// The name of the choice between prefetch distances, and its values in bytes, the default first.
pub(super) const PREFETCH: &str = "prefetch";
pub(super) const DISTANCES: [&str; 4] = ["4096", "2048", "8192", "0"];

/// The name of the choice of how two nodes exchange the sums of many rows, and its values, the default first.
pub(super) const GATHER: &str = "gather";
pub(super) const GATHERS: [&str; 2] = ["pulled", "scattered"];

/// Whom a profile is for.
pub(super) struct For {
    pub(super) machine: Identity,
    pub(super) model: Identity,
    pub(super) program: Identity,
}

impl For {
    /// A model that so many replicas serve at the same time, each on its part of the machine.
    pub(super) fn of(machine: &Machine, replicas: usize, gguf: &Gguf<'_>) -> Result<For, Error> {
        let kernels = kernels::Kernels::detect().map_err(arclight_engine::Error::from)?;
        let version = format!("{} with {} kernels", env!("CARGO_PKG_VERSION"), kernels.isa());
        let program = Identity { digest: version.clone(), words: format!("arclight {version}") };
        Ok(For {
            machine: machine_identity(machine, replicas),
            model: model_identity(gguf),
            program,
        })
    }

    /// Where the profile is kept; `None` without a home.
    pub(super) fn path(&self) -> Option<PathBuf> {
        Some(home::cache()?.join("arclight").join(Profile::file_name(&self.machine, &self.model)))
    }

    /// A profile of theirs, for the shortest time.
    pub(super) fn profile(self, outcome: Outcome, took: Duration) -> Profile {
        let For { machine, model, program } = self;
        let (seconds, objective) = (took.as_secs_f64(), Objective::Time);
        Profile { machine, model, program, date: today(), seconds, objective, outcome }
    }
}

/// Makes the folders above a profile, and checks that it can be written.
pub(super) fn prepare(path: &Path) -> Result<(), Error> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| Error::write(folder, e))?;
    }
    replace::probe(path).map_err(|e| Error::write(path, e))
}

/// Writes a profile.
pub(super) fn keep(path: &Path, text: &str) -> Result<(), Error> {
    prepare(path)?;
    replace::bytes(path, text.as_bytes()).map_err(|e| Error::write(path, e))
}

fn machine_identity(machine: &Machine, replicas: usize) -> Identity {
    let mut all = machine.model().unwrap_or_default().to_owned();
    for cpu in machine.cpus() {
        let topology::Cpu { id, node, package, die, cluster, core, l2, l3, .. } = cpu;
        all += &format!("\n{id} {node} {package} {die:?} {cluster:?} {core} {l2:?} {l3:?}");
    }
    for node in machine.usable_nodes() {
        all += &format!("\nnode {} {:?}", node.id, node.distances);
    }
    all += &format!("\nquota {:?}", machine.quota());
    let cpus: CpuList = machine.cpus().iter().map(|cpu| cpu.id).collect();
    let mut words = format!("{}, cpus {cpus}", machine.model().unwrap_or("unknown CPU"));
    if replicas > 1 {
        all += &format!("\nreplicas {replicas}");
        words += &format!(", {replicas} replicas");
    }
    Identity::of(&all, words)
}

fn model_identity(gguf: &Gguf<'_>) -> Identity {
    let of = |t: &gguf::Tensor<'_>| format!("{} {:?} {:?}\n", t.name(), t.ty, t.shape.dims());
    let all: String = gguf.tensors().iter().map(of).collect();
    let info = ModelInfo::of(gguf);
    Identity::of(&format!("{}\n{all}", info.architecture), format!("{} {}", info.name, info.ty))
}

/// Reads a profile; `None` where there is none and none was asked for.
pub(super) fn read(path: &Path, asked: bool) -> Result<Option<Profile>, Error> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound && !asked => return Ok(None),
        Err(e) => return Err(Error::read(path, e)),
    };
    let profile = Profile::parse(&text);
    profile.map(Some).map_err(|e| Error::in_file(path, e))
}

/// What a profile says, as options of loading; beside it, kernels that were loaded.
pub(super) fn put(profile: &Profile, loaded: &[&'static Foreign], options: &mut LoadOptions) {
    let Outcome { scheme, table, choices, .. } = &profile.outcome;
    options.groups = Some(scheme.groups().to_vec());
    options.phases = phases(table, &scheme.all());
    options.huge_pages = options.huge_pages.or(pages(choices));
    let (schedules, faults) = schedules(&profile.outcome);
    faults.iter().for_each(|fault| note!("left out of the profile: {fault}"));
    let known = &profile.outcome.schedules.foreign;
    options.schedules = kernel_files::beside(schedules, known, loaded);
    options.scatter_nodes = scatter_nodes(choices);
}

/// A table as the engine has it, where a step uses `all` CPUs unless it is told otherwise.
pub(super) fn phases(table: &Table, all: &Level) -> Vec<Phase> {
    let rows = table.rows().iter().filter(|row| row.up_to < u32::MAX || row.level != *all);
    rows.map(|row| Phase { tokens: row.up_to as usize, threads: row.level.cpus().to_vec() })
        .collect()
}

/// How an outcome multiplies, and what of that cannot be used here.
pub(super) fn schedules(outcome: &Outcome) -> (Schedules, Vec<String>) {
    let (mut schedules, faults) = matrices::all(&outcome.schedules);
    schedules.usual.ahead = ahead(&outcome.choices).unwrap_or(schedules.usual.ahead);
    (schedules, faults)
}

/// The page size among choices.
pub(super) fn pages(choices: &[(String, String)]) -> Option<HugePages> {
    let (_, value) = choices.iter().find(|(name, _)| name == PAGES)?;
    Some(PAGE_SIZES.iter().find(|(size, _)| size == value)?.1)
}

/// From how many nodes on sums are scattered, where choices say it.
pub(super) fn scatter_nodes(choices: &[(String, String)]) -> Option<usize> {
    let (_, value) = choices.iter().find(|(name, _)| name == GATHER)?;
    (value == GATHERS[1]).then_some(2)
}

/// The prefetch distance among choices, in bytes.
pub(super) fn ahead(choices: &[(String, String)]) -> Option<usize> {
    choices.iter().find(|(name, _)| name == PREFETCH)?.1.parse().ok()
}

/// The day, in UTC, as people write it.
fn today() -> String {
    tokenizer::strftime(SystemTime::now(), "%F").expect("a known directive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::fake::FakeMachine;

    #[test]
    fn another_machine_or_model_has_another_identity() {
        let of = |cores| machine_identity(&FakeMachine::uniform(1, cores).machine().unwrap(), 1);
        assert_eq!(of(4), of(4));
        assert_ne!(of(4).digest, of(3).digest);
        let model = |ty| {
            let bytes = testkit::TinyModel::qwen3(ty).gguf();
            model_identity(&Gguf::parse(&bytes).unwrap())
        };
        assert_eq!(model(gguf::TensorType::Q4_0), model(gguf::TensorType::Q4_0));
        assert_ne!(model(gguf::TensorType::Q4_0).digest, model(gguf::TensorType::Q8_0).digest);
    }
}
