//! Arenas, blocks and where their pages are.

use arclight_memory::{
    Arena, ArenaOptions, Error, HugePages, Policy, Warning, check_room, huge_bytes, pages_by_node,
};
use topology::fake::FakeMachine;
use topology::{Machine, NodeId, NodeList};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn options(node: Option<NodeId>, huge: HugePages) -> ArenaOptions {
    ArenaOptions { policy: node.into(), huge, name: "test" }
}

fn arena(bytes: usize) -> Arena {
    Arena::new(bytes, &options(None, HugePages::Off)).unwrap()
}

fn page() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// The nodes of this machine that have memory (not 0 everywhere).
fn all_nodes() -> NodeList {
    std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap().parse().unwrap()
}

fn some_node() -> NodeId {
    all_nodes().as_slice()[0]
}

#[test]
fn blocks_are_aligned_zero_and_apart() {
    let mut arena = arena(MIB);
    let mut blocks = Vec::new();
    for (bytes, align) in [(1, 1), (100, 64), (3, 4096), (0, 128), (4096, 32), (8, 65536)] {
        let block = arena.alloc(bytes, align).unwrap();
        assert_eq!((block.addr() % align, block.len()), (0, bytes));
        blocks.push(block);
    }
    for (i, block) in blocks.iter().enumerate() {
        // SAFETY: the arena lives to the end of the test, and no other slice is in use.
        let bytes = unsafe { block.as_mut_slice::<u8>() };
        assert!(bytes.iter().all(|&byte| byte == 0), "fresh, and not written by a neighbour");
        bytes.fill(i as u8 + 1);
    }
    let [.., last] = &blocks[..] else { unreachable!() };
    let all = arena.given_out();
    assert_eq!(all.len(), arena.used());
    assert_eq!(all.addr() + all.len(), last.addr() + last.len());
    assert_eq!(all.addr(), blocks[0].addr());
}

#[test]
fn an_exhausted_arena_says_what_it_has() {
    let page = page();
    let mut arena = arena(2 * page + 1);
    assert_eq!(arena.capacity(), 3 * page, "whole pages");
    arena.alloc(2 * page, 1).unwrap();
    let error = arena.alloc(page + 1, 1).unwrap_err();
    let (wanted, capacity) = (page + 1, 3 * page);
    assert_eq!(
        error.to_string(),
        format!("arena `test` is exhausted: {wanted} bytes wanted, {page} of {capacity} left")
    );
    assert!(matches!(arena.alloc(usize::MAX, 1), Err(Error::Exhausted { .. })));
    assert!(matches!(arena.alloc(1, 1 << 63), Err(Error::Exhausted { .. })));
    arena.alloc(page, 1).unwrap();
    assert!(matches!(arena.alloc(1, 1), Err(Error::Exhausted { left: 0, .. })));
    assert_eq!(arena.alloc(0, 1).unwrap().len(), 0);
    for align in [0, 3, 48] {
        assert!(matches!(arena.alloc(1, align), Err(Error::Alignment { .. })), "{align}");
    }
}

#[test]
fn an_impossible_size_is_an_error() {
    for huge in [HugePages::Off, HugePages::Transparent, HugePages::Explicit] {
        for bytes in [usize::MAX, usize::MAX - 4 * MIB, 1 << 60] {
            let error = Arena::new(bytes, &options(None, huge)).unwrap_err();
            assert!(matches!(error, Error::Reserve { .. }), "{error}");
        }
    }
}

#[test]
fn reserving_costs_nothing_until_it_is_written() {
    let mut arena = arena(1 << 36);
    let block = arena.alloc(64 * page(), page()).unwrap();
    let pages = pages_by_node(block).unwrap();
    assert_eq!((pages.absent, pages.present(), pages.total()), (64, 0, 64));
    // SAFETY: the arena lives on, and no other slice is in use.
    let words = unsafe { block.as_mut_slice::<u64>() };
    // A page that is only read has no memory either.
    let per_page = page() / 8;
    assert_eq!(words[per_page], 0);
    words[5 * per_page] = 1;
    words[7 * per_page - 1] = 1;
    let pages = pages_by_node(block).unwrap();
    assert_eq!((pages.absent, pages.present(), pages.total()), (62, 2, 64));
}

