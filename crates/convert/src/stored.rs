//! The tensors of a folder by their names, those of quantised weights as what they stand for.

use crate::array::Array;
use crate::error::Error;
use crate::folder::Folder;

/// All tensors, in the order of the files.
pub(crate) fn arrays(folder: &Folder) -> Result<Vec<(String, Array)>, Error> {
    let all = folder.tensors().iter();
    Ok(all.map(|tensor| (tensor.entry.name.clone(), tensor.array())).collect())
}
