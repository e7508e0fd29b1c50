//! `/slots/{id}`: what a request has left, saved by one server and restored by another.

use crate::support::{Direct, NAME, options};
use arclight_engine::{LoadOptions, ModelFile, ReplicaOptions};
use arclight_server::{ChatStyle, Model, Options};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;

/// A server that saves into a folder.
fn saving(folder: &Path, context: usize) -> Direct {
    saving_as(Options { slot_saves: Some(folder.to_owned()), ..options() }, context)
}

fn saving_as(options: Options, context: usize) -> Direct {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/arclight-demo.gguf");
    let file = Arc::new(ModelFile::open(path).unwrap());
    let loading = LoadOptions {
        threads: Some(1),
        context: Some(context),
        sequences: Some(1),
        no_pin: true,
        ..LoadOptions::default()
    };
    let serving = ReplicaOptions { saves: true, ..ReplicaOptions::default() };
    let model = Model::load(&file, &loading, &serving, &ChatStyle::default(), &mut |_| {}).unwrap();
    Direct::with(options, model)
}

/// The text of an answer, and how many tokens of its prompt were not computed.
async fn complete(server: &Direct) -> (Json, u64) {
    let prompt = "In the beginning there was a bear, and the bear had a book. ".repeat(4);
    let body = json!({"model": NAME, "prompt": prompt, "max_tokens": 8, "temperature": 0});
    let answer = server.complete(body).await.json();
    let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    (answer["choices"][0]["text"].clone(), cached.as_u64().unwrap())
}

#[tokio::test]
async fn another_server_goes_on_where_one_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = json!({"filename": "chat.bin"});
    let server = saving(folder.path(), 256);
    let (want, cached) = complete(&server).await;
    assert_eq!(cached, 0);
    let saved = server.post("/slots/0?action=save", &file).await.json();
    let tokens = saved["n_saved"].as_u64().unwrap();
    assert!(tokens > 32, "{saved}");
    let bytes = std::fs::metadata(folder.path().join("chat.bin")).unwrap().len();
    assert_eq!((&saved["n_written"], &saved["id_slot"]), (&bytes.into(), &0.into()));
    let (again, found) = complete(&server).await;
    assert_eq!(again, want);
    let erased = server.post("/slots/0?action=erase", &Json::Null).await.json();
    assert_eq!(erased["n_erased"], tokens);
    assert_eq!(complete(&server).await, (want.clone(), 0));
    drop(server);

    let server = saving(folder.path(), 256);
    let restored = server.post("/slots/0?action=restore", &file).await.json();
    assert_eq!((&restored["n_restored"], &restored["n_read"]), (&tokens.into(), &bytes.into()));
    assert_eq!(complete(&server).await.0, want);
    // What was restored is there to be saved again.
    let more = json!({"filename": "more.bin"});
    assert_eq!(server.post("/slots/0?action=save", &more).await.json()["n_saved"], tokens);
    let (again, cached) = complete(&server).await;
    assert_eq!((again, cached), (want, found));
}

#[tokio::test]
async fn the_folder_has_a_limit_and_keeps_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let server = saving(folder.path(), 256);
    complete(&server).await;
    let save = async |server: &Direct, name: &str| {
        let reply = server.post("/slots/0?action=save", &json!({"filename": name})).await;
        (reply.status.as_u16(), reply.json())
    };
    let (status, saved) = save(&server, "a").await;
    assert_eq!(status, 200, "{saved}");
    let bytes = saved["n_written"].as_u64().unwrap();
    // Room for two of them.
    let limited = Options {
        slot_saves: Some(folder.path().to_owned()),
        slot_save_bytes: 2 * bytes,
        ..options()
    };
    let server = saving_as(limited, 256);
    complete(&server).await;
    assert_eq!(save(&server, "b").await.0, 200);
    let (status, refused) = save(&server, "c").await;
    assert_eq!((status, &refused["error"]["code"]), (507, &json!("storage_full")), "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("c cannot be saved") && message.contains("--slot-save-bytes"),
        "{message}"
    );
    // One that is there already is replaced.
    assert_eq!(save(&server, "a").await.0, 200);
    let mut names: Vec<_> =
        folder.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    // Saves of one name at the same time give one whole file.
    let (one, other) = tokio::join!(save(&server, "a"), save(&server, "a"));
    assert_eq!((one.0, other.0), (200, 200));
    let restored = server.post("/slots/0?action=restore", &json!({"filename": "a"})).await;
    assert_eq!(restored.json()["n_read"], bytes, "{}", restored.text);
}

#[tokio::test]
async fn faults_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = saving(folder.path(), 256);
    complete(&server).await;
    let file = |name: &str| json!({"filename": name});
    let ask = async |path: &str, body: &Json| {
        let reply = server.post(path, body).await;
        (reply.status.as_u16(), reply.json()["error"]["message"].as_str().unwrap_or("").to_owned())
    };
    assert_eq!(ask("/slots/0?action=save", &file("a")).await.0, 200);
    for (path, body, status, words) in [
        ("/slots/0?action=fold", file("a"), 400, "save, restore or erase"),
        ("/slots/0", file("a"), 400, "save, restore or erase"),
        ("/slots/one?action=save", file("a"), 400, "a number"),
        ("/slots/1?action=save", file("a"), 404, "there is no slot 1"),
        ("/slots/0?action=save", file("../a"), 400, "without a folder"),
        ("/slots/0?action=restore", file("b"), 400, "there is no b"),
    ] {
        let (got, message) = ask(path, &body).await;
        assert!(got == status && message.contains(words), "{path} {body}: {got} {message}");
    }
    let path = folder.path().join("a");
    let mut bytes = std::fs::read(&path).unwrap();
    let other = saving(folder.path(), 128);
    let reply = other.post("/slots/0?action=restore", &file("a")).await;
    assert!(reply.status == 400 && reply.text.contains("loaded otherwise"), "{}", reply.text);
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (status, message) = ask("/slots/0?action=restore", &file("a")).await;
    assert!(status == 400 && message.contains("damaged"), "{message}");
    // Restoring reads regular files of a bounded size.
    let path = |name: &str| folder.path().join(name);
    assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    std::os::unix::fs::symlink("/etc/passwd", path("link")).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    std::fs::File::create(path("hole")).unwrap().set_len(1 << 40).unwrap();
    for (name, words) in [
        ("pipe", "not a regular file"),
        ("link", "not a regular file"),
        ("folder", "not a regular file"),
        ("hole", "1099511627776 bytes"),
    ] {
        let (status, message) = ask("/slots/0?action=restore", &file(name)).await;
        assert!(status == 400 && message.contains(words), "{name}: {status} {message}");
    }
    let plain = Direct::new(1);
    assert_eq!(plain.post("/slots/0?action=erase", &Json::Null).await.status, 501);
}