/// The memory policy of an address: mode and the lowest 64 nodes.
fn policy_of(addr: usize) -> (i32, u64) {
    const MPOL_F_ADDR: usize = 2; // not in libc
    let (mut mode, mut nodes) = (0_i32, [0_u64; 16]);
    // SAFETY: the kernel writes the mode and at most the given number of bits.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            nodes.as_mut_ptr(),
            1025_usize,
            addr,
            MPOL_F_ADDR,
        )
    };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    (mode, nodes[0])
}

#[test]
fn a_bound_arena_has_its_pages_on_its_node() {
    let kinds = [HugePages::Off, HugePages::Transparent, HugePages::Explicit];
    for (node, huge) in all_nodes().iter().flat_map(|node| kinds.map(|huge| (node, huge))) {
        let mut arena = Arena::new(5 * MIB, &options(Some(node), huge)).unwrap();
        assert_eq!(arena.node(), Some(node));
        let warned = |w: &Warning| !matches!(w, Warning::NoHugePages { .. });
        assert!(!arena.warnings().iter().any(warned), "{:?}", arena.warnings());
        let block = arena.alloc(5 * MIB, page()).unwrap();
        assert_eq!(policy_of(block.addr()), (libc::MPOL_BIND, 1 << node.0));
        assert_eq!(policy_of(block.addr() + 5 * MIB - 1), (libc::MPOL_BIND, 1 << node.0));
        // SAFETY: the arena lives on, and no other slice is in use.
        unsafe { block.as_mut_slice::<u8>() }.fill(1);
        let pages = pages_by_node(block).unwrap();
        assert_eq!(pages.by_node.get(&node), Some(&(5 * MIB / page())), "{pages:?}");
        assert_eq!((pages.elsewhere(node), pages.absent), (0, 0));
        assert!(pages.failed.is_empty());
        assert_eq!(pages.elsewhere(NodeId(node.0 + 1)), pages.total());
    }
}

#[test]
fn a_node_that_does_not_exist_is_a_warning_that_names_it() {
    for node in [63, 1023, 1024, u32::MAX] {
        let mut arena = Arena::new(KIB, &options(Some(NodeId(node)), HugePages::Off)).unwrap();
        let [warning @ Warning::NotBound { .. }] = arena.warnings() else {
            panic!("{:?}", arena.warnings());
        };
        let expected = format!("arena `test` is not bound to memory node {node}: mbind: Invalid");
        assert!(warning.to_string().starts_with(&expected), "{warning}");
        assert!(warning.to_string().contains("there is no such node"), "{warning}");
        // And it is usable.
        let block = arena.alloc(KIB, 8).unwrap();
        // SAFETY: the arena lives on, and no other slice is in use.
        unsafe { block.as_mut_slice::<u8>() }.fill(1);
    }
}

