//! The forms in which a graph is compiled.
//!
//! Small row-wise work (norms, quantisation of activations, residual sums, the joining of attention
//! ranges) has two forms. *Private*: every thread does all rows into its own buffer, so nobody
//! waits. *Split*: the rows are dealt over the node's threads and the result is shared, which costs
//! a wait. Which is cheaper depends on the number of rows, so a graph is lowered once per
//! [`Variant`] and the step picks one.

use crate::claims::{Gather, Work};
use crate::tensor::Domain;

/// How a step's attention is cut into work items.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttnForm {
    /// An item is (query tile, KV head) and walks all KV ranges itself.
    Fused,
    /// An item is (token, KV head, KV range); every thread joins all ranges for itself.
    SplitJoinPrivate,
    /// As above, but the ranges are joined as a stage of its own.
    SplitJoinShared,
}

/// The forms in which a graph is compiled.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Row-wise work on tokens is private.
    pub private_tokens: bool,
    /// Row-wise work on outputs is private.
    pub private_outputs: bool,
    /// Attention items.
    pub attention: AttnForm,
    /// Every sequence has one token in the step: the item that reads the newest range also appends
    /// to it. Otherwise the append is a stage before attention.
    pub append_in_attention: bool,
    /// How partial results are summed.
    pub gather: Gather,
    /// Runs that each node sums its share of such a result in, so that its threads can share them
    /// ([`crate::Grid::splits`]); 1 unless a schedule asks for more.
    pub splits: usize,
    /// Whether it is the operators that predict further tokens that are executed, instead of the model's.
    pub predicts: bool,
    /// Whether some of its rows have adapters.
    pub adapts: bool,
}

impl Variant {
    /// The usual form of a step with few tokens.
    pub const DECODE: Variant = Variant {
        private_tokens: true,
        private_outputs: true,
        attention: AttnForm::SplitJoinPrivate,
        append_in_attention: true,
        gather: Gather::Push,
        splits: 1,
        predicts: false,
        adapts: false,
    };

    /// The usual form of a step with many tokens of a prompt.
    pub const PREFILL: Variant = Variant {
        private_tokens: false,
        private_outputs: true,
        attention: AttnForm::Fused,
        append_in_attention: false,
        gather: Gather::Pull,
        splits: 1,
        predicts: false,
        adapts: false,
    };

    /// Every variant that a step on `nodes` nodes may ask for, but for `splits`, `predicts` and `adapts`.
    pub fn all(nodes: usize) -> Vec<Variant> {
        let mut all = Vec::new();
        let forms = [
            (true, true, Gather::Push),
            (false, true, Gather::Pull),
            (false, false, Gather::Pull),
            (false, true, Gather::Scatter),
            (false, false, Gather::Scatter),
        ];
        for (private_tokens, private_outputs, gather) in forms {
            use AttnForm::{Fused, SplitJoinPrivate, SplitJoinShared};
            if gather == Gather::Scatter && nodes == 1 {
                continue; // there is nobody to share the sum with
            }
            for attention in [Fused, SplitJoinPrivate, SplitJoinShared] {
                for append_in_attention in [false, true] {
                    // Ranges are joined privately only where row-wise work is private at all, and
                    // only split items can tell which of them holds the newest range.
                    let joins = attention != SplitJoinPrivate || private_tokens;
                    let appends = attention != Fused || !append_in_attention;
                    if joins && appends {
                        all.push(Variant {
                            private_tokens,
                            private_outputs,
                            attention,
                            append_in_attention,
                            gather,
                            splits: 1,
                            predicts: false,
                            adapts: false,
                        });
                    }
                }
            }
        }
        all
    }

    pub(crate) fn work(&self, domain: Domain) -> Work {
        let private = match domain {
            Domain::Tokens | Domain::Slots(_) => self.private_tokens,
            Domain::Outputs => self.private_outputs,
        };
        if private { Work::Private } else { Work::Rows }
    }
}
