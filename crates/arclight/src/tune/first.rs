//! The first starts of a model on a machine, of which nothing is known yet.
//!
//! It is loaded at once as by default. `run` says once that there is `tune`; `serve` and `chat` make the quick search on
//! the model that is loaded ([`hot`](super::hot)), while it has nothing else to do, and keep what they find.

use super::few::Kept;
use super::hot::{Hot, Spent, WhenIdle};
use super::lab;
use super::questions::{QUICK, Questions};
use super::requests::requests;
use super::schedules::{Effort, Limits};
use super::stored::{self, For};
use crate::error::Error;
use crate::term::note;
use arclight_engine::{FewThreads, Group, LoadOptions, ModelFile, TellFew};
use std::fmt::Write;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use topology::Machine;
use tune::tuner::{Measured, Outcome, Row, Scheme, Start, Table, Trace};

/// Smaller models answer fast enough on any cores; they are what people play and test with.
const SMALL: usize = 64 << 20;

/// Steps of prompts that are timed take no longer: a request may come meanwhile.
const LONGEST_STEP: Duration = Duration::from_millis(50);

/// A model of which nothing is known on this machine.
pub(crate) struct Untuned {
    owner: For,
    /// Where its profile would be.
    path: PathBuf,
    /// What trials of fewer threads have found, in sentences.
    finds: Finds,
}

/// Sentences that wait until they can be told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Finds(Arc<Mutex<Vec<String>>>);

