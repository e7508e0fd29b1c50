//! Loading by way of a source that has no bytes where its views say: everything is packed from what was
//! asked for and handed over, in many rounds, and the bits are those of a file in memory.

#[expect(dead_code, reason = "executors are made here")]
mod run;

use arclight_graph::{
    Error, Executor, KvType, Limits, Mode, Outputs, PackBytes, PageId, PageTable, Plan, Shares,
    WeightSource, WeightView,
};
use gguf::{Gguf, TensorType};
use kernels::Kernels;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use testkit::TinyModel;
use topology::{CpuId, Machine};

/// A file's tensors as zeros, whose true bytes are handed over when they are taken.
struct Elsewhere<'a> {
    gguf: &'a Gguf<'a>,
    zeros: HashMap<String, Vec<u8>>,
    asked: Mutex<VecDeque<Vec<(usize, usize)>>>, // address and length
    taken: Mutex<usize>,
    fails_at: Option<usize>,
}

/// Small enough that matrices of tiny models take several rounds.
const ROUND: usize = 4 << 10;
/// Rounds that are brought at once.
const MOST: usize = 3;

fn ends(parts: &[&[u8]]) -> Vec<(usize, usize)> {
    parts.iter().map(|part| (part.as_ptr().addr(), part.len())).collect()
}

impl<'a> Elsewhere<'a> {
    fn new(gguf: &'a Gguf<'a>) -> Self {
        let zeros = |t: &gguf::Tensor<'_>| (t.name().to_owned(), vec![0; t.data.len()]);
        let zeros = gguf.tensors().iter().map(zeros).collect();
        Elsewhere { gguf, zeros, asked: Mutex::default(), taken: Mutex::default(), fails_at: None }
    }

    fn truth(&self, part: &[u8]) -> Vec<u8> {
        let inside = |zeros: &Vec<u8>| zeros.as_ptr_range().contains(&part.as_ptr());
        let (name, zeros) = self.zeros.iter().find(|(_, zeros)| inside(zeros)).unwrap();
        let at = part.as_ptr().addr() - zeros.as_ptr().addr();
        self.gguf.tensor(name).unwrap().data[at..at + part.len()].to_vec()
    }
}

impl WeightSource for Elsewhere<'_> {
    fn tensor(&self, name: &str) -> Option<WeightView<'_>> {
        let view = WeightSource::tensor(self.gguf, name)?;
        Some(WeightView { data: &self.zeros[name], ..view })
    }

    fn round_bytes(&self) -> usize {
        ROUND
    }

    fn begin(&self, parts: &[&[u8]]) -> bool {
        let mut asked = self.asked.lock().unwrap();
        let room = asked.len() < MOST;
        if room {
            asked.push_back(ends(parts));
        }
        room
    }

    fn take(&self, parts: &[&[u8]], pack: &mut PackBytes<'_>) -> Result<(), Error> {
        assert_eq!(self.asked.lock().unwrap().pop_front(), Some(ends(parts)), "in order");
        let mut taken = self.taken.lock().unwrap();
        *taken += parts.iter().map(|part| part.len()).sum::<usize>();
        if self.fails_at.is_some_and(|at| *taken > at) {
            return Err(Error::Stopped);
        }
        let bytes: Vec<Vec<u8>> = parts.iter().map(|part| self.truth(part)).collect();
        pack(&bytes.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }
}

/// A model, how it is shared, and groups of so many threads.
type Case = (TinyModel, Mode, Vec<usize>);

fn load(
    gguf: &Gguf<'_>,
    (_, mode, groups): &Case,
    source: &dyn WeightSource,
    told: &mut Vec<(usize, usize)>,
) -> Result<Executor, Error> {
    let mut plan = Plan { mode: *mode, ..run::plan(groups.len()) };
    for (group, &threads) in plan.groups.iter_mut().zip(groups) {
        group.cpus = vec![CpuId(0); threads];
    }
    let shares =
        if plan.graph_nodes() == 1 { Shares::from(1) } else { Shares::new(groups.clone()) };
    let graph = models::build(gguf, shares).unwrap().graph;
    let pages = [4, 4, 0, 0];
    let limits = Limits { kv: KvType::F16.into(), tokens: 32, outputs: 1, pages, ranges: 0 };
    let (kernels, machine) = (Kernels::detect().unwrap(), Machine::read().unwrap());
    let mut progress = |p: arclight_graph::PackProgress| told.push((p.done, p.total));
    Executor::new(graph, plan, limits, kernels, &machine, source, &mut progress)
}

