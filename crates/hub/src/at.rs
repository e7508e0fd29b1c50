//! Reads and writes at places of a file, by several threads at once.

use std::fs::File;
use std::io;

/// Reads from a place on until the buffer is full.
pub(crate) fn read_exact(file: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, buffer, at);
    #[cfg(windows)]
    {
        let mut done = 0;
        while done < buffer.len() {
            let at = at + done as u64;
            match std::os::windows::fs::FileExt::seek_read(file, &mut buffer[done..], at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Writes all from a place on.
pub(crate) fn write_all(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_all_at(file, bytes, at);
    #[cfg(windows)]
    {
        let mut done = 0;
        while done < bytes.len() {
            let at = at + done as u64;
            match std::os::windows::fs::FileExt::seek_write(file, &bytes[done..], at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
