//! The prefix cache on disk: answers are the same with it, after a restart, with damaged files; its bound holds.

use super::*;
use arclight_engine::DiskCache;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// A folder that goes with the test.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    fn serving(&self, bytes: u64) -> ReplicaOptions {
        let disk = DiskCache { folder: self.0.path().to_owned(), bytes };
        ReplicaOptions { disk: Some(disk), ..copies(1) }
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn bytes(&self) -> u64 {
        self.files().iter().map(|file| fs::metadata(file).unwrap().len()).sum()
    }
}

/// Whole attention; windows; layers that share keys; latents; delta nets; Mamba-2; convolutions.
fn models() -> Vec<Arc<ModelFile>> {
    let file = |model: TinyModel| Arc::new(ModelFile::from_bytes(model.arch, model.gguf()));
    vec![
        file(TinyModel::qwen3(TensorType::Q4_0)),
        file(TinyModel::gemma3(TensorType::Q4_0)),
        file(TinyModel::gemma3n(TensorType::Q4_0)),
        file(TinyModel::gemma4(TensorType::Q4_0)),
        file(TinyModel::deepseek2(TensorType::Q4_0, 96)),
        file(TinyModel::qwen35(TensorType::Q4_0)),
        file(TinyModel::granitehybrid(TensorType::Q8_0, 96)),
        file(TinyModel::lfm2(TensorType::Q4_0)),
    ]
}

/// A conversation: prompts, each the one before, its answer and more.
fn talk(replicas: &Replicas, turns: usize) -> Vec<(Vec<u32>, RequestSummary)> {
    let mut prompt = prompt(150, 1);
    let turn = |turn| {
        let ask = Request {
            limit: Some(20),
            end_tokens: Vec::new(),
            sampler: SamplerParams::greedy(),
            ..Request::new(prompt.clone())
        };
        let (answer, outcome) = replicas.submit(ask).unwrap().wait().unwrap();
        prompt.extend_from_slice(&answer);
        prompt.extend(super::prompt(13, 100 + turn));
        (answer, outcome)
    };
    (0..turns as u64).map(turn).collect()
}

/// The request of the third turn.
fn third(talk: &[(Vec<u32>, RequestSummary)]) -> Request {
    let mut prompt = prompt(150, 1);
    for (turn, (answer, _)) in talk[..2].iter().enumerate() {
        prompt.extend_from_slice(answer);
        prompt.extend(super::prompt(13, 100 + turn as u64));
    }
    let sampler = SamplerParams::greedy();
    Request { limit: Some(20), end_tokens: Vec::new(), sampler, ..Request::new(prompt) }
}

fn load_on(
    machine: &Machine,
    file: &Arc<ModelFile>,
    kv: KvType,
    serving: &ReplicaOptions,
) -> Replicas {
    let options = LoadOptions { kv: kv.into(), ..options(2) };
    Replicas::load_on(file, machine, &options, serving, &mut |_| {}).unwrap()
}

#[test]
fn a_conversation_goes_on_after_a_restart() {
    for (machine, file) in
        [FakeMachine::uniform(1, 2), FakeMachine::uniform(2, 1)].iter().flat_map(|machine| {
            let machine = machine.machine().unwrap();
            models().into_iter().map(move |file| (machine.clone(), file))
        })
    {
        let what = format!("{file:?}, {} nodes", machine.nodes().len());
        let scratch = Scratch::new();
        let load = |serving: &ReplicaOptions| load_on(&machine, &file, KvType::Q8_0, serving);
        let want = talk(&load(&copies(1)), 3);
        let serving = scratch.serving(1 << 30);
        let first = talk(&load(&serving), 2);
        assert!(!scratch.files().is_empty(), "{what}");
        let replicas = load(&serving);
        let again = talk(&replicas, 3);
        for (turn, (answer, _)) in want.iter().enumerate() {
            assert_eq!(&again[turn].0, answer, "{what}, turn {turn}");
            assert!(first.get(turn).is_none_or(|first| &first.0 == answer), "{what}, turn {turn}");
        }
        // A state is there at the prompt's last page bound; turns end with all but the last token of their answers.
        let found: Vec<usize> = again.iter().map(|turn| turn.1.cached).collect();
        assert_eq!(found, [128, 169, 202], "{what}");
        let counters = replicas.counters();
        assert!(counters.restored_tokens >= 128, "{what}: {counters:?}");
        drop(replicas);
        // The third turn alone: all of the second's tokens but the answer's last.
        let replicas = load(&serving);
        let (answer, outcome) = replicas.submit(third(&want)).unwrap().wait().unwrap();
        assert_eq!(answer, want[2].0, "{what}");
        assert_eq!(outcome.cached, 202, "{what}");
    }
}

