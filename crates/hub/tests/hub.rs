//! Names, downloads and the cache against a server that speaks the Hub's API, with its faults.

use arclight_hub::{Error, Event, Hub, Model, Name, Pick, Place, Settings};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use testkit::{FakeHub, FakeRepo, Fault, Rng};

const REPO: &str = "owner/Model-GGUF";
const FILE: &str = "Model-Q4_K_M.gguf";

/// A machine of its own, and a hub that it reaches.
struct World {
    home: TempDir,
    hub: FakeHub,
}

impl World {
    fn new() -> World {
        World { home: TempDir::new().unwrap(), hub: FakeHub::default() }
    }

    fn settings(&self) -> Settings {
        let home = self.home.path().to_owned();
        let endpoint = self.hub.endpoint();
        let mut settings = Settings::from(|name| match name {
            "HOME" => Some(home.clone().into()),
            "HF_ENDPOINT" | "MODELSCOPE_DOMAIN" => Some(endpoint.clone().into()),
            _ => None,
        })
        .unwrap();
        settings.first_wait = Duration::from_millis(1);
        settings
    }

    fn pull_with(&self, settings: Settings, name: &str) -> Result<Model, Error> {
        let hub = Hub::new(settings);
        let remote = hub.look(&Name::parse(name).unwrap(), &mut |_| {})?;
        hub.fetch(&remote, &mut |_| {})
    }

    fn pull(&self, name: &str) -> Result<Model, Error> {
        self.pull_with(self.settings(), name)
    }

    fn find(&self, name: &str) -> Vec<Model> {
        Hub::new(self.settings()).find(&Name::parse(name).unwrap())
    }

    fn blobs(&self) -> Vec<String> {
        let folder = self.settings().cache.join("models--owner--Model-GGUF/blobs");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|e| e.file_name().into_string().unwrap()).collect()
    }
}

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..count).map(|_| rng.bits() as u8).collect()
}

fn repo(files: &[(&str, &[u8])]) -> FakeRepo {
    let files = files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec()));
    FakeRepo { files: files.collect::<BTreeMap<_, _>>(), licence: Some("mit".into()), token: None }
}

fn message(result: Result<Model, Error>) -> String {
    result.expect_err("it must fail").to_string()
}

#[test]
fn a_model_is_fetched_once_and_found_from_then_on() {
    let world = World::new();
    let contents = bytes(3 << 20, 1);
    world
        .hub
        .put(REPO, repo(&[(FILE, &contents), ("Model-F16.gguf", b"f16"), ("README.md", b"hi")]));
    assert!(world.find(REPO).is_empty());
    let model = world.pull(REPO).unwrap();
    assert_eq!(fs::read(model.path()).unwrap(), contents);
    assert_eq!((model.name.as_str(), model.quant.as_str()), ("owner/Model-GGUF:Q4_K_M", "Q4_K_M"));
    assert!(model.path().is_symlink() && model.path().ends_with(FILE));
    assert_eq!(world.blobs().len(), 1, "a blob and nothing beside it");
    world.hub.seen();
    // Found without a question, by all its names, and not fetched again.
    for name in [REPO, "owner/Model-GGUF:q4_k_m", "hf:owner/Model-GGUF:Model-Q4_K_M.gguf"] {
        assert_eq!(world.find(name)[0].path(), model.path(), "{name}");
    }
    assert!(world.hub.seen().is_empty());
    assert!(world.find("owner/Model-GGUF:F16").is_empty());
    world.pull(REPO).unwrap();
    assert!(world.hub.seen().iter().all(|seen| !seen.by_files));
}

#[test]
fn a_big_file_comes_over_several_connections() {
    let world = World::new();
    let contents = bytes((40 << 20) + 5, 2);
    world.hub.put_file(REPO, FILE, &contents);
    let mut settings = world.settings();
    settings.piece = 8 << 20;
    let hub = Hub::new(settings);
    let remote = hub.look(&Name::parse(REPO).unwrap(), &mut |_| {}).unwrap();
    let mut come = 0;
    let mut begun = Vec::new();
    let mut ended = false;
    let model = hub.fetch(&remote, &mut |event| match event {
        Event::Bytes(bytes) => come += bytes,
        Event::Begin { file, bytes, done } => begun.push((file.to_owned(), bytes, done)),
        Event::End => ended = true,
        other => panic!("{other:?}"),
    });
    let size = contents.len() as u64;
    assert_eq!(begun, [(FILE.to_owned(), size, 0)]);
    assert!(ended && come == size);
    assert!(fs::read(model.unwrap().path()).unwrap() == contents);
    let asked = world.hub.seen().into_iter().filter(|seen| seen.by_files);
    let ranges: Vec<String> = asked.filter_map(|seen| seen.range).collect();
    assert!(ranges.len() >= 5, "{ranges:?}");
}

