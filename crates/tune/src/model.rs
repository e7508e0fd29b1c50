//! A model as its compiled programs: what the book of work says of every stage, for any nodes and threads.
//!
//! Layers compile to equal stages, so a program is a handful of different stages and how often each is
//! executed. Graphs are kept by the shares of their nodes and programs by their form, so that hundreds of
//! numbers of threads are asked about with a few compilations.

use crate::error::Error;
use crate::step::Work;
use graph::{
    Dealt, Extent, Forecast, Graph, KvTypes, Line, Memory, Mode, Per, Plan, RowsOf, Scope, Shares,
    SplitBy, Sync, Task, TaskStage, Variant, What,
};
use kernels::ActKind;
use models::published::Published;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use topology::{CpuId, Group};

/// What a model's time depends on. It needs no weights.
pub struct ModelGraphs<'a> {
    build: Box<dyn Fn(Shares) -> Graph + 'a>,
    kv: KvTypes,
    graphs: RefCell<HashMap<Vec<usize>, Rc<Graph>>>,
    programs: RefCell<HashMap<Key, Programs>>,
}

/// Shares of the groups, mode, waits and form.
type Key = (Vec<usize>, bool, bool, Variant);
type Programs = Rc<[Program]>;

/// The parts of a step, each with its programs: one, or in a pipeline one for each place.
pub(crate) struct Compiled {
    pub parts: Vec<(Programs, Extent)>,
    /// Times that all threads meet besides.
    pub meetings: usize,
    /// Logits of a token.
    pub vocab: usize,
}

/// What the teams of some places do together.
pub(crate) struct Program {
    pub stages: Vec<Repeated>,
    /// Layers in it.
    pub layers: usize,
}

/// Equal stages: the work of one, and how many there are.
pub(crate) struct Repeated {
    pub name: String,
    pub times: usize,
    pub instrs: Vec<Instruction>,
    pub wait: Option<Scope>,
}

/// The work of an instruction.
#[derive(PartialEq)]
pub(crate) struct Instruction {
    /// `[place of the program]`
    pub terms: Vec<Vec<Term>>,
    /// Elements of a row that are passed over where each operator is executed by itself: `[place]`.
    pub operators: Vec<f64>,
    /// Elements of a row that a layer's product gives, whatever its nodes.
    pub results: f64,
    /// Whether all threads read all of its input: it is a product, or attention.
    pub shared: bool,
}

/// A line of the book, without the numbers of buffers and matrices.
#[derive(PartialEq)]
pub(crate) struct Term {
    pub amount: f64,
    pub of: Of,
    pub per: Per,
    pub dealt: Dealt,
}

/// What an amount is of.
#[derive(Copy, Clone, PartialEq)]
pub(crate) enum Of {
    /// Bytes that are read from, or written to, memory of a place of the program.
    Bytes {
        kept: Kept,
        place: usize,
        write: bool,
    },
    Multiply(ActKind),
    Pass,
}

#[derive(Copy, Clone, PartialEq)]
pub(crate) enum Kept {
    Weights,
    State,
    Rows,
}

impl<'a> ModelGraphs<'a> {
    /// A model whose graph is built by `build`, with keys and values of type `kv`.
    pub fn new(kv: impl Into<KvTypes>, build: impl Fn(Shares) -> Graph + 'a) -> ModelGraphs<'a> {
        let (graphs, programs, kv) = (RefCell::default(), RefCell::default(), kv.into());
        ModelGraphs { build: Box::new(build), kv, graphs, programs }
    }

    /// A published model.
    pub fn published(model: Published, kv: impl Into<KvTypes>) -> ModelGraphs<'static> {
        ModelGraphs::new(kv, move |shares| model.build(shares).graph)
    }

    /// Its graph for so many nodes with equal shares.
    pub fn for_nodes(&self, nodes: usize) -> Rc<Graph> {
        self.graph(&vec![1; nodes.max(1)])
    }

    /// Bytes that a step reads in which each of `sequences` sequences has a token after `context` others: of
    /// weights, and of keys and values. Of experts, those that tokens choose on average.
    ///
    /// # Errors
    /// As [`crate::Engine::step`].
    pub fn bytes(&self, sequences: usize, context: usize) -> Result<(f64, f64), Error> {
        let work = Work { sequences, ..Work::decode(context) };
        let compiled = self.compile(Mode::TensorParallel, Sync::Derived, &[1], work)?;
        let (programs, extent) = &compiled.parts[0];
        let (mut weights, mut state) = (0.0, 0.0);
        for (stage, term) in programs[0].terms() {
            let bytes = stage.times as f64 * term.units(extent) * term.amount;
            match (term.of, term.per) {
                (Of::Bytes { kept: Kept::Weights, .. }, Per::Step(_) | Per::Expert(_)) => {
                    weights += bytes;
                }
                (Of::Bytes { kept: Kept::State, write: false, .. }, _) => state += bytes,
                _ => {}
            }
        }
        Ok((weights, state))
    }

