//! A server that speaks the Hugging Face Hub's API, with faults on demand.
//!
//! Two listeners: the site, which knows repositories and sends on who wants a file, and the server that
//! holds the files, on a port of its own, as the Hub's content delivery network is. Both write down what they
//! were asked. ModelScope's API of files is spoken by the site as well.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A repository of the fake hub.
#[derive(Clone, Debug, Default)]
pub struct FakeRepo {
    /// Contents by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The licence that its card names.
    pub licence: Option<String>,
    /// Who may have its files: only those who come with this token.
    pub token: Option<String>,
}

/// What goes wrong, once, with the next request that it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The file's server closes the connection after this many bytes.
    CutAfter(usize),
    /// The file's server answers with this status.
    FileStatus(u16),
    /// The site answers any request with this status and, if there are, these headers.
    SiteStatus(u16, &'static str),
    /// A bit of the file is another.
    Damaged,
    /// The file's server sends the whole file, whatever was asked for.
    NoRanges,
}

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether the file's server was asked, not the site.
    pub by_files: bool,
    /// `GET` or `HEAD`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// The `Range` header.
    pub range: Option<String>,
}

/// The server; it runs until the program ends.
#[derive(Clone, Debug)]
pub struct FakeHub {
    site: SocketAddr,
    state: Arc<State>,
}

/// A repository with what is asked for again and again.
#[derive(Debug)]
struct Kept {
    files: BTreeMap<String, KeptFile>,
    licence: Option<String>,
    token: Option<String>,
    /// It changes with the files.
    commit: String,
}

#[derive(Debug)]
struct KeptFile {
    bytes: Arc<Vec<u8>>,
    sha256: String,
    /// Git's hash of it.
    git: String,
}

impl Kept {
    fn of(repo: FakeRepo) -> Kept {
        let keep = |(path, bytes): (String, Vec<u8>)| {
            let mut git = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
            git.update(format!("blob {}\0", bytes.len()).as_bytes());
            git.update(&bytes);
            let sha256 = hex(digest(&SHA256, &bytes).as_ref());
            (path, KeptFile { bytes: Arc::new(bytes), sha256, git: hex(git.finish().as_ref()) })
        };
        let files: BTreeMap<String, KeptFile> = repo.files.into_iter().map(keep).collect();
        let mut commit = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        files
            .iter()
            .for_each(|(path, file)| commit.update(format!("{path} {}\n", file.git).as_bytes()));
        let commit = hex(commit.finish().as_ref());
        Kept { files, licence: repo.licence, token: repo.token, commit }
    }
}

#[derive(Debug)]
struct State {
    files: SocketAddr,
    repos: Mutex<BTreeMap<String, Kept>>,
    faults: Mutex<Vec<Fault>>,
    seen: Mutex<Vec<Seen>>,
}

impl Default for FakeHub {
    fn default() -> FakeHub {
        FakeHub::start("127.0.0.1:0")
    }
}