fn bits(executor: &mut Executor) -> Vec<u32> {
    let table = PageTable { first: 0, pages: vec![PageId(0)] };
    let tokens: Vec<u32> = (0..20).map(|i| i * 13 % 300).collect();
    let tables = vec![table; executor.graph().classes().len()];
    let rows = run::step(executor, &tokens, 0, &tables, Outputs::Last);
    rows.flatten().map(|x| x.to_bits()).collect()
}

fn cases() -> Vec<(Case, bool)> {
    let fused = TinyModel { ffn: 320, ..TinyModel::phi3(TensorType::Q8_0) };
    let experts = || TinyModel::qwen3moe(TensorType::Q4_0, 768);
    let mixed = TinyModel { second: Some(TensorType::Q6_K), ..TinyModel::qwen3(TensorType::Q4_K) };
    let plain = || TinyModel::qwen3(TensorType::Q4_0);
    let tp = Mode::TensorParallel;
    // And whether all nodes go through their rows in step.
    vec![
        ((plain(), tp, vec![2]), true),
        ((plain(), tp, vec![2, 2]), true),
        ((plain(), Mode::Mirror, vec![2, 2]), true),
        ((plain(), Mode::Pipeline, vec![2, 2]), true),
        ((plain(), Mode::Interleave, vec![1, 2]), true),
        ((plain(), tp, vec![3, 1]), false),
        ((mixed, tp, vec![2, 3]), false),
        ((fused, tp, vec![2, 2]), true),
        ((TinyModel::qwen2(TensorType::Q4_0), tp, vec![2, 2]), true), // biases
        ((experts(), tp, vec![3]), true),
        ((experts(), tp, vec![2, 1, 2]), false),
        ((TinyModel::qwen2moe(TensorType::BF16, 160), tp, vec![2, 2]), false),
    ]
}

#[test]
fn what_is_packed_is_what_was_handed_over() {
    for (i, (case, in_step)) in cases().iter().enumerate() {
        let name = format!("case {i}: {}, {}, {:?}", case.0.arch, case.1, case.2);
        let bytes = case.0.gguf();
        let gguf = Gguf::parse(&bytes).unwrap();
        let source = Elsewhere::new(&gguf);
        let (mut once, mut told) = (Vec::new(), Vec::new());
        let expected = bits(&mut load(&gguf, case, &gguf, &mut once).unwrap());
        let got = bits(&mut load(&gguf, case, &source, &mut told).unwrap());
        assert!(expected == got, "{name}: other bits");

        let total = told[0].1;
        assert!(told.len() > 2 * once.len(), "{name}: few rounds");
        assert!(told.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{name}: {told:?}");
        assert_eq!(told.last(), Some(&(total, total)), "{name}");
        let taken = *source.taken.lock().unwrap();
        assert!(if *in_step { taken == total } else { taken >= total }, "{name}: {taken}, {total}");
        assert!(taken <= 2 * total, "{name}: {taken} of {total}");
    }
}

#[test]
fn a_source_that_fails_ends_loading() {
    let case = (TinyModel::qwen3(TensorType::Q4_0), Mode::TensorParallel, vec![2]);
    let bytes = case.0.gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    let (mut source, mut told) = (Elsewhere::new(&gguf), Vec::new());
    source.fails_at = Some(bytes.len() / 3);
    assert!(matches!(load(&gguf, &case, &source, &mut told), Err(Error::Stopped)));
    assert!(!told.is_empty() && told.last().unwrap().0 < bytes.len() / 2);
}
