//! `arclight bench-sync`: what it costs threads to wait for each other and to add up what the
//! memory nodes have computed, by number of threads and nodes.
//!
//! Barriers: the pool's own, within a node and over all, beside a flat one: the same counter, gate
//! and policy of spinning and sleeping with all threads in one group, which is what an engine
//! without nodes does (one atomic counter for everybody, one line on which everybody spins).
//! Gathers: [`gather`]. What is compared is measured in turns (A B A B), in batches of at least
//! [`BATCH`](pools::BATCH), and told as median and quartiles of the rounds.
//!
//! Limits: nothing here knows what lies between two nodes. With virtual nodes, or on a machine with
//! one node, it shows the cost of the algorithms but none of the links.

pub(crate) mod barrier;
mod gather;
pub(crate) mod pools;
pub(crate) mod report;
mod summary;

use crate::args::{List, count, counts};
use crate::error::Error;
use crate::output::{Output, OutputArgs};
use crate::term::{self, note};
use clap::Args;
use gather::{ROW, Sums};
use report::{GatherRow, Report, Setup};
use std::collections::BTreeSet;
use topology::{Layout, Machine, layout};

/// Measure what waiting and adding up across memory nodes cost
///
/// Between the stages of a step, threads wait for the others of their memory node (a local wait) or
/// for everybody (a global one), and add up what each node has computed (a gather). Both grow with
/// the number of threads, and with the distance between nodes: they decide how many threads pay.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchSyncArgs {
    /// Memory nodes to use; more than there are makes virtual ones [default: 1, 2, 4 and as many
    /// as there are]
    #[arg(long, value_name = "N,...", value_parser = counts)]
    nodes: Option<List>,
    /// Threads, over all nodes [default: 1, 2, 4, ... and one per physical core that may be used,
    /// as far as the nodes have CPUs for them]
    #[arg(short, long, value_name = "N,...", value_parser = counts)]
    threads: Option<List>,
    /// Bytes of every node's summand, in rows of 4K; with K or M for KiB or MiB
    #[arg(short, long, value_name = "SIZE,...", value_parser = sizes, default_value = SIZES)]
    sizes: List,
    /// How often each measurement is repeated, in turns with the others
    #[arg(short, long, value_name = "N", value_parser = count, default_value = "9")]
    rounds: usize,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Barriers, in µs for one wait:
  local      for the threads of the own node; all nodes at the same time
  global     for all threads: they meet in their node, and one of each node meets the others
  flat       for all threads on one counter, as engines do that do not know of nodes
  crossings  threads that touch the line which all nodes share, for one global wait

Gathers, in µs for one sum as a step of a model has it, with the small products before it and the
waits; rows are of 1024 floats, one for each token. The first two are one-shot:
  pull       the threads of a node share the rows, and read the summands of all nodes
  push       every thread writes its part to all nodes, and adds up there for itself (up to 64 KiB)
  scatter    each node adds up its share, and writes it to all nodes
Nothing wins everywhere: a scatter reads and adds less, but waits for everybody once more.
Run it more than once before you believe a small difference: runs differ more than rounds do.

Examples:
  arclight bench-sync
  arclight bench-sync -t 32,64,128 --nodes 2       is a second node worth its waits?
  arclight bench-sync --nodes 2 --sizes 4K,2M      one token, and 512
  arclight bench-sync -o csv > sync.csv";

const SIZES: &str = "4K,16K,64K,256K,1M,4M,16M";

/// Powers of two up to this are tried as numbers of nodes on a machine with fewer.
const VIRTUAL_NODES: usize = 4;
/// More make no sense, and many more would take all memory.
const MOST_NODES: usize = 128;
/// No summand is larger.
const MOST_BYTES: usize = 1 << 30;

/// Runs the command.
pub(crate) fn run(args: &BenchSyncArgs) -> Result<(), Error> {
    let machine = Machine::read()?;
    let setups = setups(args, &machine)?;
    // One node has nobody to exchange with.
    let several = || setups.iter().filter(|(setup, _)| setup.nodes > 1);
    let largest = args.sizes.0.iter().copied().max().unwrap_or(1);
    let mut told = Told::default();
    warn(&setups, machine.usable_nodes().count().max(1), &mut told);

    let steps = (setups.len() + several().count() * args.sizes.0.len()) * args.rounds;
    let bar = term::count_bar("timing", steps);
    let mut out = Output::new(args.output);
    let mut report = Report::new(&machine, args.rounds);
    for (setup, layout) in &setups {
        bar.set_message(format!("waits of {setup}"));
        let row = barrier::measure(layout, args.rounds, &mut || bar.inc(1))?;
        report.add_barrier(row);
        bar.suspend(|| report.print_new(&mut out))?;
    }
    for (setup, layout) in several() {
        let mut sums = Sums::load(&machine, layout, largest)?;
        bar.suspend(|| sums.warnings().iter().for_each(|warning| told.tell(warning)));
        for &bytes in &args.sizes.0 {
            bar.set_message(format!("{} on {setup}", term::size(bytes)));
            let times = sums.measure(bytes, args.rounds, &mut || bar.inc(1))?;
            report.add_gather(GatherRow { setup: setup.clone(), bytes, times });
            bar.suspend(|| report.print_new(&mut out))?;
        }
        bar.suspend(|| report.end_gathers(setup, sums.placement(), &mut out))?;
    }
    bar.finish_and_clear();
    report.finish(&mut out)
}

