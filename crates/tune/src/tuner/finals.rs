//! The last round: the few best plans against the default, with repetitions, all kinds of steps, and a
//! claim to prove.
//!
//! In every plan each kind of step is timed with the level that was found for it and with the plain one,
//! in turns. It keeps its level only if that is faster by more than noise ([`faster`]), so a plan that
//! has the default among its levels can lose nothing but the chance of an error of that test. A plan
//! that has not (other groups) must beat the default in the sum over the trace. The schemes are
//! loaded twice in turns, A B A B, where that does not take longer than the measuring.

use super::noise::{faster, median};
use super::plan::Plan;
use super::session::{Session, Stop, totals, typical};
use super::table::Table;
use crate::tuner::{Level, Measured, Scheme};

/// What the search decided on.
pub(super) struct Verdict {
    pub(super) scheme: Scheme,
    pub(super) table: Table,
    pub(super) measured: Vec<Measured>,
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
        let mut steps: Vec<(&Level, usize)> = vec![];
        for (kind, &row) in rows.iter().enumerate() {
            steps.push((&levels[row], kind));
            if row != *plain {
                steps.push((&levels[*plain], kind));
            }
        }
        let mut series = session.series(scheme, &steps, repetitions)?.into_iter();
        for (kind, row) in rows.iter().enumerate() {
            self.chosen[kind].extend(series.next().unwrap_or_default());
            if row != plain {
                self.plain[kind].extend(series.next().unwrap_or_default());
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

    /// The times with these rows, each the chosen or the plain one.
    fn times(&self, rows: &[usize]) -> Vec<&[f64]> {
        let plain = self.plain();
        let of = |(kind, row): (usize, &usize)| {
            if *row == self.plan.rows[kind] { self.chosen[kind].as_slice() } else { plain[kind] }
        };
        rows.iter().enumerate().map(of).collect()
    }
}

/// Measures the plans and the default, and says which it is to be.
pub(super) fn decide(
    session: &mut Session<'_>,
    default: &Scheme,
    plans: Vec<Plan>,
    repetitions: usize,
) -> Result<Verdict, Stop> {
    let kinds = session.kinds;
    let all = default.all();
    let mut finalists: Vec<Finalist> = plans.into_iter().map(Finalist::new).collect();
    let alone = !finalists.iter().any(|f| f.plan.holds_default);
    let mut base: Vec<Vec<f64>> = vec![vec![]; kinds.len()];

    let steps = |f: &Finalist| {
        f.plan.rows.iter().map(|&r| 1 + usize::from(r != f.plan.plain)).sum::<usize>()
    };
    let once: usize = finalists.iter().map(steps).sum::<usize>() + usize::from(alone) * kinds.len();
    session.begin("finals", once * repetitions, 0);
    let schemes = finalists.len() + usize::from(alone);
    let loading = session.load_seconds() * schemes as f64;
    // A first repetition of each is known, which tells how long measuring will take.
    let step: f64 =
        (0..kinds.len()).filter_map(|kind| session.known(&default.teams(&all), kind)).sum::<f64>()
            / kinds.len() as f64;
    let twice = schemes > 1 && loading <= step * (once * repetitions) as f64;
    let visits =
        if twice { vec![repetitions.div_ceil(2), repetitions / 2] } else { vec![repetitions] };
    for repetitions in visits {
        for finalist in &mut finalists {
            finalist.visit(session, repetitions)?;
        }
        if alone {
            let steps: Vec<(&Level, usize)> = (0..kinds.len()).map(|kind| (&all, kind)).collect();
            for (all, new) in base.iter_mut().zip(session.series(default, &steps, repetitions)?) {
                all.extend(new);
            }
        }
    }
    let mut best: Option<(f64, Verdict)> = None;
    for finalist in &finalists {
        let before: Vec<&[f64]> = if finalist.plan.holds_default {
            finalist.plain()
        } else if let Some(holder) = finalists.iter().find(|f| f.plan.holds_default) {
            holder.plain()
        } else {
            base.iter().map(Vec::as_slice).collect()
        };
        let rows = finalist.proven();
        let times = finalist.times(&rows);
        let default_rows = rows.iter().all(|&row| row == finalist.plan.plain);
        let stands = if finalist.plan.holds_default {
            !default_rows
        } else {
            faster(&totals(kinds, &times), &totals(kinds, &before))
        };
        // Schemes are compared by what they gain over the default beside them.
        let worth = typical(kinds, &times) / typical(kinds, &before);
        if stands && best.as_ref().is_none_or(|(least, _)| worth < *least) {
            let levels: Vec<&Level> = rows.iter().map(|&row| &finalist.plan.levels[row]).collect();
            let table = Table::of(kinds, &levels);
            let scheme = finalist.plan.scheme.clone().cut(&table.most());
            let measured = compared(session, &before, &times);
            best = Some((worth, Verdict { scheme, table, measured }));
        }
    }
    if let Some((_, verdict)) = best {
        return Ok(verdict);
    }
    let holder = finalists.iter().find(|f| f.plan.holds_default);
    let times = holder.map_or_else(|| base.iter().map(Vec::as_slice).collect(), Finalist::plain);
    Ok(unchanged(session, default, &times))
}

/// The default, with its times by kind of step.
pub(super) fn unchanged(session: &Session<'_>, default: &Scheme, times: &[&[f64]]) -> Verdict {
    let measured = compared(session, times, times);
    Verdict { scheme: default.clone(), table: Table::all(default), measured }
}

/// Tokens a second of each kind of step.
pub(super) fn compared(
    session: &Session<'_>,
    before: &[&[f64]],
    after: &[&[f64]],
) -> Vec<Measured> {
    let of = |((kind, before), after): ((&super::StepKind, &&[f64]), &&[f64])| Measured {
        tokens: kind.tokens,
        depth: kind.depth,
        before: f64::from(kind.tokens) / median(before),
        after: f64::from(kind.tokens) / median(after),
        repetitions: before.len().min(after.len()) as u32,
    };
    session.kinds.iter().zip(before).zip(after).map(of).collect()
}
