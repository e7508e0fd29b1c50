//! Micro-kernels that were written elsewhere: files on the command line.

use crate::error::Error;
use crate::term::note;
use arclight_engine::Schedules;
use clap::{Args, ValueHint};
use kernels::Foreign;
use std::path::PathBuf;

/// Which files.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct KernelArgs {
    /// Shared object with micro-kernels, which are checked against the program's own: tune times them, and other
    /// commands use them, or what a profile says that was tuned with them. It is code that is run: trust it. Can be
    /// given several times
    #[arg(long, value_name = "FILE", value_delimiter = ',', value_hint = ValueHint::FilePath,
          help_heading = "Machine")]
    kernel: Vec<PathBuf>,
}

impl KernelArgs {
    /// Loads and tries the kernels of all files, and tells of them.
    pub(crate) fn load(&self) -> Result<Vec<&'static Foreign>, Error> {
        let mut all = Vec::new();
        for file in &self.kernel {
            for kernel in foreign::load(file).map_err(Error::refused)? {
                if !all.contains(&kernel) {
                    let ty = kernel.product().map_or("no", |product| product.ty().name());
                    note!(
                        "kernel {} for {ty} matrices, of {}: same bits as the scalar kernel",
                        kernel.name(),
                        file.display()
                    );
                    all.push(kernel);
                }
            }
        }
        Ok(all)
    }
}

/// Schedules of a profile, and beside them the kernels that it does not know, which were asked for now: matrices of
/// their types are multiplied by them, and no longer as tuned.
pub(crate) fn beside(
    schedules: Schedules,
    known: &[&'static Foreign],
    loaded: &[&'static Foreign],
) -> Schedules {
    let unknown: Vec<_> = loaded.iter().copied().filter(|kernel| !known.contains(kernel)).collect();
    if unknown.is_empty() {
        return schedules;
    }
    let mut all = Schedules::default();
    all.usual = schedules.usual;
    for (shape, rows) in schedules.iter() {
        let of_unknown = |ty| unknown.iter().any(|kernel| kernel.multiplies(ty));
        if !shape.parts.iter().any(|(ty, _)| of_unknown(*ty)) {
            all.add(shape.clone(), rows.to_vec());
        }
    }
    for kernel in &unknown {
        note!(
            "the profile was made without kernel {}, which multiplies all matrices of its type; `arclight tune \
             --kernel` finds where it is the faster one",
            kernel.name()
        );
    }
    all.preferred = unknown;
    all
}
