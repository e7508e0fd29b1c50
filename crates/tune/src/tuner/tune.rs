//! The whole search: default, families, prompts, decoding, table, finals.
//!
//! 1. *Default.* Every kind of step is timed once as it would run untuned; two of them stand for all
//!    from here on: the one with the most tokens for prompts, and of the others the one on which the
//!    trace spends most for decoding. They are repeated, which tells the noise.
//! 2. *Families.* The ways to cut the machine into groups, ranked by these two with all CPUs.
//! 3. For each of the best families: the CPUs that prompts want, then within these, under every
//!    grouping, those that decoding wants ([`descend`]). The three best groupings are grouped once more,
//!    which makes two levels that nothing shows, and so on as long as that is faster. What a machine hides it
//!    hides from every family, so after the first only the groupings that were best there are tried.
//! 4. For the best of these the table: a level for each kind of step ([`Plan::fill`]).
//! 5. The best plans meet the default again, with repetitions ([`decide`]). What comes behind the best
//!    then is handed on: with matrices tuned it may be ahead ([`Contest`](super::Contest)).

use super::descend::{Descending, Descent, Ended, Tried, descend};
use super::families::{Cut, Grouped, Grouping, composed, groupings, ranked, regrouped, supposed};
use super::finals::{Verdict, compared, decide, unchanged};
use super::noise::{FEWEST, faster};
use super::plan::{Ends, Plan};
use super::scheme::{Scheme, Teams, scheme};
use super::session::{Measure, Session, TuneProgress, Watch};
use super::trail::{Branch, Stage, Trail};
use super::{Outcome, StepKind};
use crate::Error;
use crate::schedule::TunedSchedules;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use topology::topotree::{Configuration, TopoTree};

/// The groupings that were best in one family and are tried in the next.
const GROUPINGS_KEPT: usize = 3;

/// What to tune, and how thoroughly.
#[derive(Clone, Copy)]
pub struct Tuner<'a> {
    /// The machine, as far as it may be used. Of an uneven one [`TopoTree::evened`] is searched.
    pub tree: &'a TopoTree,
    /// How the model is served without tuning, with all CPUs at every step.
    pub default: &'a Scheme,
    /// What a trace comes down to, by ascending tokens ([`Trace::steps`](super::Trace::steps)).
    pub kinds: &'a [StepKind],
    /// Whether a model can be served by these groups; what its heads do not divide into, say, or has
    /// too little memory.
    pub permit: &'a dyn Fn(&Configuration) -> bool,
    /// Name and value of each of the program's other settings, which [`Quick`](super::Quick) may have
    /// found: every candidate has them.
    pub choices: &'a [(String, String)],
    /// How many families are looked at closely; 3 are a good number.
    pub families: usize,
    /// How many plans are measured against the default in the end, schemes for decoding are kept of a
    /// family, and outcomes [`Tuner::best`] has; 2 are a good number.
    pub finalists: usize,
    /// Repetitions of every step in the end. Below 5 nothing is ever better than the default: see
    /// `docs/tuning.md`.
    pub repetitions: usize,
    /// After so many configurations in a row that are no better than the best of their family under a
    /// grouping, the rest of these is left out. `None`: never.
    pub patience: Option<usize>,
    /// Whether levels are supposed that the tree does not have; without, only its own are searched.
    pub suppose: bool,
}

/// What a search ends with.
#[derive(Clone, Debug)]
pub struct Searched {
    /// The outcome, and behind it what might be better with matrices tuned, best first.
    pub plans: Vec<Outcome>,
    /// How it went.
    pub trail: Trail,
}

/// What is known so far.
struct State {
    plans: Vec<Plan>,
    /// Kinds of steps that stand for prompts and decoding.
    prompt: usize,
    decode: usize,
    default: Teams,
    /// Seconds of each kind of step with the default, and of the trace.
    first: Vec<f64>,
    total: f64,
    /// The widest range of the default's repetitions, as a share of the fastest.
    range: f64,
    /// The groupings that were best in the first family.
    favourites: Vec<Vec<Grouping>>,
    /// What prompts use in the family at hand.
    within: Option<Teams>,
}

