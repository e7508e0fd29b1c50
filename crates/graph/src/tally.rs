//! Which experts steps have chosen: written by one thread while a step is under way, read afterwards.

use crate::bank::Bank;
use crate::book::Choice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What was chosen in the step that is under way, and since the counts began.
pub(crate) struct Tally {
    routes: Vec<Route>,
    /// Of each part of a step, of each route, of each class: experts that were chosen, and how often.
    parts: Vec<[AtomicU32; 2]>,
    of_part: usize,
    /// Times that each expert was chosen, of all routes.
    experts: Vec<AtomicU64>,
}

/// A router's place in the tables.
struct Route {
    classes: usize,
    first_class: usize,
    experts: usize,
    first_expert: usize,
}

impl Tally {
    /// Nothing yet; for steps of up to so many parts.
    pub(crate) fn new<'b>(banks: impl Iterator<Item = &'b Bank>, parts: usize) -> Tally {
        let (mut routes, mut of_part, mut experts) = (Vec::new(), 0, 0);
        for bank in banks {
            routes.push(Route {
                classes: bank.classes(),
                first_class: of_part,
                experts: bank.experts,
                first_expert: experts,
            });
            of_part += bank.classes();
            experts += bank.experts;
        }
        Tally {
            routes,
            parts: (0..parts * of_part).map(|_| Default::default()).collect(),
            of_part,
            experts: (0..experts).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The tokens of each expert in a part of a step.
    pub(crate) fn note(&self, part: usize, route: usize, tokens: impl Iterator<Item = usize>) {
        let Route { classes, first_class, first_expert, .. } = self.routes[route];
        let classes = &self.parts[part * self.of_part + first_class..][..classes];
        classes.iter().flatten().for_each(|units| units.store(0, Relaxed));
        for (expert, tokens) in tokens.enumerate().filter(|(_, tokens)| *tokens > 0) {
            self.experts[first_expert + expert].fetch_add(tokens as u64, Relaxed);
            let [distinct, slots] = &classes[expert % classes.len()];
            distinct.fetch_add(1, Relaxed);
            slots.fetch_add(tokens as u32, Relaxed);
        }
    }

    /// Experts of a class that tokens of a part chose, and how often.
    pub(crate) fn units(&self, part: usize, choice: Choice) -> [u64; 2] {
        let first = self.routes[choice.route as usize].first_class + choice.class as usize;
        let units = &self.parts[part * self.of_part + first];
        units.each_ref().map(|units| u64::from(units.load(Relaxed)))
    }

    /// Times that each expert was chosen: `[route][expert]`.
    pub(crate) fn chosen(&self) -> Vec<Vec<u64>> {
        let of = |route: &Route| {
            let own = &self.experts[route.first_expert..][..route.experts];
            own.iter().map(|count| count.load(Relaxed)).collect()
        };
        self.routes.iter().map(of).collect()
    }

    /// Begins anew.
    pub(crate) fn reset(&self) {
        self.experts.iter().for_each(|count| count.store(0, Relaxed));
    }
}
