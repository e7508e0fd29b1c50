//! A thread without one of the system calls. Tests of `measure` include this file too.

/// Runs `test` on a thread whose system call `number` fails with `errno`, as a container's seccomp
/// profile makes it fail. The filter applies to that thread alone.
pub(crate) fn without_call<R: Send>(number: i64, errno: i32, test: impl FnOnce() -> R + Send) -> R {
    const OPS: [u32; 4] = [
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    ];
    let refuse = libc::SECCOMP_RET_ERRNO | errno as u32;
    // The call's number is the first word of what a filter sees.
    let mut code: Vec<libc::sock_filter> = OPS
        .iter()
        .zip([0, number as u32, refuse, libc::SECCOMP_RET_ALLOW])
        .map(|(&op, k)| libc::sock_filter { code: op as u16, jt: 0, jf: 0, k })
        .collect();
    code[1].jf = 1;
    let program = || libc::sock_fprog { len: code.len() as u16, filter: code.as_ptr().cast_mut() };
    std::thread::scope(|scope| {
        let run = || {
            let program = program();
            // SAFETY: both change this thread only; the kernel copies the program, which is alive.
            let failed = unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                    || libc::prctl(
                        libc::PR_SET_SECCOMP,
                        libc::SECCOMP_MODE_FILTER,
                        &raw const program,
                    ) != 0
            };
            assert!(!failed, "seccomp: {}", std::io::Error::last_os_error());
            test()
        };
        scope.spawn(run).join().unwrap()
    })
}
