//! A machine as the model of time sees it: nodes, bandwidths, multipliers, latencies.

use crate::error::{Error, positive};
use crate::waits::WaitModel;
use kernels::ActKind;

/// `[cpu node][memory node]`.
pub type Matrix = Vec<Vec<f64>>;

/// Bytes per second that one core consumes while nobody competes with it.
///
/// The smaller of what it can load and what its kernel can work off.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct CoreRead {
    /// From its own node's memory.
    pub local: f64,
    /// From another node's.
    pub remote: f64,
}

/// What the kernels of one core compute in a second, with their data at hand.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct CoreMath {
    /// Multiply-accumulates of 8-bit integers: quantised weights and activations.
    pub int8: f64,
    /// Multiply-accumulates of bfloat16.
    pub bf16: f64,
    /// Multiply-accumulates of 32-bit floats: attention, and matrices of type F32 and F16.
    pub f32: f64,
    /// Elements of an activation that are normed, added or quantised: one pass over each.
    pub elements: f64,
}

impl CoreMath {
    /// Multiply-accumulates per second with activations of a kind.
    pub fn rate(&self, kind: ActKind) -> f64 {
        match kind {
            ActKind::Q8 => self.int8,
            ActKind::Bf16 => self.bf16,
            ActKind::F32 => self.f32,
        }
    }

    fn validate(&self) -> Result<(), Error> {
        positive("int8 multiply-accumulates of a core", self.int8)?;
        positive("bf16 multiply-accumulates of a core", self.bf16)?;
        positive("f32 multiply-accumulates of a core", self.f32)?;
        positive("elements that a core passes over", self.elements)?;
        Ok(())
    }
}

/// Nodes, bandwidths, multipliers and latencies of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineModel {
    cores: Vec<usize>,
    read: Matrix,
    core: CoreRead,
    math: CoreMath,
    waits: WaitModel,
}

impl MachineModel {
    /// A machine with `cores[node]` cores and a matrix of bytes/s that all cores of a node together
    /// read from one memory while nothing else is read.
    ///
    /// # Errors
    /// When the matrix is not square with a row per node, or a bandwidth, rate or latency is no
    /// positive number.
    pub fn new(
        cores: Vec<usize>,
        read: Matrix,
        core: CoreRead,
        math: CoreMath,
        waits: WaitModel,
    ) -> Result<MachineModel, Error> {
        let nodes = cores.len();
        if read.len() != nodes {
            return Err(Error::NodeCount { what: "the bandwidth matrix", got: read.len(), nodes });
        }
        for (cpu, row) in read.iter().enumerate() {
            if row.len() != nodes {
                return Err(Error::NodeCount {
                    what: "a row of the matrix",
                    got: row.len(),
                    nodes,
                });
            }
            for (memory, &rate) in row.iter().enumerate() {
                positive(format!("bandwidth of node {cpu} from memory {memory}"), rate)?;
            }
        }
        positive("local bandwidth of a core", core.local)?;
        positive("remote bandwidth of a core", core.remote)?;
        math.validate()?;
        waits.validate()?;
        Ok(MachineModel { cores, read, core, math, waits })
    }

    /// Nodes.
    pub fn nodes(&self) -> usize {
        self.cores.len()
    }

    /// Cores of each node.
    pub fn cores(&self) -> &[usize] {
        &self.cores
    }

    /// Barrier latencies.
    pub fn waits(&self) -> &WaitModel {
        &self.waits
    }

    /// What a core computes.
    pub fn math(&self) -> &CoreMath {
        &self.math
    }

    /// Bytes/s that the node's memory gives all its readers together: what its own cores get.
    pub fn memory(&self, node: usize) -> f64 {
        self.read[node][node]
    }

    /// Bytes/s from memory `memory` to all cores of node `cpu`.
    pub fn link(&self, cpu: usize, memory: usize) -> f64 {
        self.read[cpu][memory]
    }

    /// Bytes/s that one core of `cpu` alone consumes from `memory`.
    pub fn core(&self, cpu: usize, memory: usize) -> f64 {
        if cpu == memory { self.core.local } else { self.core.remote }
    }
}

/// Reads a table of GB/s (10⁹ bytes/s) into bytes/s: a row per cpu node, a column per memory node,
/// separated by white space; `#` starts a comment.
///
/// # Errors
/// When a word is no number, or the table is empty or not square.
pub fn parse_matrix(text: &str) -> Result<Matrix, Error> {
    let mut rows = Matrix::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("");
        let row = line
            .split_whitespace()
            .map(|word| match word.parse::<f64>() {
                Ok(gb_s) if gb_s.is_finite() && gb_s > 0.0 => Ok(gb_s * 1e9),
                _ => Err(Error::BadTable {
                    reason: format!("line {}: {word:?} is no bandwidth", at + 1),
                }),
            })
            .collect::<Result<Vec<f64>, Error>>()?;
        if !row.is_empty() {
            rows.push(row);
        }
    }
    let nodes = rows.len();
    match rows.iter().position(|row| row.len() != nodes) {
        _ if nodes == 0 => Err(Error::BadTable { reason: "it is empty".into() }),
        Some(row) => {
            let reason = format!("{nodes} rows, but row {row} has {} numbers", rows[row].len());
            Err(Error::BadTable { reason })
        }
        None => Ok(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_with_comments_and_blank_lines() {
        let matrix = parse_matrix("# GB/s\n102 26\n\n 26 103 # node 1\n").unwrap();
        assert_eq!(matrix, vec![vec![102e9, 26e9], vec![26e9, 103e9]]);
    }

    #[test]
    fn bad_tables_are_named() {
        for (text, word) in [
            ("", "empty"),
            ("1 2\n3", "row 1"),
            ("1 x\n3 4", "line 1: \"x\""),
            ("-1", "\"-1\""),
            ("inf", "\"inf\""),
            ("0", "\"0\""),
        ] {
            let message = parse_matrix(text).unwrap_err().to_string();
            assert!(message.contains(word), "{text:?}: {message}");
        }
    }

    #[test]
    fn impossible_machines_are_refused() {
        let machine = crate::known::kunpeng_920();
        let new = |cores: &[usize], core, math| {
            MachineModel::new(cores.to_vec(), vec![vec![1e9]], core, math, *machine.waits())
        };
        let core = CoreRead { local: 1e9, remote: 1e9 };
        let math = *machine.math();
        let nan = new(&[4], CoreRead { remote: f64::NAN, ..core }, math);
        assert!(matches!(nan, Err(Error::NotPositive { .. })), "{nan:?}");
        for math in [CoreMath { int8: 0.0, ..math }, CoreMath { elements: -1.0, ..math }] {
            let idle = new(&[4], core, math);
            assert!(matches!(idle, Err(Error::NotPositive { .. })), "{idle:?}");
        }
        let two = new(&[4, 4], core, math);
        assert!(matches!(two, Err(Error::NodeCount { got: 1, nodes: 2, .. })), "{two:?}");
        new(&[4], core, math).unwrap();
    }
}