#[test]
fn cut_connections_and_busy_servers_are_tried_again() {
    let world = World::new();
    let contents = bytes(2 << 20, 3);
    world.hub.put_file(REPO, FILE, &contents);
    world.hub.fail([
        Fault::SiteStatus(429, "retry-after: 0\r\n"),
        Fault::SiteStatus(503, ""),
        Fault::CutAfter(300_000),
        Fault::FileStatus(500),
        Fault::CutAfter(0),
        Fault::FileStatus(403),
    ]);
    let model = world.pull(REPO).unwrap();
    assert!(world.hub.faults().is_empty(), "all of them came up");
    assert!(fs::read(model.path()).unwrap() == contents);
    // What had come before a cut was not asked for again.
    let ranges: Vec<_> =
        world.hub.seen().into_iter().filter(|s| s.by_files).filter_map(|s| s.range).collect();
    assert!(ranges.iter().any(|range| range.starts_with("bytes=300000-")), "{ranges:?}");
}

#[test]
fn a_download_that_was_given_up_goes_on_later() {
    let world = World::new();
    let contents = bytes(5 << 20, 4);
    world.hub.put_file(REPO, FILE, &contents);
    let mut settings = world.settings();
    settings.tries = 1;
    world.hub.fail([Fault::CutAfter((3 << 20) + 77)]);
    let error = message(world.pull_with(settings, REPO));
    assert!(error.contains(FILE) && error.contains("goes on"), "{error}");
    let hub = Hub::new(world.settings());
    let unfinished = hub.unfinished();
    assert_eq!(unfinished.len(), 1);
    assert_eq!((unfinished[0].1.file.as_str(), unfinished[0].1.done), (FILE, 3 << 20));
    assert!(world.find(REPO).is_empty(), "half a model is none");
    world.hub.seen();
    let remote = hub.look(&Name::parse(REPO).unwrap(), &mut |_| {}).unwrap();
    assert_eq!(remote.missing, 2 << 20);
    let model = world.pull(REPO).unwrap();
    assert!(fs::read(model.path()).unwrap() == contents);
    let first = world.hub.seen().into_iter().find(|seen| seen.by_files).unwrap();
    assert_eq!(first.range.unwrap(), format!("bytes={}-{}", 3 << 20, (5 << 20) - 1));
    assert!(hub.unfinished().is_empty());
}

#[test]
fn an_unfinished_download_can_be_removed() {
    let world = World::new();
    world.hub.put_file(REPO, FILE, &bytes(2 << 20, 5));
    let mut settings = world.settings();
    settings.tries = 1;
    world.hub.fail([Fault::CutAfter(1 << 20)]);
    world.pull_with(settings, REPO).unwrap_err();
    let hub = Hub::new(world.settings());
    let (repo, file) = hub.unfinished().swap_remove(0);
    assert_eq!(hub.remove_unfinished(&repo, &file).unwrap(), 1 << 20);
    assert!(!world.settings().cache.join("models--owner--Model-GGUF").exists());
}

#[test]
fn damaged_bytes_are_told_and_removed() {
    let world = World::new();
    let contents = bytes(1 << 20, 6);
    world.hub.put_file(REPO, FILE, &contents);
    world.hub.fail([Fault::Damaged]);
    let error = message(world.pull(REPO));
    assert!(error.contains(FILE) && error.contains("sha256"), "{error}");
    assert!(world.blobs().is_empty(), "{:?}", world.blobs());
    assert!(world.pull(REPO).is_ok());
}

#[test]
fn the_token_goes_to_the_site_and_nowhere_else() {
    let world = World::new();
    let gated = FakeRepo { token: Some("hf_secret".into()), ..repo(&[(FILE, &bytes(1000, 7))]) };
    world.hub.put(REPO, gated);
    let error = message(world.pull(REPO));
    for part in ["gated", "accept its licence at http", REPO, "HF_TOKEN"] {
        assert!(error.contains(part), "{error}");
    }
    let mut settings = world.settings();
    settings.token = Some("hf_other".into());
    let error = message(world.pull_with(settings.clone(), REPO));
    assert!(error.contains("the account that HF_TOKEN belongs to"), "{error}");
    settings.token = Some("hf_secret".into());
    world.hub.seen();
    world.pull_with(settings, REPO).unwrap();
    let seen = world.hub.seen();
    assert!(seen.iter().any(|seen| seen.by_files));
    for seen in seen {
        let token = seen.authorization.as_deref();
        assert_eq!(token, (!seen.by_files).then_some("Bearer hf_secret"), "{}", seen.path);
    }
}