#[test]
fn an_interleaved_arena_tells_the_kernel_so() {
    let nodes = all_nodes();
    let policy = Policy::Interleave(nodes.as_slice().to_vec());
    let arena = |bytes, policy| {
        Arena::new(bytes, &ArenaOptions { policy, huge: HugePages::Off, name: "test" }).unwrap()
    };
    let mut here = arena(MIB, policy.clone());
    assert!(here.warnings().is_empty(), "{:?}", here.warnings());
    assert_eq!((here.policy(), here.node()), (&policy, None));
    let block = here.alloc(MIB, page()).unwrap();
    let mask = nodes.iter().map(|node| 1 << node.0).sum();
    assert_eq!(policy_of(block.addr()), (libc::MPOL_INTERLEAVE, mask));
    // SAFETY: the arena lives on, and no other slice is in use.
    unsafe { block.as_mut_slice::<u8>() }.fill(1);
    let pages = pages_by_node(block).unwrap();
    assert_eq!((pages.present(), pages.by_node.len()), (MIB / page(), nodes.len()));
    let (least, most) = (pages.by_node.values().min(), pages.by_node.values().max());
    assert!(most.unwrap() - least.unwrap() <= 1, "{pages:?}");

    // No nodes, and nodes beyond any kernel's, are refused and named.
    for (nodes, text) in [("", "nodes : mbind"), ("0,8000", "nodes 0,8000: mbind")] {
        let nodes: NodeList = nodes.parse().unwrap_or_default();
        let refused = arena(KIB, Policy::Interleave(nodes.iter().collect()));
        let [warning] = refused.warnings() else { panic!("{:?}", refused.warnings()) };
        assert!(warning.to_string().contains(text), "{warning}");
    }
    assert!(arena(KIB, Policy::Default).warnings().is_empty());
}

#[test]
fn a_node_without_room_is_named_before_anything_is_written() {
    let dir = std::env::temp_dir().join(format!("arclight-full-{}", std::process::id()));
    let meminfo =
        |mib: u64| format!("Node 1 MemTotal: 9999999 kB\nNode 1 MemFree: {} kB\n", mib << 10);
    let fake = FakeMachine::uniform(2, 1);
    fake.file("sys/devices/system/node/node1/meminfo", &meminfo(300)).write(&dir).unwrap();
    let machine = Machine::read_from(&dir).unwrap();
    let check = |needs: &[(u32, u64)]| {
        let needs = needs.iter().map(|&(node, mib)| (NodeId(node), mib << 20));
        check_room(&machine, needs).map_err(|e| e.to_string())
    };
    assert_eq!(check(&[(0, 1000), (1, 200)]), Ok(()));
    // 512 MiB, 1/64 of it, and 8 MiB.
    let error = check(&[(0, 1000), (1, 200), (1, 312)]).unwrap_err();
    let expected = "memory node 1 has 300 MiB available, 528 MiB are needed there; ";
    assert!(error.starts_with(expected), "{error}");
    assert!(check(&[(1, 295)]).is_err(), "the margin counts");
    // It is asked anew each time; nothing to write needs no room; unknown nodes pass.
    std::fs::write(dir.join("sys/devices/system/node/node1/meminfo"), meminfo(5)).unwrap();
    assert!(check(&[(1, 200)]).is_err());
    assert_eq!(check(&[(1, 0), (7, 1 << 30)]), Ok(()));
    std::fs::remove_dir_all(&dir).unwrap();
    // This machine has room for a little, and none for the impossible.
    let here = Machine::read().unwrap();
    check_room(&here, [(some_node(), 1 << 20)]).unwrap();
    assert!(matches!(
        check_room(&here, [(some_node(), u64::MAX), (some_node(), 1)]),
        Err(Error::NoRoom { needed: u64::MAX, .. })
    ));
}

#[test]
fn huge_bytes_are_those_of_huge_pages() {
    let mut off = arena(4 * MIB);
    let block = off.alloc(4 * MIB, 64).unwrap();
    // SAFETY: the arena lives on, and no other slice is in use.
    unsafe { block.as_mut_slice::<u8>() }.fill(7);
    assert_eq!(huge_bytes(block).unwrap(), 0);
    let mut huge = Arena::new(8 * MIB, &options(None, HugePages::Transparent)).unwrap();
    let block = huge.alloc(8 * MIB, 64).unwrap();
    assert_eq!(huge_bytes(block).unwrap(), 0, "nothing was written");
    // SAFETY: as above.
    unsafe { block.as_mut_slice::<u8>() }.fill(7);
    let found = huge_bytes(block).unwrap();
    assert!(found <= 8 * MIB as u64 && found.is_multiple_of(2 * MIB as u64), "{found}");
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    // A fragmented machine may have none left, but not one with gigabytes free.
    if enabled.is_ok_and(|text| !text.contains("[never]")) {
        assert!(found > 0);
    }
}