    /// The step that groups of so many threads take.
    pub(crate) fn compile(
        &self,
        mode: Mode,
        sync: Sync,
        threads: &[usize],
        work: Work,
    ) -> Result<Compiled, Error> {
        let group = |&n: &usize| Group::unbound(vec![CpuId(0); n]);
        let plan = Plan { mode, sync, ..Plan::new(threads.iter().map(group).collect()) };
        let common = threads.iter().copied().fold(0, gcd);
        let shares: Vec<usize> = threads.iter().map(|n| n / common).collect();
        let graph = self.graph(if plan.graph_nodes() == 1 { &[1] } else { &shares });
        let context = work.context + work.tokens;
        let forecast = Forecast::new(&graph, &plan, self.kv, context, work.sequences)
            .map_err(|e| Error::Graph(e.to_string()))?;
        let parts = forecast.parts(work.sequences, work.tokens, work.context);
        let meetings = forecast.meetings(parts.len());
        let programs = |(variant, extent): (Variant, Extent)| {
            let key = (shares.clone(), mode == Mode::Pipeline, sync == Sync::Global, variant);
            let mut known = self.programs.borrow_mut();
            let programs = known.entry(key).or_insert_with(|| {
                let compiled = forecast.programs(variant).into_iter();
                compiled.map(|stages| Program::new(&graph, stages)).collect()
            });
            (Rc::clone(programs), extent)
        };
        let parts = parts.into_iter().map(programs).collect();
        Ok(Compiled { parts, meetings, vocab: graph.vocab() })
    }

    fn graph(&self, shares: &[usize]) -> Rc<Graph> {
        let mut graphs = self.graphs.borrow_mut();
        let build = || Rc::new((self.build)(Shares::new(shares.to_vec())));
        Rc::clone(graphs.entry(shares.to_vec()).or_insert_with(build))
    }
}

/// The greatest common divisor.
pub(crate) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Program {
    fn new(graph: &Graph, compiled: Vec<TaskStage>) -> Program {
        let tasks = compiled.iter().flat_map(|stage| &stage.tasks);
        let layers = tasks.filter_map(|task| task.layer).collect::<HashSet<usize>>().len();
        let mut stages: Vec<Repeated> = Vec::new();
        for TaskStage { tasks, wait } in compiled {
            let name = name(graph, &tasks);
            let instrs: Vec<Instruction> =
                tasks.iter().map(|task| Instruction::new(graph, task)).collect();
            let same = |s: &&mut Repeated| s.name == name && s.wait == wait && s.instrs == instrs;
            match stages.iter_mut().find(same) {
                Some(stage) => stage.times += 1,
                None => stages.push(Repeated { name, times: 1, instrs, wait }),
            }
        }
        Program { stages, layers }
    }

    fn terms(&self) -> impl Iterator<Item = (&Repeated, &Term)> {
        self.stages.iter().flat_map(|stage| {
            stage
                .instrs
                .iter()
                .flat_map(|instr| instr.terms.iter().flatten())
                .map(move |term| (stage, term))
        })
    }
}

/// A stage is named after the matrix that is multiplied in it.
fn name(graph: &Graph, tasks: &[Task]) -> String {
    let product = tasks.iter().find_map(|task| Some((task, task.matrix?)));
    match product {
        Some((task, _)) if task.layer.is_none() => "head".to_owned(),
        Some((_, matrix)) => graph.matrix(matrix).name.trim_end_matches("+bias").to_owned(),
        None if tasks.iter().any(attends) => "attention".to_owned(),
        None => "rest".to_owned(),
    }
}

/// Whether it reads keys and values.
fn attends(task: &Task) -> bool {
    let reads = |line: &Line| matches!(line.what, What::Read(Memory::State(_), _));
    task.lines.iter().flatten().any(reads)
}