impl FakeHub {
    /// A server without repositories, whose site listens on this address.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start(address: &str) -> FakeHub {
        let site = TcpListener::bind(address).expect("the address is free");
        let files = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let local = |listener: &TcpListener| listener.local_addr().expect("it is bound");
        let state = Arc::new(State {
            files: local(&files),
            repos: Mutex::default(),
            faults: Mutex::default(),
            seen: Mutex::default(),
        });
        let hub = FakeHub { site: local(&site), state };
        for (listener, by_files) in [(site, false), (files, true)] {
            let hub = hub.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let hub = hub.clone();
                    std::thread::spawn(move || hub.serve(&stream, by_files));
                }
            });
        }
        hub
    }

    /// The site's address, for `HF_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.site)
    }

    /// Puts a repository on the site, in place of what it had by that name.
    pub fn put(&self, id: &str, repo: FakeRepo) {
        lock(&self.state.repos).insert(id.to_owned(), Kept::of(repo));
    }

    /// Puts a repository with one file on the site.
    pub fn put_file(&self, id: &str, path: &str, contents: &[u8]) {
        let files = BTreeMap::from([(path.to_owned(), contents.to_owned())]);
        self.put(id, FakeRepo { files, licence: Some("apache-2.0".into()), token: None });
    }

    /// Lets these go wrong, each once, in this order as far as they are of one kind.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.state.faults).extend(faults);
    }

    /// Faults that have not come up yet.
    pub fn faults(&self) -> Vec<Fault> {
        lock(&self.state.faults).clone()
    }

    /// What was asked for since the last call.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut lock(&self.state.seen))
    }

    fn take_fault<T>(&self, fits: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        let mut faults = lock(&self.state.faults);
        let at = faults.iter().position(|fault| fits(fault).is_some())?;
        fits(&faults.remove(at))
    }

    /// Answers a connection's request.
    fn serve(&self, stream: &TcpStream, by_files: bool) {
        let Some(seen) = read_request(stream, by_files) else { return };
        lock(&self.state.seen).push(seen.clone());
        let answer = if by_files { self.file(&seen) } else { self.page(&seen) };
        let mut stream = stream;
        let body = if seen.method == "HEAD" { &[][..] } else { &answer.body[..] };
        let head = format!(
            "HTTP/1.1 {}\r\ncontent-length: {}\r\nconnection: close\r\n{}\r\n",
            answer.status, answer.length, answer.headers
        );
        // A client that goes away is no fault of the server.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    }

    /// The site's answer.
    fn page(&self, seen: &Seen) -> Answer {
        let fault = self.take_fault(|fault| match fault {
            Fault::SiteStatus(status, headers) => Some((*status, *headers)),
            _ => None,
        });
        if let Some((status, headers)) = fault {
            return Answer::text(&status.to_string(), headers, "");
        }
        let (path, query) = seen.path.split_once('?').unwrap_or((&seen.path, ""));
        let parts: Vec<String> = path.trim_start_matches('/').split('/').map(unescaped).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts[..] {
            ["api", "models"] => self.search(query),
            ["api", "models", owner, name, "revision", "main"] | ["api", "models", owner, name] => {
                self.known(owner, name, |id, repo| Answer::json(&info(id, repo)))
            }
            ["api", "models", owner, name, "tree", revision] => {
                self.known(owner, name, |_, repo| {
                    match revision == "main" || revision == repo.commit {
                        true => self.tree(repo, path, query),
                        false => Answer::missing("RevisionNotFound"),
                    }
                })
            }
            ["api", "v1", "models", owner, name, "repo", "files"] => {
                self.known(owner, name, |_, repo| Answer::json(&scope_files(repo)))
            }
            ["api", "v1", "models", owner, name, "repo"] => {
                let file = field(query, "FilePath").unwrap_or_default();
                self.resolve(seen, owner, name, &file)
            }
            [owner, name, "resolve", _, ref file @ ..] => {
                self.resolve(seen, owner, name, &file.join("/"))
            }
            _ => Answer::text("404 Not Found", "", "no such page"),
        }
    }

    fn known(&self, owner: &str, name: &str, answer: impl Fn(&str, &Kept) -> Answer) -> Answer {
        let id = format!("{owner}/{name}");
        match lock(&self.state.repos).get(&id) {
            Some(repo) => answer(&id, repo),
            // The Hub does not tell what is missing from what is private.
            None => Answer::text(
                "401 Unauthorized",
                "x-error-code: RepoNotFound\r\nx-error-message: Repository not found\r\n",
                "",
            ),
        }
    }

    fn search(&self, query: &str) -> Answer {
        let author = field(query, "author").map(|author| format!("{author}/").to_lowercase());
        let word = field(query, "search").unwrap_or_default().to_lowercase();
        let repos = lock(&self.state.repos);
        let fits = |id: &&String| {
            let id = id.to_lowercase();
            author.as_ref().is_none_or(|author| id.starts_with(author)) && id.contains(&word)
        };
        let found: Vec<String> =
            repos.keys().filter(fits).map(|id| format!("{{\"id\": {id:?}}}")).collect();
        Answer::json(&format!("[{}]", found.join(", ")))
    }

    /// The files of a repository, two on a page.
    fn tree(&self, repo: &Kept, path: &str, query: &str) -> Answer {
        let from: usize = field(query, "cursor").and_then(|at| at.parse().ok()).unwrap_or(0);
        let mut entries: Vec<String> =
            repo.files.iter().map(|(path, file)| entry(path, file)).collect();
        entries.push(r#"{"type": "directory", "path": "folder", "oid": "0", "size": 0}"#.into());
        let page = entries.iter().skip(from).take(2).cloned().collect::<Vec<_>>().join(", ");
        let mut answer = Answer::json(&format!("[{page}]"));
        if from + 2 < entries.len() {
            let next = format!("{}{path}?recursive=true&cursor={}", self.endpoint(), from + 2);
            answer.headers.push_str(&format!("link: <{next}>; rel=\"next\"\r\n"));
        }
        answer
    }

    /// Sends on who may have a file.
    fn resolve(&self, seen: &Seen, owner: &str, name: &str, file: &str) -> Answer {
        self.known(owner, name, |id, repo| {
            let wanted = repo.token.as_ref().map(|token| format!("Bearer {token}"));
            if wanted.is_some() && seen.authorization != wanted {
                let status =
                    if seen.authorization.is_some() { "403 Forbidden" } else { "401 Unauthorized" };
                return Answer::text(
                    status,
                    "x-error-code: GatedRepo\r\nx-error-message: gated\r\n",
                    "",
                );
            }
            let Some(kept) = repo.files.get(file) else { return Answer::missing("EntryNotFound") };
            let headers = format!(
                "location: http://{}/{id}/{file}?signature=1\r\nx-repo-commit: {}\r\n\
                 x-linked-etag: \"{}\"\r\nx-linked-size: {}\r\netag: \"pointer\"\r\n",
                self.state.files,
                repo.commit,
                kept.sha256,
                kept.bytes.len(),
            );
            Answer::text("302 Found", &headers, "")
        })
    }

    /// The file server's answer.
    fn file(&self, seen: &Seen) -> Answer {
        let path = seen.path.split('?').next().unwrap_or_default().trim_start_matches('/');
        let mut parts = path.splitn(3, '/');
        let id =
            format!("{}/{}", parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let file = unescaped(parts.next().unwrap_or_default());
        let repos = lock(&self.state.repos);
        let bytes =
            repos.get(&id).and_then(|repo| repo.files.get(&file)).map(|kept| kept.bytes.clone());
        drop(repos);
        let Some(bytes) = bytes else { return Answer::text("404 Not Found", "", "") };
        let status = self.take_fault(|fault| match fault {
            Fault::FileStatus(status) => Some(*status),
            _ => None,
        });
        if let Some(status) = status {
            return Answer::text(&format!("{status} no"), "", "");
        }
        let damaged = self.take_fault(|fault| (*fault == Fault::Damaged).then_some(())).is_some();
        let no_ranges =
            self.take_fault(|fault| (*fault == Fault::NoRanges).then_some(())).is_some();
        let size = bytes.len();
        let range =
            seen.range.as_deref().filter(|_| !no_ranges).and_then(|range| span(range, size));
        let mut answer = match range {
            Some((from, to)) => {
                let mut answer = Answer::text("206 Partial Content", "", "");
                answer.headers = format!("content-range: bytes {from}-{}/{size}\r\n", to - 1);
                answer.body = bytes[from..to].to_vec();
                answer
            }
            None => Answer { body: bytes.to_vec(), ..Answer::text("200 OK", "", "") },
        };
        if let Some(last) = answer.body.last_mut().filter(|_| damaged) {
            *last ^= 1;
        }
        answer.length = answer.body.len();
        answer.headers.push_str("accept-ranges: bytes\r\n");
        let cut = self.take_fault(|fault| match fault {
            Fault::CutAfter(bytes) => Some(*bytes),
            _ => None,
        });
        answer.body.truncate(cut.unwrap_or(usize::MAX));
        answer
    }
}

struct Answer {
    status: String,
    headers: String,
    body: Vec<u8>,
    /// As announced.
    length: usize,
}

impl Answer {
    fn text(status: &str, headers: &str, body: &str) -> Answer {
        let body = body.as_bytes().to_vec();
        Answer { status: status.to_owned(), headers: headers.to_owned(), length: body.len(), body }
    }

    fn json(body: &str) -> Answer {
        Answer::text("200 OK", "content-type: application/json\r\n", body)
    }

    fn missing(code: &str) -> Answer {
        Answer::text("404 Not Found", &format!("x-error-code: {code}\r\n"), "")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_request(stream: &TcpStream, by_files: bool) -> Option<Seen> {
    let mut lines = BufReader::new(stream.take(64 << 10)).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut seen = Seen { by_files, method, path, authorization: None, range: None };
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else { return Some(seen) };
        let value = value.trim().to_owned();
        match name.to_ascii_lowercase().as_str() {
            "authorization" => seen.authorization = Some(value),
            "range" => seen.range = Some(value),
            _ => {}
        }
    }
    None
}

/// `from..to` of a `Range` header.
fn span(range: &str, size: usize) -> Option<(usize, usize)> {
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    let from: usize = from.parse().ok()?;
    let to = to.parse().map_or(size, |last: usize| (last + 1).min(size));
    (from < to).then_some((from, to))
}

/// A field of a query.
fn field(query: &str, name: &str) -> Option<String> {
    let fields = query.split('&').filter_map(|field| field.split_once('='));
    fields.into_iter().find(|(key, _)| *key == name).map(|(_, value)| unescaped(value))
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => (bytes.push(byte), rest = &tail[2..]).1,
            None => (bytes.push(*first), rest = tail).1,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn info(id: &str, repo: &Kept) -> String {
    let card = repo.licence.as_ref().map(|licence| format!("{{\"license\": {licence:?}}}"));
    let files: Vec<String> =
        repo.files.keys().map(|path| format!("{{\"rfilename\": {path:?}}}")).collect();
    format!(
        "{{\"id\": {id:?}, \"sha\": {:?}, \"gated\": {}, \"cardData\": {}, \"tags\": [\"gguf\"], \"siblings\": [{}]}}",
        repo.commit,
        if repo.token.is_some() { "\"auto\"" } else { "false" },
        card.unwrap_or_else(|| "null".into()),
        files.join(", "),
    )
}

/// GGUF files are in LFS, others in Git.
fn entry(path: &str, file: &KeptFile) -> String {
    let KeptFile { bytes, sha256, git: oid } = file;
    let size = bytes.len();
    let lfs = match path.ends_with(".gguf") {
        true => {
            format!(", \"lfs\": {{\"oid\": {sha256:?}, \"size\": {size}, \"pointerSize\": 134}}")
        }
        false => String::new(),
    };
    format!("{{\"type\": \"file\", \"path\": {path:?}, \"oid\": {oid:?}, \"size\": {size}{lfs}}}")
}

fn scope_files(repo: &Kept) -> String {
    let file = |(path, file): (&String, &KeptFile)| {
        let (sha256, size) = (&file.sha256, file.bytes.len());
        format!(
            "{{\"Path\": {path:?}, \"Size\": {size}, \"Sha256\": {sha256:?}, \"Type\": \"blob\"}}"
        )
    };
    let files: Vec<String> = repo.files.iter().map(file).collect();
    format!("{{\"Code\": 200, \"Data\": {{\"Files\": [{}]}}}}", files.join(", "))
}
