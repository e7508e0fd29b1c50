//! Tuning profiles, applied to the options of loading.
//!
//! Options that say something about cores or nodes take precedence over a profile.

use super::first::Untuned;
use super::stored::{For, put, read};
use crate::error::Error;
use crate::kernel_files::KernelArgs;
use crate::term::note;
use arclight_engine::{LoadOptions, ModelFile, Numa};
use clap::{Args, ValueHint};
use kernels::Foreign;
use std::path::PathBuf;
use topology::Machine;

/// Which profile.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Machine")]
pub(crate) struct ProfileArgs {
    /// Use the cores that `arclight tune` has found, from this file instead of the cache directory
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["threads", "numa", "nodes", "cpus", "untuned"])]
    pub(crate) profile_file: Option<PathBuf>,
    /// Do not use what `arclight tune` has found
    #[arg(long)]
    pub(crate) untuned: bool,
    #[command(flatten)]
    pub(crate) kernels: KernelArgs,
}

/// What became of looking for a profile.
pub(crate) enum Found {
    /// It is used.
    Used,
    /// There is none that fits.
    Nothing(Untuned),
    /// None is to be used.
    Unwanted,
}

/// Applies the profile for a model, if there is one and nothing speaks against it. One that cannot be used is
/// left alone, but an error if it was asked for by name. A note says so. Kernels from elsewhere are loaded first;
/// where they are used without a profile, nothing is left to be found in idle time.
pub(crate) fn apply(
    file: &ModelFile,
    args: &ProfileArgs,
    replicas: usize,
    options: &mut LoadOptions,
) -> Result<Found, Error> {
    let loaded = args.kernels.load()?;
    options.schedules.preferred.clone_from(&loaded);
    let found = apply_profile(file, args, replicas, &loaded, options)?;
    Ok(match found {
        Found::Nothing(_) if !loaded.is_empty() => Found::Unwanted,
        found => found,
    })
}

fn apply_profile(
    file: &ModelFile,
    args: &ProfileArgs,
    replicas: usize,
    loaded: &[&'static Foreign],
    options: &mut LoadOptions,
) -> Result<Found, Error> {
    let LoadOptions { numa, nodes, on_nodes, on_cpus, threads, no_pin, .. } = &*options;
    let own = *numa != Numa::Auto || nodes.is_some() || threads.is_some() || *no_pin;
    if args.untuned || own || on_nodes.is_some() || on_cpus.is_some() {
        return Ok(Found::Unwanted);
    }
    let owner = For::of(&Machine::read()?, replicas, &file.gguf()?)?;
    let asked = args.profile_file.is_some();
    let Some(path) = args.profile_file.clone().or_else(|| owner.path()) else {
        return Ok(Found::Unwanted);
    };
    let profile = match read(&path, asked) {
        Ok(profile) => profile,
        Err(e) if asked => return Err(e),
        Err(e) => {
            note!("{e}; it is not used");
            None
        }
    };
    if let Some(profile) = profile {
        match profile.applies(&owner.machine, &owner.model, &owner.program) {
            Ok(()) => {
                put(&profile, loaded, options);
                note!("cores as tuned on {} ({})", profile.date, path.display());
                return Ok(Found::Used);
            }
            Err(stale) if asked => return Err(Error::in_file(&path, stale)),
            Err(stale) => note!("{}: {stale}; it is not used", path.display()),
        }
    }
    let untuned = Untuned::new(owner, path);
    if replicas == 1 && !options.fixed_cores {
        options.few_threads = untuned.few_threads();
    }
    Ok(Found::Nothing(untuned))
}

/// Leaves a core to others, where a profile uses all of more than two.
pub(crate) fn leave_one(machine: &Machine, options: &mut LoadOptions) {
    let Some(groups) = &mut options.groups else { return };
    let used: usize = groups.iter().map(|group| group.cpus.len()).sum();
    let cores = machine.usable_cores();
    if used < cores || cores <= 2 {
        return;
    }
    // The last of the largest group: the one that is used least.
    let largest = (0..groups.len()).max_by_key(|&g| groups[g].cpus.len());
    let Some(at) = largest.filter(|&g| groups[g].cpus.len() > 1) else { return };
    // Each node has other rows then; what was found for those that it had is carried over.
    let all = groups.iter().map(|group| group.cpus.len()).collect();
    let phases = options.phases.iter().map(|phase| phase.threads.clone());
    options.schedules_for = Some(phases.chain([all]).collect());
    groups[at].cpus.pop();
    let left = groups[at].cpus.len();
    for phase in &mut options.phases {
        phase.threads[at] = phase.threads[at].min(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arclight_engine::{CpuId, Group, Phase};
    use topology::fake::FakeMachine;

    fn group(cpus: std::ops::Range<u32>) -> Group {
        Group { node: None, cpus: cpus.map(CpuId).collect() }
    }

    #[test]
    fn a_core_is_left_where_all_are_used() {
        let machine = FakeMachine::uniform(2, 4).machine().unwrap();
        let options = |second: u32| LoadOptions {
            groups: Some(vec![group(0..4), group(4..second)]),
            phases: vec![
                Phase { tokens: 1, threads: vec![2, 1] },
                Phase { tokens: 9, threads: vec![4, 2] },
            ],
            ..LoadOptions::default()
        };
        let mut all = options(8);
        leave_one(&machine, &mut all);
        assert_eq!(all.groups.unwrap().iter().map(|g| g.cpus.len()).collect::<Vec<_>>(), [4, 3]);
        let threads: Vec<_> = all.phases.iter().map(|phase| phase.threads.clone()).collect();
        assert_eq!(threads, [[2, 1], [4, 2]]);
        assert_eq!(all.schedules_for, Some(vec![vec![2, 1], vec![4, 2], vec![4, 4]]));
        let mut some = options(7);
        leave_one(&machine, &mut some);
        assert_eq!(some, options(7));
    }
}
