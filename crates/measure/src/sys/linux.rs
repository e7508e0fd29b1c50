//! Linux's system calls.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// `perf_event_open`, with a descriptor that programs started later do not get.
///
/// # Safety
/// `attr` is a `perf_event_attr` of the size that it says.
pub(crate) unsafe fn open_counter(attr: *const c_void, thread: i32, cpu: i32) -> io::Result<File> {
    const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
    // SAFETY: the kernel reads the structure, whose size is in it.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, attr, thread, cpu, -1_i32, FLAG_FD_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has made this descriptor for us alone.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

/// An `ioctl` of a counter without an argument.
pub(crate) fn control_counter(counter: &File, request: u32) -> io::Result<()> {
    // SAFETY: such requests take no pointer.
    if unsafe { libc::ioctl(counter.as_raw_fd(), request as _, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
