//! The side that faces QEMU: its functions, and the callbacks it is given.

use crate::args::Config;
use crate::cache::{Cache, Versions};
use crate::hot::Pages;
use crate::multiply::Products;
use crate::stages::{End, Moment, Stages};
use crate::tally::{self, Access, Tally};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// `qemu_info_t`.
#[repr(C)]
pub struct Info {
    target_name: *const c_char,
    version_min: c_int,
    version_cur: c_int,
    system_emulation: bool,
    smp_vcpus: c_int,
    max_vcpus: c_int,
}

type Id = u64;
type OnBlock = extern "C" fn(Id, *mut c_void);
type OnExecution = extern "C" fn(c_uint, *mut c_void);
type OnAccess = extern "C" fn(c_uint, u32, u64, *mut c_void);

/// `qemu_plugin_u64`: a number for each processor.
#[repr(C)]
#[derive(Clone, Copy)]
struct Counter {
    scoreboard: *mut c_void,
    offset: usize,
}

// SAFETY: QEMU owns what it points to, for as long as the machine runs, and each processor adds to its own number.
unsafe impl Send for Counter {}
// SAFETY: as above; a number that is read meanwhile is an old one.
unsafe impl Sync for Counter {}

/// `QEMU_PLUGIN_INLINE_ADD_U64`
const ADD: c_uint = 0;
/// `QEMU_PLUGIN_CB_NO_REGS`
const NO_REGS: c_uint = 0;
/// `QEMU_PLUGIN_MEM_RW`
const LOADS_AND_STORES: c_uint = 3;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, call: OnBlock);
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    fn qemu_plugin_insn_vaddr(insn: *const c_void) -> u64;
    fn qemu_plugin_insn_size(insn: *const c_void) -> usize;
    fn qemu_plugin_insn_data(insn: *const c_void, to: *mut c_void, len: usize) -> usize;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut c_void,
        call: OnExecution,
        flags: c_uint,
        user: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut c_void,
        call: OnAccess,
        flags: c_uint,
        what: c_uint,
        user: *mut c_void,
    );
    fn qemu_plugin_scoreboard_new(element_size: usize) -> *mut c_void;
    fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        block: *mut c_void,
        op: c_uint,
        entry: Counter,
        value: u64,
    );
    fn qemu_plugin_u64_get(entry: Counter, cpu: c_uint) -> u64;
    fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    fn qemu_plugin_mem_is_store(info: u32) -> bool;
    fn qemu_plugin_get_hwaddr(info: u32, address: u64) -> *const c_void;
    fn qemu_plugin_hwaddr_is_io(address: *const c_void) -> bool;
    fn qemu_plugin_hwaddr_phys_addr(address: *const c_void) -> u64;
}

/// The interface that this is written for: since QEMU 9.1.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 4;

/// One processor.
#[derive(Default)]
struct Cpu {
    tally: Tally,
    cache: UnsafeCell<Option<Cache>>,
    /// Locked by its own thread, and by whoever prints.
    remote: Mutex<Pages>,
    /// Likewise.
    stages: Mutex<Stages>,
    /// Nothing counts meanwhile.
    waits: AtomicBool,
}

// SAFETY: the tally is atomic, and a processor's cache is touched by `on_access` for this processor
// only, which QEMU calls on the processor's own thread.
unsafe impl Sync for Cpu {}

struct State {
    config: Config,
    cpus: Vec<Cpu>,
    versions: Versions,
    /// Instructions, int8 products and f32 products, if stages are counted.
    work: Option<[Counter; 3]>,
    /// The counters at the last mark 1.
    since: Mutex<Vec<[[u64; 5]; tally::NODES + 1]>>,
}

impl State {
    /// The counters of a processor as they stand.
    fn moment(&self, number: usize) -> Moment {
        // SAFETY: QEMU made the counters, and `number` is of one of its processors.
        let read = |c| unsafe { qemu_plugin_u64_get(c, number as c_uint) };
        Moment::new(&self.cpus[number].tally.read(), self.work.map_or([0; 3], |w| w.map(read)))
    }

