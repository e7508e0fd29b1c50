//! The last round: the few best plans against the default, with repetitions, all kinds of steps, and a
//! claim to prove.
//!
//! In every plan each kind of step is timed with the level that was found for it and with the plain one,
//! in turns. It keeps its level only if that is faster by more than noise ([`faster`]), so a plan that
//! has the default among its levels can lose nothing but the chance of an error of that test. A plan
//! that has not (other groups) must beat the default in the sum over the trace. The schemes are
//! loaded twice in turns, A B A B, where that does not take longer than the measuring.
//!
//! All of that is with the default's ways to multiply. What comes behind the best, the default among it,
//! may be ahead with its own, so it is handed on for the [`contest`](super::contest).

use super::contest::cuts;
use super::noise::{faster, median};
use super::plan::Plan;
use super::scheme::Teams;
use super::session::{Session, Stop, totals, typical};
use super::table::Table;
use crate::tuner::{Level, Measured, Scheme, StepKind};

/// Plans whose trace takes so many times as long as that of the best have no prospects: tuning the
/// matrices has made steps 1.3 times as fast where it gained most (`docs/tuning.md`), and it gains for the
/// best too.
const PROSPECTS: f64 = 1.5;

/// What the search decided on.
pub(super) struct Verdict {
    pub(super) scheme: Scheme,
    pub(super) table: Table,
    pub(super) measured: Vec<Measured>,
}

impl Plan {
    /// It, with these levels for the kinds of steps.
    pub(super) fn verdict(
        &self,
        kinds: &[StepKind],
        rows: &[usize],
        measured: Vec<Measured>,
    ) -> Verdict {
        let levels: Vec<&Level> = rows.iter().map(|&row| &self.levels[row]).collect();
        let table = Table::of(kinds, &levels);
        let scheme = self.scheme.clone().cut(&table.most());
        Verdict { scheme, table, measured }
    }
}

/// A plan and its times by kind of step.
struct Finalist {
    plan: Plan,
    chosen: Vec<Vec<f64>>,
    /// Empty where the plain level is the chosen one.
    plain: Vec<Vec<f64>>,
}

impl Finalist {
    fn new(plan: Plan) -> Finalist {
        let kinds = plan.rows.len();
        Finalist { plan, chosen: vec![vec![]; kinds], plain: vec![vec![]; kinds] }
    }

    fn visit(&mut self, session: &mut Session<'_>, repetitions: usize) -> Result<(), Stop> {
        let Plan { scheme, levels, rows, plain, .. } = &self.plan;
        for _ in 0..repetitions {
            for (kind, &row) in rows.iter().enumerate() {
                self.chosen[kind].push(session.time(scheme, &levels[row], kind)?);
                if row != *plain {
                    self.plain[kind].push(session.time(scheme, &levels[*plain], kind)?);
                }
            }
        }
        Ok(())
    }

    /// The times with the plain level throughout.
    fn plain(&self) -> Vec<&[f64]> {
        self.plain
            .iter()
            .zip(&self.chosen)
            .map(|(p, c)| if p.is_empty() { c.as_slice() } else { p.as_slice() })
            .collect()
    }

