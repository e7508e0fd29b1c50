//! The least that a step needs: what must come from memory and be multiplied whatever the caches do.

use super::{Extent, Line, Memory, Per, What};
use kernels::ActKind;

/// What some work costs at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Bytes of weights, keys and values to read.
    pub bytes: u64,
    /// Products of 8-bit integers.
    pub int8_macs: u64,
    /// Products of bfloat16.
    pub bf16_macs: u64,
    /// Products of single precision.
    pub float_macs: u64,
}

impl Demand {
    /// Products of all kinds.
    pub fn macs(&self) -> u64 {
        self.int8_macs + self.bf16_macs + self.float_macs
    }

    /// What one unit of a line costs: nothing, where it is of activations or passes over them.
    pub(crate) fn of(line: &Line) -> Demand {
        let (mut demand, amount) = (Demand::default(), line.amount);
        match line.what {
            What::Read(Memory::Weights(_) | Memory::State(_), _) => demand.bytes = amount,
            What::Multiply(ActKind::Q8) => demand.int8_macs = amount,
            What::Multiply(ActKind::Bf16) => demand.bf16_macs = amount,
            What::Multiply(ActKind::F32) => demand.float_macs = amount,
            What::Read(..) | What::Write(..) | What::Pass => {}
        }
        demand
    }

    /// Each of its figures.
    pub(crate) fn map(self, of: impl Fn(u64) -> u64) -> Demand {
        Demand {
            bytes: of(self.bytes),
            int8_macs: of(self.int8_macs),
            bf16_macs: of(self.bf16_macs),
            float_macs: of(self.float_macs),
        }
    }
}

impl std::ops::AddAssign for Demand {
    fn add_assign(&mut self, other: Demand) {
        self.bytes += other.bytes;
        self.int8_macs += other.int8_macs;
        self.bf16_macs += other.bf16_macs;
        self.float_macs += other.float_macs;
    }
}

/// What a step needs at least, for any extent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs(Vec<(Per, Demand)>);

impl Needs {
    /// The sum of what some units need.
    pub fn new(terms: impl IntoIterator<Item = (Per, Demand)>) -> Needs {
        let mut needs = Needs::default();
        terms.into_iter().for_each(|(per, demand)| needs.add(per, demand));
        needs
    }

    pub(crate) fn add(&mut self, per: Per, demand: Demand) {
        if demand == Demand::default() {
            return;
        }
        match self.0.iter_mut().find(|(own, _)| *own == per) {
            Some((_, sum)) => *sum += demand,
            None => self.0.push((per, demand)),
        }
    }

    /// What a step of this extent needs.
    pub fn of(&self, extent: &Extent) -> Demand {
        let mut all = Demand::default();
        for (per, demand) in &self.0 {
            let units = extent.units(*per);
            all += demand.map(|figure| figure * units);
        }
        all
    }
}