#[test]
fn a_token_that_the_site_does_not_know_is_told() {
    let world = World::new();
    world.hub.put_file(REPO, FILE, b"x");
    world.hub.fail([Fault::SiteStatus(
        401,
        "x-error-message: Invalid credentials in Authorization header\r\n",
    )]);
    let mut settings = world.settings();
    settings.token = Some("hf_old".into());
    let error = message(world.pull_with(settings, REPO));
    assert!(error.contains("does not accept the token") && error.contains("HF_TOKEN"), "{error}");
}

#[test]
fn wrong_names_say_which_are_near() {
    let world = World::new();
    world.hub.put(
        REPO,
        repo(&[(FILE, b"q4"), ("Model-Q8_0.gguf", b"q8"), ("mmproj-F16.gguf", b"eyes")]),
    );
    world.hub.put("else/Other-GGUF", repo(&[("x.safetensors", b"x")]));
    let error = message(world.pull("owner/Modle-GGUF"));
    assert!(error.contains("did you mean owner/Model-GGUF?"), "{error}");
    let error = message(world.pull("nobody/Other"));
    assert!(error.contains("did you mean else/Other-GGUF?"), "{error}");
    let error = message(world.pull("owner/Model-GGUF:Q5_K_M"));
    assert!(error.contains("has no Q5_K_M; it has Q4_K_M, Q8_0"), "{error}");
    let error = message(world.pull("owner/Model-GGUF:model.gguf"));
    assert!(error.contains("it has Model-Q4_K_M.gguf, Model-Q8_0.gguf"), "{error}");
    let error = message(world.pull("else/Other-GGUF"));
    assert!(error.contains("has no GGUF files"), "{error}");
    let error = message(world.pull("qwen3:5b"));
    assert!(error.contains("qwen3:4b"), "{error}");
}

#[test]
fn short_names_are_repositories() {
    let world = World::new();
    let contents = bytes(1000, 8);
    let files = [("Qwen3-0.6B-Q8_0.gguf", &contents[..]), ("Qwen3-0.6B-Q4_0.gguf", b"q4")];
    world.hub.put("Qwen/Qwen3-0.6B-GGUF", repo(&files));
    let model = world.pull("qwen3:0.6b").unwrap();
    assert_eq!((model.name.as_str(), model.bytes), ("Qwen/Qwen3-0.6B-GGUF:Q8_0", 1000));
    assert_eq!(world.find("qwen3:0.6b")[0].path(), model.path());
    assert!(world.find("qwen3:0.6b:q4_0").is_empty());
    assert_eq!(world.pull("qwen3:0.6b:q4_0").unwrap().quant, "Q4_0");
}

#[test]
fn all_parts_of_a_split_model_come() {
    let world = World::new();
    let parts = ["Q8_0/M-Q8_0-00001-of-00002.gguf", "Q8_0/M-Q8_0-00002-of-00002.gguf"];
    world.hub.put(REPO, repo(&[(parts[0], b"one"), (parts[1], b"two")]));
    let model = world.pull("owner/Model-GGUF:Q8_0").unwrap();
    let contents: Vec<Vec<u8>> = model.files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert_eq!(contents, [b"one", b"two"]);
    assert_eq!(model.files[1].parent(), model.path().parent());
    world.hub.put(REPO, repo(&[(parts[1], b"two")]));
    let error = message(world.pull("owner/Model-GGUF:Q8_0"));
    assert!(error.contains(parts[0]), "{error}");
}

#[test]
fn nothing_is_asked_offline() {
    let world = World::new();
    world.hub.put_file(REPO, FILE, b"x");
    let mut settings = world.settings();
    settings.offline = true;
    let error = message(world.pull_with(settings, REPO));
    assert!(error.contains(REPO) && error.contains("offline"), "{error}");
    assert!(world.hub.seen().is_empty());
    // A short name that means nothing is told as that.
    let mut settings = world.settings();
    settings.offline = true;
    assert!(message(world.pull_with(settings, "nonsense")).contains("nor a short name"));
}

#[test]
fn a_site_that_is_not_there_is_told() {
    let world = World::new();
    let mut settings = world.settings();
    settings.endpoint = "http://127.0.0.1:9".into();
    let error = message(world.pull_with(settings, REPO));
    assert!(error.contains("cannot reach 127.0.0.1:9") && error.contains("HTTPS_PROXY"), "{error}");
}

#[test]
fn a_long_wait_is_told_and_not_waited() {
    let world = World::new();
    world.hub.put_file(REPO, FILE, b"x");
    world.hub.fail([Fault::SiteStatus(429, "retry-after: 3600\r\n")]);
    assert!(message(world.pull(REPO)).contains("asks to wait 3600 s"));
}