impl Instruction {
    fn new(graph: &Graph, task: &Task) -> Instruction {
        let terms =
            |lines: &Vec<Line>| lines.iter().map(|line| Term::new(line, graph.nodes())).collect();
        let operators = |node: usize| {
            let Some(matrix) = task.matrix else { return 0 };
            let matrix = graph.matrix(matrix);
            let (input, parts) = (matrix.input_width(node), matrix.parts.len());
            match matrix.split {
                // The input is quantised; what all nodes give is added to the residual stream.
                SplitBy::Cols => input + graph.nodes() * matrix.parts[0].rows,
                // A norm and its weights, and for each part the input is quantised; then the function of a
                // feed-forward layer, and the product of a pair.
                SplitBy::Rows => {
                    let passes = if task.layer.is_some() && parts < 3 { parts } else { 0 };
                    (2 + parts) * input + passes * matrix.rows(0, node).len()
                }
            }
        };
        let results =
            |matrix| graph.matrix(matrix).parts.iter().map(|part| part.rows).sum::<usize>();
        Instruction {
            results: task.matrix.filter(|_| task.layer.is_some()).map_or(0, results) as f64,
            terms: task.lines.iter().map(terms).collect(),
            operators: (0..task.lines.len())
                .map(|place| operators(if graph.nodes() == 1 { 0 } else { place }) as f64)
                .collect(),
            shared: task.matrix.is_some() || attends(task),
        }
    }

    /// The rows that operators pass over.
    pub(crate) fn rows(&self, extent: &Extent) -> f64 {
        let products = self.terms.iter().flatten().filter(|t| matches!(t.of, Of::Multiply(_)));
        products.map(|term| term.units(extent)).fold(0.0, f64::max)
    }
}

impl Term {
    fn new(line: &Line, nodes: usize) -> Term {
        let kept = |memory| match memory {
            Memory::Weights(_) | Memory::Table(_) => Kept::Weights,
            Memory::State(_) => Kept::State,
            Memory::Rows(_) => Kept::Rows,
        };
        let of = match line.what {
            What::Read(memory, place) => Of::Bytes { kept: kept(memory), place, write: false },
            What::Write(memory, place) => Of::Bytes { kept: kept(memory), place, write: true },
            What::Multiply(product) => Of::Multiply(product.acts()),
            What::Pass => Of::Pass,
        };
        // A token's row of a table lies on one of the nodes, on each as likely.
        let lines = if matches!(line.per, Per::Lookup(..)) { nodes } else { 1 };
        Term { amount: line.amount as f64 / lines as f64, of, per: line.per, dealt: line.dealt }
    }

    /// Units of a step that the amount is for.
    pub(crate) fn units(&self, extent: &Extent) -> f64 {
        extent.units(self.per) as f64
    }

    /// Whether it is of the weights that logits are made with.
    pub(crate) fn of_head(&self) -> bool {
        matches!(self.of, Of::Bytes { kept: Kept::Weights, .. })
            && self.per == Per::Step(RowsOf::Logits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::KvType;

    #[test]
    fn a_token_reads_the_weights_of_its_file_and_what_its_windows_show() {
        let of = |name: &str, kv, context| {
            ModelGraphs::published(name.parse().unwrap(), kv).bytes(1, context).unwrap()
        };
        let (weights, kv) = of("qwen3-4b:q4_0", KvType::Q4_0, 9);
        // 2362.8 MB; packed, the Q6_K head is a hundredth larger, and pieces of columns are padded to lines.
        assert!((2362.8e6..1.003 * 2362.8e6).contains(&weights), "{weights}");
        // 8 heads x 128, keys and values, in Q4_0: 18 bytes per 32 elements. The new token is read
        // with the others.
        assert_eq!(kv, (36 * 10 * 2 * 8 * 128 / 32 * 18) as f64);
        // 29 of 34 layers see 1024 of 2001 tokens: 4 heads x 256.
        let (_, kv) = of("gemma3-4b:q4_0", KvType::F16, 2000);
        assert_eq!(kv, ((29 * 1024 + 5 * 2001) * 2 * 4 * 256 * 2) as f64);
    }

    #[test]
    fn equal_layers_are_one() {
        let model = ModelGraphs::published("qwen3-4b:q4_0".parse().unwrap(), KvType::F16);
        let compile = |threads: &[usize]| {
            let (mode, sync) = (Mode::TensorParallel, Sync::Derived);
            model.compile(mode, sync, threads, Work::decode(9)).unwrap()
        };
        let (few, many) = (compile(&[2, 2]), compile(&[48, 48]));
        assert!(Rc::ptr_eq(&few.parts[0].0, &many.parts[0].0), "shares are what matters");
        let [program] = &*few.parts[0].0 else { panic!("one program") };
        assert_eq!(program.layers, 36);
        let stages: Vec<(&str, usize)> =
            program.stages.iter().map(|s| (s.name.as_str(), s.times)).collect();
        assert!(stages.len() < 12 && stages.contains(&("gate_up", 36)), "{stages:?}");
    }
}