/// What an agent sends first.
#[test]
fn a_prompt_of_28_000_tokens_is_found_the_second_time_and_after_a_restart() {
    let tiny = TinyModel::qwen3(TensorType::Q4_0);
    let model = TinyModel { context: 32_768, layers: 1, heads: 2, kv_heads: 1, ..tiny };
    let file = Arc::new(ModelFile::from_bytes("long", model.gguf()));
    let options =
        LoadOptions { context: Some(32_768), step_tokens: Some(512), ..super::options(1) };
    let scratch = Scratch::new();
    let load = || {
        let serving = scratch.serving(1 << 30);
        Replicas::load_on(&file, &one_node(2), &options, &serving, &mut |_| {}).unwrap()
    };
    let ask = |replicas: &Replicas, ending: u64| {
        let mut tokens = prompt(28_000, 1);
        tokens.extend(prompt(10, ending));
        let sampler = SamplerParams::greedy();
        let ask =
            Request { limit: Some(4), end_tokens: Vec::new(), sampler, ..Request::new(tokens) };
        let (answer, outcome) = replicas.submit(ask).unwrap().wait().unwrap();
        (answer, outcome.cached)
    };
    let replicas = load();
    let (first, none) = ask(&replicas, 2);
    assert_eq!(none, 0);
    let (again, same) = ask(&replicas, 2);
    assert_eq!((again, same), (first.clone(), 28_009), "all but the last token");
    let (second, found) = ask(&replicas, 3);
    assert!((28_000..28_010).contains(&found), "{found} tokens with another ending");
    drop(replicas);
    let replicas = load();
    let (again, found) = ask(&replicas, 3);
    assert!(found >= 28_000 - 64 && again == second, "{found} tokens after a restart");
    assert_eq!(ask(&replicas, 2).0, first);
}

#[test]
fn what_a_slot_has_left_is_saved_and_restored() {
    for file in models() {
        let machine = FakeMachine::uniform(2, 1).machine().unwrap();
        let serving = ReplicaOptions { saves: true, ..copies(1) };
        let load = || load_on(&machine, &file, KvType::F16, &serving);
        let replicas = load();
        talk(&replicas, 2);
        let (saved, tokens) = replicas.save_slot(0).unwrap();
        assert_eq!(tokens, 202, "{file:?}");
        let want = talk(&replicas, 3);
        drop(replicas);
        let replicas = load();
        assert_eq!(replicas.restore_slot(1, saved.clone()).unwrap(), tokens, "{file:?}");
        let (again, found) = replicas.save_slot(1).unwrap();
        assert_eq!((again.len() > 100, found), (true, tokens), "{file:?}");
        let (answer, outcome) = replicas.submit(third(&want)).unwrap().wait().unwrap();
        assert_eq!((&answer, outcome.cached), (&want[2].0, 202), "{file:?}");
        let no_slot = replicas.erase_slot(2);
        assert!(matches!(no_slot, Err(Error::NoSlot { slot: 2, slots: 2 })), "{no_slot:?}");
        assert_eq!(replicas.erase_slot(0).unwrap(), 235, "{file:?}");
        let damaged = replicas.restore_slot(0, saved[..saved.len() - 1].to_vec());
        assert!(matches!(damaged, Err(Error::BadSave)), "{damaged:?}");
        let plain = load_on(&machine, &file, KvType::F16, &copies(1));
        assert!(matches!(plain.save_slot(0), Err(Error::SavesOff)));
        let other = load_on(&one_node(1), &file, KvType::F32, &serving);
        assert!(matches!(other.restore_slot(0, saved), Err(Error::ForeignSave)));
    }
}