    /// The times of the default beside it: its own, or those of another plan that has it.
    fn before<'a>(&'a self, others: &[&'a [f64]]) -> Vec<&'a [f64]> {
        if self.plan.holds_default { self.plain() } else { others.to_vec() }
    }

    /// The level of each kind of step that stands the test.
    fn proven(&self) -> Vec<usize> {
        let stands = |kind: usize| {
            let (row, plain) = (self.plan.rows[kind], &self.plain[kind]);
            let better = plain.is_empty() || faster(&self.chosen[kind], plain);
            if better { row } else { self.plan.plain }
        };
        let mut rows: Vec<usize> = (0..self.plan.rows.len()).map(stands).collect();
        // Rows ascended before. One that fell back to the plain level while a kind with more tokens
        // did not goes along with its neighbours, if that is not surely worse.
        for kind in (0..rows.len().saturating_sub(1)).rev() {
            let fell = rows[kind] != self.plan.rows[kind] && rows[kind] > rows[kind + 1];
            if fell && !faster(&self.plain[kind], &self.chosen[kind]) {
                rows[kind] = self.plan.rows[kind];
            }
        }
        rows
    }

    /// The level of each kind of step that may stand: all but those that the plain one is surely faster
    /// than.
    fn hoped(&self) -> Vec<usize> {
        let hoped = |(kind, &row): (usize, &usize)| {
            if faster(&self.plain[kind], &self.chosen[kind]) { self.plan.plain } else { row }
        };
        self.plan.rows.iter().enumerate().map(hoped).collect()
    }

    /// Whether with these rows it is nothing but the default.
    fn is_default(&self, rows: &[usize]) -> bool {
        self.plan.holds_default && rows.iter().all(|&row| row == self.plan.plain)
    }

    fn verdict(&self, kinds: &[StepKind], rows: &[usize], before: &[&[f64]]) -> Verdict {
        self.plan.verdict(kinds, rows, compared(kinds, before, &self.times(rows)))
    }

    /// The times with these rows, each the chosen or the plain one.
    fn times(&self, rows: &[usize]) -> Vec<&[f64]> {
        let plain = self.plain();
        let of = |(kind, row): (usize, &usize)| {
            if *row == self.plan.rows[kind] { self.chosen[kind].as_slice() } else { plain[kind] }
        };
        rows.iter().enumerate().map(of).collect()
    }
}

/// Measures the first `keep` of the plans, which stand best first, and the default, and says which it is to
/// be. Behind it come those plans that might still be better, best first, `keep` with it, each of which
/// cuts matrices in another way.
pub(super) fn decide(
    session: &mut Session<'_>,
    default: &Scheme,
    mut plans: Vec<Plan>,
    repetitions: usize,
    keep: usize,
) -> Result<Vec<Verdict>, Stop> {
    let kinds = session.kinds;
    let all = default.all();
    let later = plans.split_off(keep.min(plans.len()));
    let mut finalists: Vec<Finalist> = plans.into_iter().map(Finalist::new).collect();
    let alone = !finalists.iter().any(|f| f.plan.holds_default);
    let mut base: Vec<Vec<f64>> = vec![vec![]; kinds.len()];

    let steps = |f: &Finalist| {
        f.plan.rows.iter().map(|&r| 1 + usize::from(r != f.plan.plain)).sum::<usize>()
    };
    let once: usize = finalists.iter().map(steps).sum::<usize>() + usize::from(alone) * kinds.len();
    session.begin("finals", once * repetitions, 0);
    let schemes = finalists.len() + usize::from(alone);
    // A first repetition of each is known, which tells how long measuring will take.
    let step: f64 =
        (0..kinds.len()).filter_map(|kind| session.known(&default.teams(&all), kind)).sum::<f64>()
            / kinds.len() as f64;
    for repetitions in session.visits(schemes, step * (once * repetitions) as f64, repetitions) {
        for finalist in &mut finalists {
            finalist.visit(session, repetitions)?;
        }
        if alone {
            for _ in 0..repetitions {
                for (kind, times) in base.iter_mut().enumerate() {
                    times.push(session.time(default, &all, kind)?);
                }
            }
        }
    }
    let holder = finalists.iter().find(|f| f.plan.holds_default);
    let plain: Vec<&[f64]> =
        holder.map_or_else(|| base.iter().map(Vec::as_slice).collect(), Finalist::plain);
    // Schemes are compared by what they gain over the default beside them.
    let worth = |f: &Finalist, rows: &[usize]| {
        typical(kinds, &f.times(rows)) / typical(kinds, &f.before(&plain))
    };
    let mut best: Option<(f64, usize, Vec<usize>)> = None;
    for (at, finalist) in finalists.iter().enumerate() {
        let rows = finalist.proven();
        let stands = if finalist.plan.holds_default {
            !finalist.is_default(&rows)
        } else {
            faster(&totals(kinds, &finalist.times(&rows)), &totals(kinds, &finalist.before(&plain)))
        };
        let worth = worth(finalist, &rows);
        if stands && best.as_ref().is_none_or(|(least, ..)| worth < *least) {
            best = Some((worth, at, rows));
        }
    }
    let unchanged = || unchanged(kinds, default, &plain);
    let (first, least, at) = match &best {
        Some((worth, at, rows)) => {
            let finalist = &finalists[*at];
            (finalist.verdict(kinds, rows, &finalist.before(&plain)), *worth, Some(*at))
        }
        None => (unchanged(), 1.0, None),
    };
    let mut behind: Vec<(f64, Verdict)> = vec![];
    if best.is_some() {
        behind.push((1.0, unchanged()));
    }
    for (_, finalist) in finalists.iter().enumerate().filter(|(i, _)| Some(*i) != at) {
        let rows = finalist.hoped();
        if !finalist.is_default(&rows) {
            let verdict = finalist.verdict(kinds, &rows, &finalist.before(&plain));
            behind.push((worth(finalist, &rows), verdict));
        }
    }
    let first_times = |teams: &Teams, kind: usize| session.known(teams, kind).into_iter().collect();
    let once = |teams: &dyn Fn(usize) -> Teams| -> Vec<Vec<f64>> {
        (0..kinds.len()).map(|kind| first_times(&teams(kind), kind)).collect()
    };
    let before = once(&|_| default.teams(&all));
    let before: Vec<&[f64]> = before.iter().map(Vec::as_slice).collect();
    for plan in later {
        // Each kind of step was timed once.
        let times = once(&|kind| plan.scheme.teams(&plan.levels[plan.rows[kind]]));
        let times: Vec<&[f64]> = times.iter().map(Vec::as_slice).collect();
        let worth = typical(kinds, &times) / typical(kinds, &before);
        let verdict = plan.verdict(kinds, &plan.rows, compared(kinds, &before, &times));
        behind.push((worth, verdict));
    }
    behind.retain(|(worth, _)| *worth <= PROSPECTS * least);
    behind.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let cuts = |v: &Verdict| cuts(&v.scheme, &v.table, usize::MAX);
    let mut verdicts = vec![first];
    for (_, verdict) in behind {
        if verdicts.len() < keep && verdicts.iter().all(|v| cuts(v) != cuts(&verdict)) {
            verdicts.push(verdict);
        }
    }
    Ok(verdicts)
}

/// The default, with its times by kind of step.
pub(super) fn unchanged(kinds: &[StepKind], default: &Scheme, times: &[&[f64]]) -> Verdict {
    let measured = compared(kinds, times, times);
    Verdict { scheme: default.clone(), table: Table::all(default), measured }
}

/// Tokens a second of each kind of step.
pub(super) fn compared(kinds: &[StepKind], before: &[&[f64]], after: &[&[f64]]) -> Vec<Measured> {
    let of = |((kind, before), after): ((&StepKind, &&[f64]), &&[f64])| Measured {
        tokens: kind.tokens,
        depth: kind.depth,
        before: f64::from(kind.tokens) / median(before),
        after: f64::from(kind.tokens) / median(after),
        repetitions: before.len().min(after.len()) as u32,
    };
    kinds.iter().zip(before).zip(after).map(of).collect()
}