/// Sizes with units: `1K,16M`.
fn sizes(text: &str) -> Result<List, String> {
    let size = |item: &str| {
        let item = item.trim();
        let (digits, unit) = match item.as_bytes().last() {
            Some(b'k' | b'K') => (&item[..item.len() - 1], 1 << 10),
            Some(b'm' | b'M') => (&item[..item.len() - 1], 1 << 20),
            _ => (item, 1),
        };
        let bytes = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit));
        match bytes {
            None => Err(format!("{item:?} is no size: write 4096, 4K or 4M")),
            Some(n) if n == 0 || n % ROW != 0 => {
                Err(format!("{item} is no whole number of rows of 4K"))
            }
            Some(n) if n > MOST_BYTES => Err(format!("{item} is more than 1024M")),
            Some(n) => Ok(n),
        }
    };
    let mut all = text.split(',').map(size).collect::<Result<Vec<_>, _>>()?;
    all.sort_unstable();
    all.dedup();
    Ok(List(all))
}

/// What to measure, by nodes and threads.
fn setups(args: &BenchSyncArgs, machine: &Machine) -> Result<Vec<(Setup, Layout)>, Error> {
    let real = machine.usable_nodes().count().max(1);
    let sorted = |given: &Option<List>, or: &dyn Fn() -> BTreeSet<usize>| match given {
        Some(List(all)) => all.iter().copied().collect(),
        None => or(),
    };
    let up_to = |most: usize, and: usize| {
        let powers = (0..).map(|i| 1 << i).take_while(|&n| n <= most);
        powers.chain([and]).collect::<BTreeSet<usize>>()
    };
    let cores = layout(machine, None, None)?.threads();
    let threads = sorted(&args.threads, &|| up_to(cores, cores));
    let nodes = sorted(&args.nodes, &|| up_to(real.max(VIRTUAL_NODES), real));
    if let Some(many) = nodes.iter().find(|&&n| n > MOST_NODES) {
        return Err(Error::Usage(format!("--nodes {many}: at most {MOST_NODES} can be measured")));
    }
    let mut setups = Vec::new();
    for &nodes in &nodes {
        // A node without a thread would have nobody to wait for.
        for &threads in threads.iter().filter(|&&threads| threads >= nodes) {
            let layout = layout(machine, Some(nodes), Some(threads))?;
            let setup = Setup::of(&layout);
            // What measures the scheduler is measured only when asked for.
            if setup.cpus == threads || args.threads.is_some() {
                setups.push((setup, layout));
            }
        }
    }
    match setups.is_empty() {
        true => Err(Error::Usage(
            "every node needs a thread: use more --threads or fewer --nodes".to_owned(),
        )),
        false => Ok(setups),
    }
}

/// Notes that were told: many setups have the same to say.
#[derive(Default)]
struct Told(BTreeSet<String>);

impl Told {
    fn tell(&mut self, text: &str) {
        if self.0.insert(text.to_owned()) {
            note!("{text}");
        }
    }
}

/// Says what the numbers will not show.
fn warn(setups: &[(Setup, Layout)], real: usize, told: &mut Told) {
    setups.iter().flat_map(|(_, layout)| &layout.notes).for_each(|text| told.tell(text));
    if setups.iter().any(|(setup, _)| setup.cpus < setup.threads) {
        told.tell(
            "rows marked *: threads share CPUs; the time is the scheduler's, not the barrier's",
        );
    }
    if setups.iter().any(|(setup, _)| setup.virtual_nodes) {
        let nodes = term::plural(real, "memory node");
        told.tell(&format!(
            "more nodes than {real} are virtual: this machine has {nodes}, so no link is crossed"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_are_whole_rows() {
        assert_eq!(sizes("4M, 8K,4096,4k"), Ok(List(vec![4 << 10, 8 << 10, 4 << 20])));
        for bad in ["", "K", "4G", "-4", "1.5K", "4K,,8K"] {
            assert!(sizes(bad).unwrap_err().contains("is no size"), "{bad}");
        }
        for bad in ["0", "0M", "6", "1025", "5K"] {
            assert!(sizes(bad).unwrap_err().contains("rows of 4K"), "{bad}");
        }
        assert!(sizes("1025M").unwrap_err().contains("1024M"));
        assert!(sizes("99999999999999999999M").is_err() && sizes("18446744073709551615K").is_err());
    }

    fn chosen(args: &[&str], machine: &Machine) -> Result<Vec<(usize, usize, bool)>, Error> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: BenchSyncArgs,
        }
        let line = <Line as clap::Parser>::parse_from([&["x"], args].concat());
        let all = setups(&line.args, machine)?;
        Ok(all.iter().map(|(s, _)| (s.nodes, s.threads, s.virtual_nodes)).collect())
    }

    #[test]
    fn all_powers_and_the_whole_machine_are_tried() {
        let machine = topology::fake::FakeMachine::uniform(3, 2).machine().unwrap();
        let all = [
            [(1, 1, false), (1, 2, false)].as_slice(), // a node has two CPUs
            &[(2, 2, false), (2, 4, false)],
            &[(3, 4, false), (3, 6, false), (4, 4, true), (4, 6, true)],
        ];
        assert_eq!(chosen(&[], &machine).unwrap(), all.concat());
        let one = chosen(&["--nodes", "3", "-t", "7,3,2"], &machine).unwrap();
        assert_eq!(one, [(3, 3, false), (3, 7, false)]);
        let none = chosen(&["--nodes", "4", "-t", "2"], &machine).unwrap_err();
        assert!(none.to_string().contains("every node needs a thread"), "{none}");
        assert_eq!(none.exit_code(), 2);
        assert!(chosen(&["--nodes", "129", "-t", "200"], &machine).is_err());
    }
}