impl Finds {
    /// Another sentence.
    pub(crate) fn add(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// Those that were not taken yet.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Untuned {
    pub(super) fn new(owner: For, path: PathBuf) -> Untuned {
        Untuned { owner, path, finds: Finds::default() }
    }

    /// Threads for steps of few tokens, as an engine has found them earlier.
    pub(super) fn few_threads(&self) -> Vec<FewThreads> {
        Kept::beside(&self.path, &self.owner).read()
    }

    /// Has the engine try fewer threads on the steps that it takes. What it finds is kept for the next start, and `say`
    /// is called with a sentence where fewer threads are as fast. Not where all cores are to take all steps.
    pub(crate) fn try_fewer(
        &self,
        options: &mut LoadOptions,
        say: impl Fn(String) + Send + Sync + 'static,
    ) {
        if options.fixed_cores {
            return;
        }
        let kept = Kept::beside(&self.path, &self.owner);
        options.try_fewer = Some(TellFew::new(move |found| {
            if let Err(e) = kept.keep(found) {
                tracing::warn!("the threads that were found are not kept: {}", e.line());
            }
            kept.sentence(found).into_iter().for_each(&say);
        }));
    }

    /// What trials find is told here, when there is time to.
    pub(crate) fn finds(&self) -> Finds {
        self.finds.clone()
    }

    /// It, if a search may find something that is worth its time.
    pub(crate) fn if_worth(self, file: &ModelFile) -> Result<Option<Untuned>, Error> {
        Ok(worth(file.bytes(), Machine::read()?.usable_cores()).then_some(self))
    }

    /// Says how it is tuned, unless that was said before, or that there is a profile which does not fit.
    pub(crate) fn tell_once(&self, model: &Path) {
        if self.path.exists() {
            return;
        }
        // An empty file keeps in mind that it was; where there can be none, nothing is said at all.
        let folder = self.path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let told = self.path.with_extension("told");
        if folder.and_then(|()| OpenOptions::new().write(true).create_new(true).open(told)).is_ok()
        {
            let model = model.display();
            note!("untuned: `arclight tune {model}` finds the cores that serve it best");
        }
    }

    /// Looks for the best cores on a thread of its own, in the time that the engine has for that. What comes of it is
    /// kept and used from then on, and told in a line. Nothing is kept of a search that was not finished.
    pub(crate) fn learn(self, when_idle: WhenIdle, tell: impl FnOnce(String) + Send + 'static) {
        let search = move || match self.search(&when_idle, QUICK) {
            Ok(Some(line)) => tell(line),
            Ok(None) => {}
            Err(e) => tell(format!("not tuned: {e}")),
        };
        if let Err(e) = thread::Builder::new().name("tune".to_owned()).spawn(search) {
            tracing::warn!("not tuned: no thread for it: {e}");
        }
    }

    /// Searches for so long at most, by the time that the engine is in use; `None` if that ends before the search, or if
    /// there is nothing to choose between.
    fn search(self, when_idle: &WhenIdle, most: Duration) -> Result<Option<String>, Error> {
        // What takes a while to find must not fail to be kept.
        stored::prepare(&self.path)?;
        let spent = Spent::default();
        match self.search_within(when_idle, &spent, most) {
            Err(_) if spent.is_over() => Ok(None),
            found => found,
        }
    }

    fn search_within(
        self,
        when_idle: &WhenIdle,
        spent: &Spent,
        most: Duration,
    ) -> Result<Option<String>, Error> {
        let mut hot = Hot::new(when_idle, spent, Machine::read()?)?;
        let found = quick(&mut hot, spent, most);
        // What a search knows when its time is over is not what it would have found.
        let outcome = found.map(|outcome| outcome.filter(|_| !spent.is_over()));
        hot.settle(outcome.as_ref().ok().and_then(Option::as_ref))?;
        let Some(outcome) = outcome? else { return Ok(None) };
        let loaded = hot.scheme().groups();
        let whole = topology::layout(&Machine::read()?, None, None)?.groups;
        let line = words(&outcome.measured, &self.path);
        let profile = self.owner.profile(whole_again(outcome, loaded, &whole), spent.time());
        stored::keep(&self.path, &profile.text())?;
        Ok(Some(line))
    }
}

fn worth(bytes: usize, cores: usize) -> bool {
    bytes >= SMALL && cores > 1
}

/// The quick search, of what changes without loading; `None` if all steps are of one kind.
fn quick(hot: &mut Hot<'_>, spent: &Spent, most: Duration) -> Result<Option<Outcome>, Error> {
    let kinds = hot.kinds(&Trace::new(requests()).map_err(Error::refused)?);
    if kinds.len() < 2 {
        return Ok(None);
    }
    let scheme = hot.scheme().clone();
    let kinds = lab::affordable(hot, kinds, &scheme, LONGEST_STEP)?;
    let default = Start { level: scheme.all(), scheme };
    let questions = Questions { default, others: Vec::new(), choices: hot.choices(), kinds };
    let limits = Limits {
        time: most,
        clock: &|| spent.time(),
        interrupted: &|| spent.is_over(),
        shown: false,
        effort: Effort::default(),
    };
    match questions.ask(hot, &limits, &mut |_| {}, &|| {}) {
        Ok((outcome, _)) => Ok(Some(outcome)),
        Err(e) => Err(Error::refused(hot.fault().map_or(e.to_string(), str::to_owned))),
    }
}

/// An outcome for all CPUs that a model has by default, where it was found beside others: `serve` leaves a core to HTTP.
/// What used all CPUs that were there uses all that there are.
fn whole_again(outcome: Outcome, loaded: &[Group], whole: &[Group]) -> Outcome {
    let begins =
        |(all, some): (&Group, &Group)| all.node == some.node && all.cpus.starts_with(&some.cpus);
    let alike = loaded.len() == whole.len() && whole.iter().zip(loaded).all(begins);
    let (Ok(before), Ok(scheme)) = (Scheme::new(loaded.to_vec()), Scheme::new(whole.to_vec()))
    else {
        return outcome;
    };
    let (used, all) = (before.all(), scheme.all());
    let rows = outcome.table.rows();
    if !alike || !rows.iter().any(|row| row.level == used) {
        return outcome;
    }
    let level = |row: &Row| if row.level == used { all.clone() } else { row.level.clone() };
    let rows = rows.iter().map(|row| Row { level: level(row), ..*row }).collect();
    match Table::new(&scheme, rows) {
        Ok(table) => Outcome { scheme, table, ..outcome },
        Err(_) => outcome,
    }
}

/// What was found, in a line.
fn words(measured: &[Measured], path: &Path) -> String {
    let mut words = "tuned in idle time".to_owned();
    for (at, Measured { tokens, before, after, .. }) in measured.iter().enumerate() {
        let gain = after / before;
        let _ = match (at, tokens) {
            (0, 1) => write!(words, ": steps of 1 token {gain:.2} x as fast"),
            (0, _) => write!(words, ": steps of {tokens} tokens {gain:.2} x as fast"),
            _ => write!(words, ", of {tokens} tokens {gain:.2} x"),
        };
    }
    let _ = write!(words, "; kept in {}", path.display());
    words
}

#[cfg(test)]
mod tests {
    use super::super::hot::EngineTask;
    use super::super::stored;
    use super::*;
    use arclight_engine::{
        CpuId, Phase, ReplicaOptions, Replicas, Request, SamplerParams, Schedules,
    };
    use tune::tuner::Profile;