#[test]
fn huge_page_arenas_begin_on_a_huge_page_or_say_why_not() {
    for huge in [HugePages::Transparent, HugePages::Explicit] {
        let mut arena = Arena::new(3 * MIB, &options(None, huge)).unwrap();
        assert_eq!(arena.capacity(), 4 * MIB);
        let block = arena.alloc(4 * MIB, 1).unwrap();
        assert_eq!(block.addr() % (2 * MIB), 0);
        // SAFETY: the arena lives on, and no other slice is in use.
        unsafe { block.as_mut_slice::<u8>() }.fill(7);
        let explicit = arena.warnings().iter().find(|w| matches!(w, Warning::NoHugePages { .. }));
        if let Some(warning) = explicit {
            assert_eq!(huge, HugePages::Explicit);
            assert!(warning.to_string().contains("needs 2 pages of 2 MiB"), "{warning}");
        }
    }
}

#[test]
fn parts_and_numbers_of_a_block() {
    let mut arena = arena(4096);
    let block = arena.alloc(32, 64).unwrap();
    // SAFETY: the arena lives on; the slices of one statement do not overlap those of another.
    unsafe {
        block.as_mut_slice::<u32>().copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 0x3f80_0000]);
        assert_eq!(block.sub(4, 8).as_slice::<u32>(), [2, 3]);
        assert_eq!(block.sub(28, 4).as_slice::<f32>(), [1.0]);
        assert_eq!(block.sub(8, 8).as_slice::<u64>(), [(4 << 32) + 3]);
        assert_eq!(block.sub(32, 0).as_slice::<u16>(), []);
        assert_eq!(block.sub(1, 3).sub(2, 1).addr(), block.addr() + 3);
    }
}

#[test]
#[should_panic(expected = "5 bytes at 28 do not lie in a block of 32")]
fn a_part_beyond_the_block_is_refused() {
    arena(4096).alloc(32, 64).unwrap().sub(28, 5);
}

#[test]
#[should_panic(expected = "do not lie in a block")]
fn a_part_whose_end_overflows_is_refused() {
    arena(4096).alloc(32, 64).unwrap().sub(8, usize::MAX);
}

#[test]
#[should_panic(expected = "is not aligned for f32")]
fn numbers_at_a_crooked_address_are_refused() {
    let mut arena = arena(4096);
    let block = arena.alloc(32, 64).unwrap().sub(2, 8);
    // SAFETY: the arena lives on, and no slice is written.
    let _ = unsafe { block.as_slice::<f32>() };
}

#[test]
#[should_panic(expected = "a block of 10 bytes holds no whole number of i32")]
fn half_numbers_are_refused() {
    let mut arena = arena(4096);
    let block = arena.alloc(10, 64).unwrap();
    // SAFETY: the arena lives on, and no other slice is in use.
    let _ = unsafe { block.as_mut_slice::<i32>() };
}

#[test]
fn resident_memory_follows_the_writes() {
    let mut arena = arena(64 * MIB);
    let block = arena.alloc(64 * MIB, 64).unwrap();
    let before = arclight_memory::resident().unwrap();
    // SAFETY: the arena lives on, and no other slice is in use.
    unsafe { block.as_mut_slice::<u8>() }.fill(1);
    let after = arclight_memory::resident().unwrap();
    // Other tests of this binary come and go meanwhile, by at most some 20 MiB; so half of it.
    assert!(after.anonymous >= before.anonymous + 32 * MIB as u64, "{before:?} {after:?}");
    assert!(after.now >= after.anonymous && after.peak >= 64 * MIB as u64);
    assert!(arclight_memory::peak_resident_bytes().unwrap() >= 64 * MIB as u64);
    assert!(arclight_memory::resident().unwrap().now > 0);
}
