//! What happens where a sandbox forbids the calls that place memory.

use arclight_memory::counters::{Controllers, Counters, Event};
use arclight_memory::{Arena, ArenaOptions, Error, HugePages, Policy, Warning, pages_by_node};
use topology::NodeId;

/// Runs `test` on a thread whose system call `number` fails with `errno`, as a container's seccomp
/// profile makes it fail. A filter is for its thread alone.
fn without_call<R: Send>(number: i64, errno: i32, test: impl FnOnce() -> R + Send) -> R {
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

#[test]
fn a_forbidden_binding_is_a_warning_that_names_call_and_reason() {
    let cases = [
        (libc::EPERM, "a container's seccomp profile forbids the call"),
        (libc::ENOSYS, "this kernel has no memory policies"),
    ];
    for (errno, reason) in cases {
        let policies = [
            (Policy::Bind(NodeId(0)), "is not bound to memory node 0: mbind: "),
            (
                Policy::Interleave(vec![NodeId(1), NodeId(0)]),
                "is not interleaved over memory nodes 0-1: mbind: ",
            ),
        ];
        for (policy, what) in policies {
            let options = ArenaOptions { policy, huge: HugePages::Off, name: "weights" };
            let arena = without_call(libc::SYS_mbind, errno, || Arena::new(4096, &options));
            let mut arena = arena.unwrap();
            let [warning @ Warning::NotBound { .. }] = arena.warnings() else {
                panic!("{:?}", arena.warnings());
            };
            let text = warning.to_string();
            assert!(text.contains(what) && text.contains(reason), "{text}");
            assert!(text.ends_with("where the threads that first write to them run"), "{text}");
            // And it is usable.
            let block = arena.alloc(4096, 64).unwrap();
            // SAFETY: the arena lives on, and no other slice is in use.
            unsafe { block.as_mut_slice::<u8>() }.fill(1);
        }
    }
}

#[test]
fn a_forbidden_page_query_is_an_error_that_names_the_call() {
    let options = ArenaOptions { policy: Policy::Default, huge: HugePages::Off, name: "test" };
    let mut arena = Arena::new(4096, &options).unwrap();
    let block = arena.alloc(4096, 64).unwrap();
    let error = without_call(libc::SYS_move_pages, libc::EPERM, || pages_by_node(block));
    let error = error.unwrap_err();
    assert!(matches!(error, Error::PageQuery(_)), "{error}");
    assert!(error.to_string().contains("move_pages"), "{error}");
}

#[test]
fn forbidden_counters_are_unavailable_with_the_reason() {
    for (errno, part) in
        [(libc::EACCES, ": sudo sysctl|a container or sandbox"), (libc::ENOSYS, "sandbox hides it")]
    {
        let counters =
            without_call(libc::SYS_perf_event_open, errno, || Counters::of_threads(&[0]));
        assert_eq!(counters.events().count(), 0);
        assert_eq!(counters.refused().len(), Event::ALL.len());
        for refusal in counters.refused() {
            let text = refusal.to_string();
            assert!(text.starts_with(&format!("{}: ", refusal.event.name())), "{text}");
            assert!(part.split('|').any(|part| text.contains(part)), "{text}");
        }
    }
    let machine = topology::Machine::read().unwrap();
    without_call(libc::SYS_perf_event_open, libc::EPERM, || Controllers::open(&machine))
        .expect_err("no controller is counted without the call");
}