/// The search for decoding in a family.
struct Searching {
    groupings: Vec<Grouped>,
    /// All that was measured, fastest first.
    tried: Vec<Tried>,
}

impl Searching {
    /// Adds what was found under further groupings.
    fn add(&mut self, groupings: Vec<Grouped>, tried: Vec<Tried>) {
        for of in tried {
            if self.tried.iter().all(|known| known.teams != of.teams) {
                self.tried.push(Tried { tree: of.tree + self.groupings.len(), ..of });
            }
        }
        self.groupings.extend(groupings);
        self.tried.sort_by(Tried::order);
    }
}

impl Tuner<'_> {
    /// Searches. `watch` is told after each evaluation how far it is, and may stop it: then the best
    /// that is known is the outcome, if it is better than the default by more than the default's own
    /// repetitions differ.
    ///
    /// # Errors
    /// [`Error::BadKinds`]; [`Error::NotMeasured`] when the default cannot be
    /// run; [`Error::Tree`].
    pub fn run(
        &self,
        measure: &mut dyn Measure,
        watch: &mut dyn FnMut(&TuneProgress) -> ControlFlow<()>,
    ) -> Result<Outcome, Error> {
        Ok(self.best(measure, watch)?.plans.swap_remove(0))
    }

    /// Searches as [`Tuner::run`] does. Behind the outcome stand plans, the default among them, that are
    /// not better with the default's ways to multiply and might be with their own, best first: at most
    /// [`Tuner::finalists`] outcomes, one at least, and each cuts matrices in another way. A search that
    /// is stopped knows one.
    ///
    /// # Errors
    /// As [`Tuner::run`].
    pub fn best(
        &self,
        measure: &mut dyn Measure,
        watch: &mut dyn FnMut(&TuneProgress) -> ControlFlow<()>,
    ) -> Result<Searched, Error> {
        if self.kinds.is_empty() || !self.kinds.is_sorted_by(|a, b| a.tokens < b.tokens) {
            return Err(Error::BadKinds);
        }
        let mut session = Session::new(measure, watch as &mut Watch<'_>, self.kinds);
        session.choices = self.choices.to_vec();
        let last = self.kinds.len() - 1;
        let mut state = State {
            plans: vec![],
            prompt: last,
            decode: last,
            default: self.default.teams(&self.default.all()),
            first: vec![],
            total: f64::INFINITY,
            range: 0.0,
            favourites: vec![],
            within: None,
        };
        let (verdicts, complete) = match self.search(&mut session, &mut state) {
            Ok(verdicts) => (verdicts, true),
            Err(Ended::Failed(error)) => return Err(error),
            Err(Ended::Stopped) => (vec![self.early(&mut session, &mut state)], false),
        };
        let TuneProgress { evaluations, loads, .. } = session.progress;
        let outcome = |Verdict { scheme, table, measured }: Verdict| Outcome {
            scheme,
            table,
            choices: session.choices.clone(),
            measured,
            evaluations,
            loads,
            complete,
            schedules: TunedSchedules::default(),
        };
        let plans = verdicts.into_iter().map(outcome).collect();
        let (decode, prompt) = (self.kinds[state.decode], self.kinds[state.prompt]);
        Ok(Searched { plans, trail: Trail { branches: session.branches, decode, prompt } })
    }

    fn search(&self, session: &mut Session<'_>, state: &mut State) -> Result<Vec<Verdict>, Ended> {
        let tree = self.tree.evened();
        let below = groupings(&tree, 0, self.suppose).len();
        let finals = self.kinds.len() * self.repetitions * self.finalists * 3 / 2;
        let later = 4 * below + finals;
        self.default(session, state, later)?;

        session.begin("families", 2 * below, later);
        let scores = self.scores(state);
        let how = (self.families, self.suppose);
        let ends = (state.decode, state.prompt);
        let mut families = ranked(session, &tree, self.permit, &scores, how, ends)?;
        // With all CPUs the default's own family may look bad that is best with some left out; and it
        // is the one that proves most easily that it is better. The sort is stable.
        families.sort_by_key(|(_, cut)| state.default.clone().aligned(&cut.all).is_none());
        for (at, (_, cut)) in families.iter().take(self.families.max(1)).enumerate() {
            let later = if at == 0 { later } else { finals + 8 * (self.families - at) };
            self.family(session, state, cut, later)?;
        }
        state.plans.retain(|plan| !plan.is_default());
        state.plans.sort_by(|a, b| a.estimate.total_cmp(&b.estimate));
        let plans = state.plans.clone();
        Ok(decide(session, self.default, plans, self.repetitions, self.finalists)?)
    }

    /// Times the default.
    fn default(
        &self,
        session: &mut Session<'_>,
        state: &mut State,
        later: usize,
    ) -> Result<(), Ended> {
        let all = self.default.all();
        session.begin("default", self.kinds.len() + 2 * (FEWEST - 1), later);
        for (kind, of) in self.kinds.iter().enumerate() {
            let seconds = session.time(self.default, &all, kind)?;
            if seconds.is_infinite() {
                return Err(Ended::Failed(Error::NotMeasured { tokens: of.tokens }));
            }
            state.first.push(seconds);
        }
        let spent = |kind: usize| self.kinds[kind].weight * state.first[kind];
        state.total = (0..self.kinds.len()).map(spent).sum();
        let decode = (0..state.prompt).max_by(|&a, &b| spent(a).total_cmp(&spent(b)));
        state.decode = decode.unwrap_or(state.prompt);
        let teams = self.default.teams(&all);
        let ends = (state.decode, state.prompt);
        let branch = Branch::new(session, Stage::Default, None, &teams, ends);
        session.grow(Branch { trace: Some(state.total), ..branch });
        let steps = [(&all, state.decode), (&all, state.prompt)];
        for (series, (_, kind)) in
            session.series(self.default, steps, FEWEST - 1)?.iter().zip(steps)
        {
            let times = || series.iter().copied().chain([state.first[kind]]);
            let fastest = times().fold(f64::INFINITY, f64::min);
            state.range = state.range.max(times().fold(0.0, f64::max) / fastest - 1.0);
        }
        Ok(())
    }

    /// How much a second of decoding and of prompts counts: each stands for the kinds of steps that it
    /// is nearer to.
    fn scores(&self, state: &State) -> Vec<(usize, f64)> {
        let (decode, prompt) = (state.decode, state.prompt);
        let log = |kind: usize| f64::from(self.kinds[kind].tokens).ln();
        let (mut for_decode, mut for_prompt) = (0.0, 0.0);
        for (kind, &seconds) in state.first.iter().enumerate() {
            let nearer = (log(kind) - log(decode)).abs() < (log(prompt) - log(kind)).abs();
            let sum = if nearer { &mut for_decode } else { &mut for_prompt };
            *sum += self.kinds[kind].weight * seconds;
        }
        let scores = [
            (decode, for_decode / state.first[decode]),
            (prompt, for_prompt / state.first[prompt]),
        ];
        scores.into_iter().filter(|&(_, score)| score > 0.0).collect()
    }

    /// Looks closely at one family.
    fn family(
        &self,
        session: &mut Session<'_>,
        state: &mut State,
        cut: &Cut,
        later: usize,
    ) -> Result<(), Ended> {
        let prompt = self.prompt(session, state, cut, later)?;
        state.within = Some(prompt.clone());
        let Searching { groupings, tried } = self.decoding(session, state, cut, &prompt, later)?;
        if state.favourites.is_empty() {
            for tried in &tried {
                let names = &groupings[tried.tree].0;
                if !names.is_empty()
                    && !state.favourites.contains(names)
                    && state.favourites.len() < GROUPINGS_KEPT
                {
                    state.favourites.push(names.clone());
                }
            }
        }
        let ends = (state.decode, state.prompt);
        session.begin("table", 2 * self.kinds.len() * self.finalists, later);
        let all = Tried { teams: prompt.clone(), seconds: 0.0, tree: 0 };
        let best = tried.iter().filter(|t| t.teams != prompt).take(self.finalists);
        for least in best.chain([&all]) {
            let of = Ends { least: &least.teams, prompt: &prompt, default: &state.default };
            let mut plan = Plan::new(&of, &tried);
            plan.fill(session)?;
            session.found(state.total, plan.estimate);
            let decoding = plan.scheme.teams(&plan.levels[plan.rows[state.decode]]);
            let branch = Branch::new(session, Stage::Plan, Some(cut.branch), &decoding, ends);
            let prompts = plan.scheme.teams(&plan.levels[plan.rows[state.prompt]]);
            let prompts = session.known(&prompts, state.prompt);
            session.grow(Branch { prompts, trace: Some(plan.estimate), ..branch });
            state.plans.push(plan);
        }
        Ok(())
    }

    /// The best CPUs for decoding among those of prompts: under every grouping, and while that helps under groupings of
    /// the best.
    fn decoding(
        &self,
        session: &mut Session<'_>,
        state: &State,
        cut: &Cut,
        prompt: &Teams,
        later: usize,
    ) -> Result<Searching, Ended> {
        let mut seen = BTreeSet::from([cut.tree.digest()]);
        let mut fresh = vec![(vec![], cut.tree.clone())];
        let compose = self.suppose && state.favourites.is_empty();
        match compose {
            true => fresh.extend(composed(&fresh, cut.depth, &mut seen)),
            false => fresh
                .extend(state.favourites.iter().filter_map(|f| regrouped(&cut.tree, cut.depth, f))),
        }
        let mut all = Searching { groupings: vec![], tried: vec![] };
        let ends = (state.decode, state.prompt);
        while !fresh.is_empty() {
            let trees: Vec<TopoTree> = fresh.iter().map(|(_, tree)| tree.clone()).collect();
            let descending = Descending {
                doing: "decoding",
                trees: &trees,
                most: prompt,
                kind: state.decode,
                patience: self.patience,
                later,
            };
            let Descent { tried, trees: by_tree } = descend(session, &descending)?;
            // A grouping has to be better than everything found without it.
            let bare = by_tree[0].as_ref().map_or(f64::INFINITY, |(_, seconds, _)| *seconds);
            let least = all.tried.first().map_or(bare, |best| best.seconds);
            for ((names, tree), best) in fresh.iter().zip(by_tree) {
                let Some((teams, _, timed)) = best else { continue };
                let branch = Branch::new(session, Stage::Decoding, Some(cut.branch), &teams, ends);
                session.grow(Branch { timed, ..branch.of_tree(tree, supposed(names, tree)) });
            }
            let mut better: Vec<Grouped> = vec![];
            for tried in tried.iter().filter(|tried| tried.seconds < least) {
                let of = &fresh[tried.tree];
                if !of.0.is_empty() && !better.contains(of) && better.len() < GROUPINGS_KEPT {
                    better.push(of.clone());
                }
            }
            all.add(fresh, tried);
            fresh = match compose {
                true => composed(&better, cut.depth, &mut seen),
                false => vec![],
            };
        }
        Ok(all)
    }

    /// The CPUs that prompts want: one of each core, unless others are surely better.
    fn prompt(
        &self,
        session: &mut Session<'_>,
        state: &State,
        cut: &Cut,
        later: usize,
    ) -> Result<Teams, Ended> {
        let trees = [cut.tree.clone()];
        let kind = state.prompt;
        let descending = Descending {
            doing: "prompts",
            trees: &trees,
            most: &cut.all,
            kind,
            patience: self.patience,
            later,
        };
        let Descent { tried, trees: by_tree } = descend(session, &descending)?;
        if let [Some((teams, _, timed))] = by_tree.as_slice() {
            let ends = (state.decode, kind);
            let branch = Branch::new(session, Stage::Prompts, Some(cut.branch), teams, ends);
            session
                .grow(Branch { timed: *timed, ..branch.of_tree(&cut.tree, cut.supposed.clone()) });
        }
        let plain =
            tried.iter().find(|t| t.teams == cut.cores).map_or(f64::INFINITY, |t| t.seconds);
        let Some(best) = tried.first().filter(|t| t.seconds < plain) else {
            return Ok(cut.cores.clone());
        };
        // Neither need be within the other: each has its own scheme, and they take turns in it only
        // where it is the same.
        let mut chain = [cut.cores.clone(), best.teams.clone()];
        chain.sort_by_key(Teams::threads);
        let nested = chain[0].within(&chain[1]);
        let (plain, found) = if nested {
            let (scheme, levels) = scheme(&chain);
            let steps = [(&levels[0], kind), (&levels[1], kind)];
            let [first, second] = session.series(&scheme, steps, FEWEST)?;
            if chain[0] == cut.cores { (first, second) } else { (second, first) }
        } else {
            let mut of = |teams: &Teams| -> Result<Vec<f64>, Ended> {
                let (scheme, levels) = scheme(std::slice::from_ref(teams));
                let [times] = session.series(&scheme, [(&levels[0], kind)], FEWEST)?;
                Ok(times)
            };
            (of(&cut.cores)?, of(&best.teams)?)
        };
        Ok(if faster(&found, &plain) { best.teams.clone() } else { cut.cores.clone() })
    }

    /// The best that is known after the user stopped it. Most steps were timed once, so another level
    /// replaces the default only if it is faster than that by more than all of the range that the
    /// default's own repetitions had.
    fn early(&self, session: &mut Session<'_>, state: &mut State) -> Verdict {
        let kinds = self.kinds;
        if state.first.len() < kinds.len() {
            return unchanged(kinds, self.default, &[]);
        }
        // The search for decoding may have found something that no plan has yet.
        if state.within.as_ref() == Some(&state.default) {
            let of_decode = session.all_known(state.decode);
            let within = of_decode.filter(|(teams, _)| teams.within(&state.default));
            let best = within.min_by(|(_, a), (_, b)| a.total_cmp(b));
            if let Some((teams, seconds)) = best.filter(|(teams, _)| **teams != state.default) {
                let ends = Ends { least: teams, prompt: &state.default, default: &state.default };
                let mut plan = Plan::new(&ends, &[]);
                plan.rows = vec![plan.plain; kinds.len()];
                plan.rows[state.decode] = 0;
                let saved = kinds[state.decode].weight * (state.first[state.decode] - seconds);
                plan.estimate = state.total - saved;
                state.plans.push(plan);
            }
        }
        let surely = |new: f64, old: f64| new < old * (1.0 - state.range);
        let default: Vec<&[f64]> = state.first.chunks(1).collect();
        state.plans.sort_by(|a, b| a.estimate.total_cmp(&b.estimate));
        for plan in &state.plans {
            let time = |kind: usize, row: usize| {
                if plan.holds_default && row == plan.plain {
                    return state.first[kind];
                }
                session.known(&plan.scheme.teams(&plan.levels[row]), kind).unwrap_or(f64::INFINITY)
            };
            let mut rows = plan.rows.clone();
            if plan.holds_default {
                for (kind, row) in rows.iter_mut().enumerate() {
                    if !surely(time(kind, *row), state.first[kind]) {
                        *row = plan.plain;
                    }
                }
                if rows.iter().all(|&row| row == plan.plain) {
                    continue;
                }
            } else if !surely(plan.estimate, state.total) {
                continue;
            }
            let times: Vec<f64> =
                rows.iter().enumerate().map(|(kind, &row)| time(kind, row)).collect();
            let times: Vec<&[f64]> = times.chunks(1).collect();
            return plan.verdict(kinds, &rows, compared(kinds, &default, &times));
        }
        unchanged(kinds, self.default, &default)
    }
}
