//! Systems without `perf_event_open`: all calls are refused as unsupported.

use std::ffi::c_void;
use std::fs::File;
use std::io;

/// # Safety
/// None; Linux has some.
pub(crate) unsafe fn open_counter(_: *const c_void, _: i32, _: i32) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn control_counter(_: &File, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
