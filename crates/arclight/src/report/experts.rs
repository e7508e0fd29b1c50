//! How evenly tokens went to experts.

use super::rows::percent;
use serde::Serialize;

/// The choice of experts, of all layers that have some.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Experts {
    /// Times that tokens went to each: `[layer][expert]`.
    chosen: Vec<Vec<u64>>,
    /// Tokens of a layer's busiest expert over its even share: on average, and at most.
    busiest: f64,
    busiest_of_all: f64,
    /// Share of experts that no token went to.
    idle: f64,
    /// The experts with the greatest share of their layer's tokens, the greatest first.
    most: Vec<Most>,
}

/// An expert that was chosen often.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Most {
    /// Its layer, of those with experts, from 0.
    layer: usize,
    expert: usize,
    /// Its share of what the layer's tokens chose.
    share: f64,
}

/// How many of them are named.
const NAMED: usize = 3;

impl Experts {
    /// `None` if there are none, or no token went to any.
    pub(super) fn of(chosen: &[Vec<u64>]) -> Option<Experts> {
        // One that all tokens go to is no choice.
        let layers = chosen.iter().filter(|layer| layer.len() > 1 && layer.iter().any(|&n| n > 0));
        let chosen: Vec<Vec<u64>> = layers.cloned().collect();
        let busiest = |layer: &Vec<u64>| {
            let most = layer.iter().max().copied().unwrap_or(0);
            most as f64 * layer.len() as f64 / layer.iter().sum::<u64>() as f64
        };
        let busiest: Vec<f64> = chosen.iter().map(busiest).collect();
        let all = chosen.iter().flatten();
        let idle = all.clone().filter(|&&n| n == 0).count() as f64 / all.count().max(1) as f64;
        let mut most: Vec<Most> = chosen.iter().enumerate().flat_map(shares).collect();
        most.sort_by(|a, b| b.share.total_cmp(&a.share));
        most.truncate(NAMED);
        (!chosen.is_empty()).then(|| Experts {
            most,
            busiest: busiest.iter().sum::<f64>() / busiest.len() as f64,
            busiest_of_all: busiest.iter().copied().fold(0.0, f64::max),
            idle,
            chosen,
        })
    }

    /// In words.
    pub(super) fn line(&self) -> String {
        let Experts { busiest, busiest_of_all, idle, most, .. } = self;
        let most: Vec<String> = most.iter().map(Most::to_string).collect();
        format!(
            "experts: the busiest of a layer had {busiest:.1} times its even share of tokens, in one \
             layer {busiest_of_all:.1} times; {} had none; most chosen: {}",
            percent(*idle),
            most.join(", ")
        )
    }
}

impl std::fmt::Display for Most {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { layer, expert, share } = self;
        write!(f, "expert {expert} of sparse layer {layer} ({} of its choices)", percent(*share))
    }
}

/// The share of each expert of a layer.
fn shares((layer, chosen): (usize, &Vec<u64>)) -> impl Iterator<Item = Most> {
    let all = chosen.iter().sum::<u64>() as f64;
    let share = move |(expert, &n)| Most { layer, expert, share: n as f64 / all };
    chosen.iter().enumerate().map(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_is_held_against_an_even_share() {
        let chosen = [vec![4, 2, 2, 0], vec![9], vec![6, 0, 1, 1], vec![0, 0]];
        let experts = Experts::of(&chosen).unwrap();
        assert_eq!((experts.busiest, experts.busiest_of_all, experts.idle), (2.5, 3.0, 0.25));
        assert_eq!(experts.chosen.len(), 2);
        assert!(
            experts.line().contains("2.5 times its even share of tokens, in one layer 3.0 times")
        );
        let most =
            "(75 % of its choices), expert 0 of sparse layer 0 (50 % of its choices), expert 1 of";
        assert!(experts.line().contains(most), "{}", experts.line());
        assert_eq!(Experts::of(&[vec![7]]), None);
    }
}
