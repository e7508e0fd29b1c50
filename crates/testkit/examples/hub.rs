//! The fake hub for a terminal: `hub ADDRESS OWNER/REPO/FILE=PATH...` serves these files until it is ended.
//!
//! With `HF_ENDPOINT=http://ADDRESS` programs that use the Hugging Face Hub find them there.

use arclight_testkit::{FakeHub, FakeRepo};
use std::collections::BTreeMap;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().ok_or("usage: hub ADDRESS OWNER/REPO/FILE=PATH...")?;
    let mut repos: BTreeMap<String, FakeRepo> = BTreeMap::new();
    for arg in args {
        let (name, path) = arg.split_once('=').ok_or("a file is OWNER/REPO/FILE=PATH")?;
        let mut parts = name.splitn(3, '/');
        let (Some(owner), Some(repo), Some(file)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err("a file is OWNER/REPO/FILE=PATH".into());
        };
        let entry = repos.entry(format!("{owner}/{repo}")).or_default();
        entry.licence = Some("apache-2.0".to_owned());
        entry.files.insert(file.to_owned(), std::fs::read(path)?);
    }
    let hub = FakeHub::start(&address);
    repos.into_iter().for_each(|(id, repo)| hub.put(&id, repo));
    println!("{}", hub.endpoint());
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
        for seen in hub.seen() {
            let by = if seen.by_files { "files" } else { "site" };
            println!("{by} {} {} {}", seen.method, seen.path, seen.range.unwrap_or_default());
        }
    }
}
