//! The least that a step needs: what must come from memory and be multiplied whatever the caches do.

use super::{Extent, Line, Memory, Per, What};
use kernels::{Product, Products};

/// What some work costs at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Bytes of weights, keys and values to read.
    pub bytes: u64,
    /// Multiply-accumulates of every product.
    pub macs: Products<u64>,
}

impl Demand {
    /// Some multiply-accumulates of one product.
    pub fn multiply(product: Product, macs: u64) -> Demand {
        let mut demand = Demand::default();
        demand.macs[product] = macs;
        demand
    }

    /// Multiply-accumulates of all products.
    pub fn all_macs(&self) -> u64 {
        self.macs.iter().map(|(_, macs)| macs).sum()
    }

    /// What one unit of a line costs: nothing, where it is of activations or passes over them.
    pub(crate) fn of(line: &Line) -> Demand {
        match line.what {
            What::Read(Memory::Weights(_) | Memory::State(_), _) => {
                Demand { bytes: line.amount, ..Demand::default() }
            }
            What::Multiply(product) => Demand::multiply(product, line.amount),
            What::Read(..) | What::Write(..) | What::Pass => Demand::default(),
        }
    }

    /// Each of its figures.
    pub(crate) fn map(self, of: impl Fn(u64) -> u64) -> Demand {
        Demand { bytes: of(self.bytes), macs: self.macs.map(of) }
    }
}

impl std::ops::AddAssign for Demand {
    fn add_assign(&mut self, other: Demand) {
        self.bytes += other.bytes;
        for (product, macs) in other.macs.iter() {
            self.macs[product] += macs;
        }
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