    /// The thread on a processor comes to a wait or has left it.
    fn wait(&self, number: usize, end: Option<End>) {
        let Some(cpu) = self.cpus.get(number).filter(|_| self.work.is_some()) else { return };
        let mut stages = cpu.stages.lock().unwrap_or_else(PoisonError::into_inner);
        match end {
            Some(end) => stages.end(self.moment(number), end),
            None => stages.resume(self.moment(number)),
        }
        cpu.waits.store(end.is_some(), Relaxed);
    }

    /// Calls `does` with the stages of every processor.
    fn stages(&self, mut does: impl FnMut(usize, &mut Stages)) {
        for (number, cpu) in self.cpus.iter().enumerate().filter(|_| self.work.is_some()) {
            does(number, &mut cpu.stages.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

static STATE: OnceLock<State> = OnceLock::new();
static COUNTING: AtomicBool = AtomicBool::new(false);

extern "C" fn on_access(cpu: c_uint, info: u32, address: u64, _: *mut c_void) {
    if !COUNTING.load(Relaxed) {
        return;
    }
    let Some(state) = STATE.get() else { return };
    let number = cpu as usize;
    let Some(cpu) = state.cpus.get(number) else { return };
    if cpu.waits.load(Relaxed) {
        return;
    }
    // SAFETY: inside of a memory callback, with its own arguments.
    let hardware = unsafe { qemu_plugin_get_hwaddr(info, address) };
    if hardware.is_null() {
        return;
    }
    // SAFETY: not null, and still inside of the callback.
    let (device, physical) =
        unsafe { (qemu_plugin_hwaddr_is_io(hardware), qemu_plugin_hwaddr_phys_addr(hardware)) };
    // SAFETY: these only take `info` apart.
    let (store, bytes) =
        unsafe { (qemu_plugin_mem_is_store(info), 1 << qemu_plugin_mem_size_shift(info)) };
    let node = if device { None } else { state.config.node_at(physical) };
    // SAFETY: see `Sync for Cpu`; callbacks of one processor do not nest.
    let cache = unsafe { &mut *cpu.cache.get() };
    let fill = match cache {
        Some(cache) if node.is_some() => cache.access(physical, store, &state.versions),
        _ => false,
    };
    cpu.tally.add(Access { node, store, bytes, fill });
    if let Some(node) =
        node.filter(|&n| state.config.top > 0 && Some(n) != state.config.home(number))
    {
        cpu.remote.lock().unwrap_or_else(PoisonError::into_inner).add(address, node, bytes);
    }
}

extern "C" fn on_mark(cpu: c_uint, mark: *mut c_void) {
    let Some(state) = STATE.get() else { return };
    match mark.addr() {
        // Before the counters are read below: every wait passes here.
        4..=6 if !COUNTING.load(Relaxed) => return,
        4 => return state.wait(cpu as usize, Some(End::Local)),
        5 => return state.wait(cpu as usize, Some(End::Global)),
        6 => return state.wait(cpu as usize, None),
        _ => {}
    }
    let read = || state.cpus.iter().map(|c| c.tally.read()).collect::<Vec<_>>();
    let pages =
        || state.cpus.iter().map(|c| c.remote.lock().unwrap_or_else(PoisonError::into_inner));
    let mut since = state.since.lock().unwrap_or_else(PoisonError::into_inner);
    match mark.addr() {
        1 => {
            *since = read();
            pages().for_each(|mut p| *p = Pages::default());
            state.stages(|number, stages| stages.start(state.moment(number)));
            state.cpus.iter().for_each(|cpu| cpu.waits.store(false, Relaxed));
            COUNTING.store(true, Relaxed);
        }
        2 => {
            COUNTING.store(false, Relaxed);
            state.stages(|number, stages| stages.end(state.moment(number), End::Stop));
        }
        3 => {
            eprint!("{}", tally::report(&state.config, &since, &read()));
            let all = pages().fold(Pages::default(), |all, pages| all.with(&pages));
            eprint!("{}", all.report(state.config.top));
            state.stages(|number, stages| eprint!("{}", stages.report(number)));
        }
        _ => {}
    }
}

/// The mark that an instruction is, if it is one.
fn mark_of(insn: *const c_void) -> Option<usize> {
    let mut bytes = [0u8; 7];
    // SAFETY: `insn` is of the block that is being translated; `bytes` has room for what is asked.
    let got = unsafe {
        if qemu_plugin_insn_size(insn) != bytes.len() {
            return None;
        }
        qemu_plugin_insn_data(insn, bytes.as_mut_ptr().cast(), bytes.len())
    };
    match bytes {
        [0x0f, 0x1f, 0x80, mark, b'M', b'U', b'N'] if got == bytes.len() => Some(mark.into()),
        _ => None,
    }
}

/// The products of an instruction of the block that is being translated.
fn products_of(insn: *const c_void) -> Products {
    let mut bytes = [0u8; 15];
    // SAFETY: `insn` is of the block that is being translated; `bytes` has room for what is asked.
    let got = unsafe { qemu_plugin_insn_data(insn, bytes.as_mut_ptr().cast(), bytes.len()) };
    Products::of(&bytes[..got.min(bytes.len())])
}

extern "C" fn on_block(_: Id, block: *mut c_void) {
    let Some(state) = STATE.get() else { return };
    let mut work = [0; 3];
    // SAFETY: the block that is being translated, during its translation.
    for i in 0..unsafe { qemu_plugin_tb_n_insns(block) } {
        // SAFETY: as above, and `i` is less than the number of instructions.
        let insn = unsafe { qemu_plugin_tb_get_insn(block, i) };
        if let Some(mark) = mark_of(insn) {
            let mark = std::ptr::without_provenance_mut(mark);
            // SAFETY: an instruction of this block; the argument is a number.
            unsafe { qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, NO_REGS, mark) };
        }
        // SAFETY: an instruction of this block.
        if unsafe { qemu_plugin_insn_vaddr(insn) } < state.config.code_end {
            let none = std::ptr::null_mut();
            // SAFETY: as above.
            unsafe {
                qemu_plugin_register_vcpu_mem_cb(insn, on_access, NO_REGS, LOADS_AND_STORES, none);
            }
            let products = products_of(insn);
            let of = [1, products.int8, products.f32];
            work.iter_mut().zip(of).for_each(|(sum, more)| *sum += more);
        }
    }
    let counters = state.work.into_iter().flatten().zip(work);
    for (counter, value) in counters.filter(|(_, value)| *value > 0) {
        // SAFETY: the block that is being translated; QEMU made the counter.
        unsafe { qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, ADD, counter, value) };
    }
}

/// Called by QEMU when it loads the plugin; 0 is success.
///
/// # Safety
/// `info` and the `argc` strings at `argv` are valid for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: by this function's contract.
    let info = unsafe { &*info };
    // SAFETY: as above.
    let target = unsafe { CStr::from_ptr(info.target_name) }.to_bytes();
    if !info.system_emulation || target != b"x86_64" {
        eprintln!("numacount: only for whole x86-64 machines");
        return 1;
    }
    let args: Vec<_> = (0..usize::try_from(argc).unwrap_or(0))
        // SAFETY: as above; `i` is less than `argc`.
        .map(|i| unsafe { CStr::from_ptr(*argv.add(i)) }.to_string_lossy())
        .collect();
    let config = match Config::parse(args.iter().map(|a| &**a)) {
        Ok(config) => config,
        Err(arg) => {
            eprintln!("numacount: cannot understand the argument {arg:?}");
            return 1;
        }
    };
    let cache = || UnsafeCell::new(config.cache_kib.map(Cache::new));
    let cpus = (0..info.max_vcpus).map(|_| Cpu { cache: cache(), ..Cpu::default() }).collect();
    let versions = Versions::new(if config.cache_kib.is_some() { config.memory_end() } else { 0 });
    // SAFETY: a plugin may ask for memory while it is installed.
    let counters = || unsafe { qemu_plugin_scoreboard_new(3 * size_of::<u64>()) };
    let work = config
        .stages
        .then(counters)
        .map(|scoreboard| [0, 1, 2].map(|i| Counter { scoreboard, offset: i * size_of::<u64>() }));
    let state = State { config, cpus, versions, work, since: Mutex::default() };
    if STATE.set(state).is_err() {
        eprintln!("numacount: loaded twice");
        return 1;
    }
    // SAFETY: `id` is the one that QEMU gave.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, on_block) };
    0
}
