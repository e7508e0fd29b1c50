//! `refuse`: a command whose system calls fail with EPERM, as in a container without
//! `CAP_SYS_NICE` under the usual seccomp profile.
//!
//! Source: `seccomp(2)`; the filter is classic BPF over `struct seccomp_data`.

use crate::error::Error;
use clap::ValueEnum;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// System calls of memory placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Call {
    Mbind,
    MovePages,
    SetMempolicy,
    GetMempolicy,
    SchedSetaffinity,
}

impl Call {
    fn number(self) -> u32 {
        let number = match self {
            Call::Mbind => libc::SYS_mbind,
            Call::MovePages => libc::SYS_move_pages,
            Call::SetMempolicy => libc::SYS_set_mempolicy,
            Call::GetMempolicy => libc::SYS_get_mempolicy,
            Call::SchedSetaffinity => libc::SYS_sched_setaffinity,
        };
        number as u32
    }
}

/// Replaces this process by the command; returns only when that fails.
pub(crate) fn run(calls: &[Call], command: &[String]) -> Result<(), Error> {
    install(&filter(calls))
        .map_err(|source| Error::System { what: "install the filter".to_owned(), source })?;
    let source = Command::new(&command[0]).args(&command[1..]).exec();
    Err(Error::System { what: format!("run {}", command[0]), source })
}

/// Loads the number of the call, returns EPERM for each of `calls`, allows the rest.
fn filter(calls: &[Call]) -> Vec<libc::sock_filter> {
    let op = |code: u32, k, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let ret = |k| op(libc::BPF_RET | libc::BPF_K, k, 0, 0);
    // The number is the first field of seccomp_data.
    let mut program = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        // Not this one: over the next instruction.
        program.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call.number(), 0, 1));
        program.push(ret(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    program.push(ret(libc::SECCOMP_RET_ALLOW));
    program
}

fn install(program: &[libc::sock_filter]) -> io::Result<()> {
    let fprog = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let done = |code: i32| if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: plain numbers; without new privileges a filter needs no capability.
    done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: `fprog` points at `program`, which outlives the call; the kernel copies both.
    done(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const fprog) })
}