#[test]
fn a_server_without_ranges_is_told() {
    let world = World::new();
    let contents = bytes(33 << 20, 9);
    world.hub.put_file(REPO, FILE, &contents);
    world.hub.fail(std::iter::repeat_n(Fault::NoRanges, 20));
    let error = message(world.pull(REPO));
    assert!(error.contains("--connections 1"), "{error}");
    let mut settings = world.settings();
    settings.connections = 1;
    settings.cache = world.home.path().join("other");
    assert!(fs::read(world.pull_with(settings, REPO).unwrap().path()).unwrap() == contents);
}

#[test]
fn two_at_once_fetch_it_once() {
    let world = World::new();
    let contents = bytes(4 << 20, 10);
    world.hub.put_file(REPO, FILE, &contents);
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..3).map(|_| scope.spawn(|| world.pull(REPO).unwrap())).collect();
        for pull in pulls {
            let model = pull.join().unwrap();
            assert!(fs::read(model.path()).unwrap() == contents);
        }
    });
    assert_eq!(world.hub.seen().iter().filter(|seen| seen.by_files).count(), 1);
}

#[test]
fn a_new_commit_is_pulled_and_the_old_one_removed_with_it() {
    let world = World::new();
    world.hub.put_file(REPO, FILE, b"old");
    world.pull(REPO).unwrap();
    world.hub.put_file(REPO, FILE, b"newer");
    let model = world.pull(REPO).unwrap();
    assert_eq!(fs::read(world.find(REPO)[0].path()).unwrap(), b"newer");
    let hub = Hub::new(world.settings());
    assert_eq!(hub.models().len(), 1, "an older commit is not another model");
    assert_eq!(hub.remove(&model).unwrap(), 8);
    assert!(hub.models().is_empty());
    assert!(!world.settings().cache.join("models--owner--Model-GGUF").exists());
}

fn put(path: PathBuf, contents: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

#[test]
fn models_of_other_programs_are_found_and_kept() {
    let world = World::new();
    let home: &Path = world.home.path();
    put(home.join(".lmstudio/models/owner/Model-GGUF").join(FILE), "lm");
    let digest = "d".repeat(64);
    let manifest = format!(
        r#"{{"layers": [{{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:{digest}"}}]}}"#
    );
    put(home.join(".ollama/models/manifests/registry.ollama.ai/library/qwen3/4b"), &manifest);
    put(home.join(format!(".ollama/models/blobs/sha256-{digest}")), "ollama");
    let hub = Hub::new(world.settings());
    let names: Vec<(String, Place)> = hub.models().into_iter().map(|m| (m.name, m.place)).collect();
    let want = [("owner/Model-GGUF:Q4_K_M", Place::LmStudio), ("qwen3:4b", Place::Ollama)];
    assert_eq!(names, want.map(|(name, place)| (name.to_owned(), place)));
    assert_eq!(fs::read(world.find(REPO)[0].path()).unwrap(), b"lm");
    let ollama = &world.find("qwen3:4b")[0];
    assert_eq!(fs::read(ollama.path()).unwrap(), b"ollama");
    for model in hub.models() {
        let error = hub.remove(&model).unwrap_err().to_string();
        assert!(error.contains(&model.place.to_string()) && model.path().exists(), "{error}");
    }
}

#[test]
fn modelscope_speaks_in_its_own_way() {
    let world = World::new();
    let contents = bytes(1 << 20, 11);
    world.hub.put(REPO, repo(&[(FILE, &contents)]));
    let mut settings = world.settings();
    settings.token = Some("hf_secret".into());
    let model = world.pull_with(settings, "ms:owner/Model-GGUF").unwrap();
    assert!(fs::read(model.path()).unwrap() == contents);
    assert_eq!(
        (model.name.as_str(), model.place),
        ("ms:owner/Model-GGUF:Q4_K_M", Place::ModelScope)
    );
    assert!(
        world.hub.seen().iter().all(|seen| seen.authorization.is_none()),
        "it is not the Hub's"
    );
    assert_eq!(world.find("ms:owner/Model-GGUF").len(), 1);
    assert!(world.find(REPO).is_empty(), "what one site has is not the other's");
}

#[test]
fn more_than_the_disk_has_is_refused_before_it_comes() {
    let world = World::new();
    world.hub.put_file(REPO, FILE, &bytes(1000, 12));
    let hub = Hub::new(world.settings());
    let name = Name::Repo {
        repo: match Name::parse(REPO).unwrap() {
            Name::Repo { repo, .. } => repo,
            Name::Short { .. } => unreachable!(),
        },
        pick: Pick::Default,
    };
    let mut remote = hub.look(&name, &mut |_| {}).unwrap();
    remote.missing = u64::MAX;
    let error = hub.fetch(&remote, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("free") && error.contains("HF_HUB_CACHE"), "{error}");
    assert!(world.hub.seen().iter().all(|seen| !seen.by_files));
}
