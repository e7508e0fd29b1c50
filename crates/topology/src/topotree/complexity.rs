//! How large the space is that a search goes through, counted and not estimated.
//!
//! *Group.* A level of `c` children is grouped by `n` with a stride `s` where `n·s` divides `c`; the
//! first level above the children is one of these partitions, no two of which are equal, and what
//! stands above that is a way to group `c/n` children. So there are
//!
//! ```text
//! G(c) = 1 + Σ d(c/n) · G(c/n)   over n dividing c, 1 < n < c;  d(m): number of divisors of m
//! ```
//!
//! ways, and over a tree their product over its levels, as grouping a level leaves the others as
//! they were. For `c` = 2ⁱ this is (i + 1)!/2. Groups made inside of groups give nothing else: their
//! members are equally spaced too, so the inner level could have come first.
//!
//! *Remove.* On a symmetric tree a removal changes one number of children, so what is reached is
//! the choices of 1 to `c` children for every level: their product, which is the number of CPUs
//! `n`. Each pair of such trees that differ in one level is one transformation: `n/2 · Σ(c - 1)`
//! of them, less than n² because `Σ(c - 1) < n`.
//!
//! The paper's propositions bound both from above. `tests/topotree.rs` counts what is reached.

use std::collections::BTreeMap;
use std::fmt;

/// The size of the space of a symmetric tree. It prints as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complexity {
    /// What the level is called whose vertices have so many children.
    levels: Vec<(String, usize)>,
}

impl Complexity {
    pub(super) fn new(levels: Vec<String>, arities: Vec<usize>) -> Self {
        Self { levels: levels.into_iter().zip(arities).collect() }
    }

    /// The levels with children, from the root on: what a vertex is called, and how many children it has.
    pub fn levels(&self) -> &[(String, usize)] {
        &self.levels
    }

    fn children(&self) -> impl Iterator<Item = usize> {
        self.levels.iter().map(|&(_, children)| children)
    }

    /// CPUs.
    pub fn cpus(&self) -> usize {
        self.children().product()
    }

    /// Trees that group transformations make, the tree itself included.
    pub fn groupings(&self) -> u128 {
        self.children().fold(1, |all, c| all.saturating_mul(groupings(c)))
    }

    /// Trees that remove transformations make of any one of these, itself included.
    pub fn removals(&self) -> usize {
        self.cpus()
    }

    /// Remove transformations between those: what a search without pruning tries. Grouping a tree
    /// makes it fewer.
    pub fn transformations(&self) -> usize {
        self.cpus() * self.children().map(|c| c - 1).sum::<usize>() / 2
    }

    /// Trees by both: each grouping with each removal. Half of them may be equal, as groupings leave
    /// the same few CPUs together when most are removed.
    pub fn trees(&self) -> u128 {
        self.groupings().saturating_mul(self.removals() as u128)
    }

    /// Most cross-sections of a tree: levels when everything is grouped as often as it can be.
    pub fn cross_sections(&self) -> usize {
        1 + self.children().map(prime_factors).sum::<usize>()
    }
}

impl fmt::Display for Complexity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>10}{:>10}{:>10}{:>12}", "level", "vertices", "children", "groupings")?;
        let mut vertices = 1;
        for (name, children) in &self.levels {
            writeln!(f, "{name:>10}{vertices:>10}{children:>10}{:>12}", groupings(*children))?;
            vertices *= children;
        }
        writeln!(f, "group:   {} trees, the product of the groupings", self.groupings())?;
        writeln!(
            f,
            "remove:  {} trees from each, one per cpu, by at most {} transformations",
            self.removals(),
            self.transformations()
        )?;
        writeln!(f, "cross-sections of a tree: at most {}", self.cross_sections())?;
        write!(f, "at most {} trees", self.trees())
    }
}

/// The ways to group so many children, in one level or more or not at all: see the module's text.
/// Saturates.
pub fn groupings(children: usize) -> u128 {
    let divisors: Vec<usize> = (1..=children).filter(|n| children.is_multiple_of(*n)).collect();
    let mut ways: BTreeMap<usize, u128> = BTreeMap::new();
    for &c in &divisors {
        let groups = divisors.iter().filter(|&&g| g > 1 && g < c && c.is_multiple_of(g));
        let add = |sum: u128, g: &usize| {
            let strides = divisors.iter().filter(|s| g.is_multiple_of(**s)).count() as u128;
            sum.saturating_add(strides.saturating_mul(ways[g]))
        };
        let all = groups.fold(1, add);
        ways.insert(c, all);
    }
    ways.get(&children).copied().unwrap_or(1)
}

/// How many primes multiply up to `n`.
fn prime_factors(mut n: usize) -> usize {
    let mut found = 0;
    let mut divisor = 2;
    while divisor <= n {
        if n.is_multiple_of(divisor) {
            n /= divisor;
            found += 1;
        } else {
            divisor += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_follow_the_closed_form() {
        let mut factorial = 1u128;
        for i in 1..=13u32 {
            factorial *= u128::from(i + 1);
            assert_eq!(groupings(1 << i), factorial / 2, "2^{i}");
        }
    }

    #[test]
    fn small_numbers_by_hand() {
        // 0123; 01 23; 02 13.
        assert_eq!(groupings(4), 3);
        // 6; 2 × 3 in 01 23 45 and 03 14 25; 3 × 2 in 012 345 and 024 135.
        assert_eq!(groupings(6), 5);
        assert_eq!((groupings(0), groupings(1), groupings(7)), (1, 1, 1));
        assert_eq!((prime_factors(1), prime_factors(24), prime_factors(7)), (0, 4, 1));
    }
}