    #[test]
    fn toys_and_single_cores_are_not_tuned() {
        assert!(worth(300 << 20, 2));
        assert!(!worth(300 << 20, 1) && !worth(1 << 20, 64));
    }

    fn file() -> Arc<ModelFile> {
        let bytes = testkit::TinyModel::qwen3(gguf::TensorType::Q4_0).gguf();
        Arc::new(ModelFile::from_bytes("tiny", bytes))
    }

    fn load(file: &Arc<ModelFile>) -> Replicas {
        let options = LoadOptions { context: Some(256), ..LoadOptions::default() };
        Replicas::load(file, &options, &ReplicaOptions::default(), &mut |_| {}).unwrap()
    }

    fn answer(replicas: &Replicas) -> Vec<u32> {
        let request = Request::new((1..40).collect());
        let request = Request { limit: Some(24), sampler: SamplerParams::greedy(), ..request };
        replicas.submit(request).unwrap().wait().unwrap().0
    }

    fn when_idle(replicas: &Replicas) -> WhenIdle {
        let time = replicas.idle_time(0);
        Box::new(move |task: EngineTask| Ok(time.ask(task)?))
    }

    /// How steps are taken now.
    fn serving(replicas: &Replicas) -> (Vec<Phase>, Schedules) {
        let (told, heard) = std::sync::mpsc::channel();
        let task = move |engine: &mut arclight_engine::Engine| {
            let plan = engine.plan();
            told.send((plan.phases.clone(), plan.schedules.clone())).unwrap();
        };
        replicas.idle_time(0).ask(task).unwrap();
        heard.recv().unwrap()
    }

    #[test]
    fn what_is_learned_beside_requests_is_kept_and_used_and_changes_no_bits() {
        let file = file();
        let replicas = load(&file);
        let before = answer(&replicas);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("profile.toml");
        let owner = For::of(&Machine::read().unwrap(), 1, &file.gguf().unwrap()).unwrap();
        let untuned = Untuned::new(owner, path.clone());
        let when_idle = when_idle(&replicas);
        let search =
            thread::spawn(move || untuned.search(&when_idle, Duration::from_millis(500)).unwrap());
        let mut served = 1;
        while !search.is_finished() {
            assert_eq!(answer(&replicas), before);
            served += 1;
            // Long enough for it to go on between two of them.
            thread::sleep(Duration::from_millis(1500));
        }
        let line = search.join().unwrap().expect("it came to its end");
        assert!(line.contains("1 token ") && line.contains(path.to_str().unwrap()), "{line}");
        let profile = Profile::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(profile.outcome.evaluations > 0);
        let mut options = LoadOptions::default();
        stored::put(&profile, &[], &mut options);
        assert_eq!(serving(&replicas), (options.phases, options.schedules));
        assert_eq!(answer(&replicas), before);
        assert_eq!(replicas.counters().served, served + 1);
    }

