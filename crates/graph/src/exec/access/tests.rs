//! Views beyond claims, and faults that are planted: each is caught.

use super::*;
use crate::book::Entry;
use crate::builder::Builder;
use crate::claims::Claims;
use crate::compile::Stage;
use crate::exec::{Run, Thread};
use crate::executor::Executor;
use crate::graph::Graph;
use crate::instr::{Instr, Instruction};
use crate::op::Norm;
use crate::plan::Plan;
use crate::step::{Outputs, PageTable, SeqInput};
use crate::storage::Limits;
use crate::weight::{Catalog, WeightSource, WeightView};
use gguf::TensorType;
use topology::{CpuId, Group, Machine};

const WIDTH: usize = 64;
const VOCAB: usize = 32;

/// A vocabulary matrix and the weights of a norm, all ones.
struct Ones(Vec<u8>);

impl WeightSource for Ones {
    fn tensor(&self, name: &str) -> Option<WeightView<'_>> {
        let rows = if name == "norm" { 1 } else { VOCAB };
        let data = &self.0[..rows * WIDTH * size_of::<f32>()];
        Some(WeightView { ty: TensorType::F32, rows, cols: WIDTH, data })
    }
}

impl Catalog for Ones {
    fn wanted(&self, _: &str, _: usize, _: usize) -> Result<TensorType, crate::Error> {
        Ok(TensorType::F32)
    }

    fn has(&self, _: &str) -> bool {
        false
    }

    fn values(&self, _: &str, _: usize) -> Result<Option<Vec<f32>>, crate::Error> {
        Ok(None)
    }
}

fn graph(source: &Ones) -> Graph {
    let mut b = Builder::new(1, source);
    let vocab = b.vocab("vocab", VOCAB, WIDTH).unwrap();
    let norm = Norm::Rms { weight: b.vector("norm", WIDTH).unwrap(), eps: 1e-6 };
    let x = b.embed(vocab, 1.0);
    let x = b.norm(x, norm);
    let x = b.select(x);
    b.logits(x, vocab, 1.0, None);
    b.finish()
}

/// Steps of a prompt and of one token, after `change` has altered the stages of all programs.
fn steps(change: impl Fn(&mut Stage)) -> Result<(), crate::Error> {
    let source = Ones(1f32.to_le_bytes().repeat(VOCAB * WIDTH));
    let group = Group::unbound(vec![CpuId(0); 2]);
    let plan = Plan { pin: false, ..Plan::new(vec![group]) };
    let limits =
        Limits { kv: KvType::F16.into(), tokens: 600, outputs: 4, pages: [0; 4], ranges: 8 };
    let (kernels, machine) = (kernels::Kernels::detect().unwrap(), Machine::read().unwrap());
    let mut executor =
        Executor::new(graph(&source), plan, limits, kernels, &machine, &source, &mut |_| {})?;
    for replica in &mut executor.replicas {
        let forms = replica.0.programs.values_mut().flat_map(|form| &mut form.stages);
        forms.flatten().for_each(&change);
    }
    for tokens in [1, 600] {
        let tokens = vec![3; tokens];
        let tables: [PageTable; 0] = [];
        let input = SeqInput {
            tokens: &tokens,
            past: 0,
            tables: &tables,
            outputs: Outputs::Last,
            saves: &[],
            insets: &[],
        };
        let row = executor.step([input].into_iter())?.row(0).to_vec();
        // Ones are their own norm, and each logit is the sum of them.
        assert!(row.iter().all(|x| (x - WIDTH as f32).abs() < 1e-3), "{row:?}");
    }
    Ok(())
}

/// The message of the panic that `change` causes.
fn caught(change: impl Fn(&mut Stage)) -> String {
    match steps(change) {
        Err(crate::Error::Panicked(panicked)) => panicked.message,
        other => panic!("not caught: {other:?}"),
    }
}

/// Changes the instructions of that name.
fn each(name: &str, change: impl Fn(&mut Instr)) -> impl Fn(&mut Stage) {
    move |stage| stage.instrs.iter_mut().filter(|i| i.name() == name).for_each(&change)
}

#[test]
fn what_is_declared_can_be_touched() {
    steps(|_| {}).unwrap();
}

#[test]
fn a_claim_that_is_too_small_is_caught() {
    let with = |name: &str, change: fn(&mut Vec<Access>)| {
        caught(each(name, |instr| instr.redeclare(change)))
    };
    for message in [
        with("rms_norm", |all| all.retain(|access| !access.write)),
        with("rms_norm", |all| all.retain(|access| access.write)),
        with("logits", |all| all.retain(|access| access.write)),
        with("embed", Vec::clear),
    ] {
        assert!(message.contains("without a claim"), "{message}");
    }
    // Of 600 tokens and one output, a thread's shares are not the same rows.
    let message = with("embed", |all| {
        all.iter_mut().for_each(|access| access.reach = Reach::Own(Deal::Outputs));
    });
    assert!(message.contains("beyond its claim"), "{message}");
}

/// An instruction that every thread does as if it were another.
#[derive(Clone, Debug)]
struct DealtTo {
    rank: usize,
    does: Box<dyn Instruction>,
}

impl Instruction for DealtTo {
    fn name(&self) -> &'static str {
        self.does.name()
    }

    fn claims(&self, claims: &mut Claims) {
        self.does.claims(claims);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        self.does.work(entry);
    }

    fn run(&self, run: Run<'_>) {
        let shares = run.thread.shares.clone();
        let thread = Thread { rank: self.rank, shares, ..*run.thread };
        self.does.run(Run { thread: &thread, ..run });
    }
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "debug builds keep a shadow of the memory")]
fn a_wrong_deal_is_caught() {
    // Tiles, which a thread claims as it takes them.
    let message = caught(each("logits", |instr| {
        instr.does = Box::new(DealtTo { rank: 0, does: instr.does.clone() });
    }));
    assert!(message.contains("writes row 0 in logits"), "{message}");
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "debug builds keep a shadow of the memory")]
fn a_wait_that_is_missing_is_caught() {
    let message = caught(|stage| stage.wait = None);
    assert!(message.contains("it after 0 waits"), "{message}");
}
