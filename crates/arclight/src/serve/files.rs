//! Where files and batches are kept.

use crate::args::{bytes, count};
use crate::error::Error;
use arclight_server::{FileOptions, FileStore};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Requests that clients send as files.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Files and batches")]
pub(super) struct FileArgs {
    /// Keep files of requests in this folder, and answer them when there is time: /v1/files, /v1/batches
    /// [default: off]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    files_dir: Option<PathBuf>,
    /// Bytes that all files may have together, answers among them, with K, M, G or T for KiB to TiB
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "16G", requires = "files_dir")]
    files_bytes: u64,
    /// Bytes of one file
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "1G", requires = "files_dir")]
    file_bytes: u64,
    /// Requests of one batch
    #[arg(long, value_name = "N", value_parser = count, default_value = "1000000", requires = "files_dir")]
    batch_requests: usize,
}

impl FileArgs {
    /// Opens the folder, if there is to be one.
    pub(super) fn open(&self) -> Result<Option<FileStore>, Error> {
        let Some(folder) = self.files_dir.clone() else { return Ok(None) };
        let options = FileOptions {
            folder,
            file_bytes: self.file_bytes,
            total_bytes: self.files_bytes,
            lines: self.batch_requests as u64,
        };
        Ok(Some(FileStore::open(options)?))
    }
}