#[test]
fn damaged_files_and_those_of_others_are_not_used() {
    let scratch = Scratch::new();
    let serving = scratch.serving(1 << 30);
    let machine = one_node(2);
    for file in models() {
        let want = talk(&load_on(&machine, &file, KvType::F16, &serving), 2);
        // Another type of keys and values has other names.
        let other = load_on(&machine, &file, KvType::F32, &serving);
        talk(&other, 1);
        assert_eq!(other.counters().restored_tokens, 0, "{file:?}");
        drop(other);
        for path in scratch.files() {
            let mut bytes = fs::read(&path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(&path, bytes).unwrap();
        }
        let replicas = load_on(&machine, &file, KvType::F16, &serving);
        let again = talk(&replicas, 2);
        for (want, again) in want.iter().zip(&again) {
            assert_eq!(want.0, again.0, "{file:?}");
        }
        assert_eq!(replicas.counters().restored_tokens, 0, "{file:?}");
    }
}

#[test]
fn what_memory_gave_up_is_read_again() {
    for file in models() {
        let scratch = Scratch::new();
        let serving = scratch.serving(1 << 30);
        let machine = one_node(2);
        let mut engine = Engine::load_on(&file, &machine, &options(1), &mut |_| {}).unwrap();
        let options = LoadOptions { sequences: Some(1), ..options(1) };
        let replicas = Replicas::load_on(&file, &machine, &options, &serving, &mut |_| {}).unwrap();
        let ask = |seed| Request { end_tokens: Vec::new(), ..request(200, seed) };
        for round in 0..2 {
            for seed in 0..5 {
                let want = alone(&mut engine, &ask(seed)).0;
                let (got, _) = replicas.submit(ask(seed)).unwrap().wait().unwrap();
                assert_eq!(got, want, "{file:?}, round {round}, seed {seed}");
                // Idle replicas write.
                std::thread::sleep(Duration::from_millis(60));
            }
        }
        let counters = replicas.counters();
        assert!(counters.restored_tokens > 128, "{file:?}: {counters:?}");
    }
}

#[test]
fn the_folder_and_memory_are_bounded() {
    let scratch = Scratch::new();
    let bytes = 200 << 10;
    let file = Arc::new(ModelFile::from_bytes("tiny", TinyModel::qwen35(TensorType::Q4_0).gguf()));
    let replicas = load_on(&one_node(2), &file, KvType::F16, &scratch.serving(bytes));
    let ask = |seed| Request { limit: Some(2), ..request(40, seed) };
    for seed in 0..300 {
        serve(&replicas, ask(seed));
    }
    let status = &replicas.status()[0];
    assert_eq!(usable(status), status.pages.total);
    drop(replicas);
    let held = scratch.bytes();
    assert!(held <= bytes && held > bytes / 2, "{held} bytes");
    assert!(scratch.files().iter().all(|file| file.extension().unwrap() == "kv"));
}

#[test]
fn a_folder_that_cannot_be_made_is_told() {
    let scratch = Scratch::new();
    let file_there = scratch.0.path().join("file");
    fs::write(&file_there, b"no folder").unwrap();
    let disk = Some(DiskCache { folder: file_there, bytes: 1 << 20 });
    let serving = ReplicaOptions { disk, ..copies(1) };
    let error = Replicas::load_on(&file(), &one_node(1), &options(1), &serving, &mut |_| {});
    let error = error.err().unwrap().to_string();
    assert!(error.contains("prefix cache cannot be kept in"), "{error}");
}
