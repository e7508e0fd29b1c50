//! What happens where a sandbox forbids the calls that place memory.

mod seccomp;

use arclight_memory::{Arena, ArenaOptions, Error, HugePages, Policy, Warning, pages_by_node};
use seccomp::without_call;
use topology::NodeId;

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