    #[test]
    fn an_outcome_is_put_into_use_without_loading() {
        let replicas = load(&file());
        let before = answer(&replicas);
        let (when_idle, spent) = (when_idle(&replicas), Spent::default());
        let hot = Hot::new(&when_idle, &spent, Machine::read().unwrap()).unwrap();
        let scheme = hot.scheme().clone();
        let one = scheme.level(vec![1; scheme.groups().len()]).unwrap();
        let rows = [(9, one.clone()), (u32::MAX, scheme.all())];
        let rows = rows.map(|(up_to, level)| Row { up_to, level }).to_vec();
        let outcome = Outcome {
            table: Table::new(&scheme, rows).unwrap(),
            scheme,
            choices: vec![("prefetch".to_owned(), "0".to_owned())],
            measured: Vec::new(),
            evaluations: 0,
            loads: 0,
            complete: true,
            schedules: tune::schedule::TunedSchedules::default(),
        };
        hot.settle(Some(&outcome)).unwrap();
        let (phases, schedules) = serving(&replicas);
        assert_eq!(phases[0], Phase { tokens: 9, threads: one.cpus().to_vec() });
        assert_eq!(schedules.usual.ahead, 0);
        assert_eq!(answer(&replicas), before);
        hot.settle(None).unwrap();
        assert_eq!(serving(&replicas), (Vec::new(), Schedules::default()));
    }

    #[test]
    fn a_search_that_the_program_s_end_cuts_off_keeps_nothing() {
        let file = file();
        let replicas = load(&file);
        let when_idle = when_idle(&replicas);
        drop(replicas);
        let folder = tempfile::tempdir().unwrap();
        let owner = For::of(&Machine::read().unwrap(), 1, &file.gguf().unwrap()).unwrap();
        let untuned = Untuned::new(owner, folder.path().join("profile.toml"));
        assert_eq!(untuned.search(&when_idle, QUICK).unwrap(), None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn all_cpus_beside_http_are_all_cpus_without() {
        let group =
            |cpus: std::ops::Range<u32>| Group { node: None, cpus: cpus.map(CpuId).collect() };
        let (loaded, whole) = ([group(0..4), group(4..7)], [group(0..4), group(4..8)]);
        let scheme = Scheme::new(loaded.to_vec()).unwrap();
        let outcome = |levels: [[usize; 2]; 2]| {
            let row = |(up_to, cpus): (u32, [usize; 2])| Row {
                up_to,
                level: scheme.level(cpus.to_vec()).unwrap(),
            };
            let rows = [9, u32::MAX].into_iter().zip(levels).map(row).collect();
            Outcome {
                table: Table::new(&scheme, rows).unwrap(),
                scheme: scheme.clone(),
                choices: Vec::new(),
                measured: Vec::new(),
                evaluations: 0,
                loads: 0,
                complete: true,
                schedules: tune::schedule::TunedSchedules::default(),
            }
        };
        let cpus = |outcome: &Outcome| -> Vec<Vec<usize>> {
            outcome.table.rows().iter().map(|row| row.level.cpus().to_vec()).collect()
        };
        let again = whole_again(outcome([[2, 2], [4, 3]]), &loaded, &whole);
        assert_eq!(
            (again.scheme.groups(), cpus(&again)),
            (&whole[..], vec![vec![2, 2], vec![4, 4]])
        );
        // One that leaves a core free by itself, and groups of another kind.
        let fewer = outcome([[2, 2], [3, 2]]);
        assert_eq!(whole_again(fewer.clone(), &loaded, &whole), fewer);
        let all = outcome([[2, 2], [4, 3]]);
        assert_eq!(whole_again(all.clone(), &loaded, &[group(0..8)]), all);
        assert_eq!(whole_again(all.clone(), &loaded, &[group(0..4), group(5..8)]), all);
    }
}
