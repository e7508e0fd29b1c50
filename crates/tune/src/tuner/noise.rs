//! When one series of measurements is faster than another by more than noise.
//!
//! The rank-sum test of Wilcoxon (1945) and of Mann and Whitney (1947), one-sided, with its exact
//! distribution: of all ways in which the repetitions of both could be mixed if they were the same
//! thing, how many look as good as this? It asks nothing of the distribution of times, which have
//! long tails, and a single disturbed repetition cannot decide it. Repetitions are to be measured in
//! turns, so that what drifts disturbs both alike.

/// Most that a claim may be due to chance. With 5 repetitions each, 252 ways to mix them, the claim is
/// made when at most one pair of repetitions speaks against it (2 of 252; with two pairs it is 4); below
/// 5 each it takes no contradiction, and with fewer than 4 and 5 nothing is ever claimed.
const CHANCE: f64 = 0.01;

/// Fewest repetitions with which anything can be claimed: 1 of 252 ways with 5 each, 1 of 70 with 4.
pub(crate) const FEWEST: usize = 5;

/// Whether `fast` takes less than `slow` by more than chance.
pub fn faster(fast: &[f64], slow: &[f64]) -> bool {
    chance(fast, slow) <= CHANCE
}

/// The share of the ways to mix both in which as few or fewer pairs contradict `fast` being the faster
/// one. Pairs of equals contradict.
fn chance(fast: &[f64], slow: &[f64]) -> f64 {
    if fast.is_empty() || slow.is_empty() {
        return 1.0;
    }
    let against = fast.iter().flat_map(|f| slow.iter().filter(move |&s| f >= s)).count();
    let ways = ways(fast.len(), slow.len());
    ways[..=against].iter().sum::<f64>() / ways.iter().sum::<f64>()
}

/// In how many orders of `n` and `m` things 0, 1, ... n · m pairs stand the wrong way round.
///
/// Taking away the last in the order leaves a shorter one: when it is one of the `n`, all `m` others
/// stand before it, so `m` pairs go with it.
fn ways(n: usize, m: usize) -> Vec<f64> {
    // Of i and all numbers up to m, filled for one i after the other.
    let mut orders = vec![vec![1.0]; m + 1];
    for i in 1..=n {
        orders[0] = vec![1.0];
        for j in 1..=m {
            let mut all = vec![0.0; i * j + 1];
            // `orders[j]` is still that of i - 1.
            orders[j].iter().enumerate().for_each(|(pairs, ways)| all[pairs + j] += ways);
            orders[j - 1].iter().enumerate().for_each(|(pairs, ways)| all[pairs] += ways);
            orders[j] = all;
        }
    }
    orders.swap_remove(m)
}

/// The median of times; infinite without any.
pub fn median(times: &[f64]) -> f64 {
    topology::median(times).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_that_of_the_tables() {
        let all = |n, m| ways(n, m).iter().sum::<f64>();
        assert_eq!((all(5, 5), all(3, 3), all(2, 6)), (252.0, 20.0, 28.0));
        // Mann and Whitney's table of n = m = 5: U of 0, 1, 2, 3, 4 with .004, .008, .016, .028, .048.
        let below = |u: usize| ways(5, 5)[..=u].iter().sum::<f64>() / 252.0;
        for (u, p) in [(0, 0.004), (1, 0.008), (2, 0.016), (3, 0.028), (4, 0.048)] {
            // Three decimals are printed.
            assert!((below(u) - p).abs() < 0.0005, "{u}: {}", below(u));
        }
    }

    #[test]
    fn one_contradiction_is_forgiven_and_two_are_not() {
        let slow = [10.0, 11.0, 12.0, 13.0, 14.0];
        assert!(faster(&[5.0, 6.0, 7.0, 8.0, 9.0], &slow));
        assert!(faster(&[5.0, 6.0, 7.0, 8.0, 10.5], &slow));
        assert!(!faster(&[5.0, 6.0, 7.0, 8.0, 11.5], &slow));
        assert!(!faster(&slow, &slow) && !faster(&[10.0; 5], &[10.0; 5]));
        // Too few to say anything.
        assert!(!faster(&[1.0; 4], &[2.0; 4]) && !faster(&[], &slow) && !faster(&[1.0], &[]));
        assert!(faster(&[1.0; FEWEST], &[2.0; FEWEST]));
        // What is impossible is slow.
        assert!(faster(&[1.0; 5], &[f64::INFINITY; 5]));
    }

    #[test]
    fn what_was_not_timed_takes_infinitely_long() {
        assert_eq!(median(&[]), f64::INFINITY);
    }
}
