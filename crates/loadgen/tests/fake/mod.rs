//! A scripted server: HTTP/1.1 by hand, so that it can do everything wrong.

use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Path.
    pub(crate) path: String,
    /// Head, in lower case.
    pub(crate) head: String,
    /// Body; null if there is none.
    pub(crate) body: Value,
}

/// What the server does next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Waits.
    Wait(Duration),
    /// Waits until so many requests have come to such a step in all.
    Meet(u32),
    /// Does nothing for ever.
    Hang,
    /// Closes the connection.
    Close,
}

type Script = dyn Fn(&Seen) -> Vec<Step> + Send + Sync;

/// A running server.
pub(crate) struct Fake {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Requests that are being answered, and the most there ever were.
    pub(crate) busy: Arc<Mutex<(usize, usize)>>,
}

impl Fake {
    /// Starts one that answers `/v1/models` by itself and everything else by `script`.
    pub(crate) async fn start(script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let fake = Fake { port, seen: Arc::default(), busy: Arc::default() };
        let (seen, busy, script): (_, _, Arc<Script>) =
            (fake.seen.clone(), fake.busy.clone(), Arc::new(script));
        let met = Arc::new((Mutex::new(0), Semaphore::new(0)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = (seen.clone(), busy.clone(), script.clone(), met.clone());
                tokio::spawn(serve(stream, shared));
            }
        });
        fake
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Requests for completions so far.
    pub(crate) fn completions(&self) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|s| s.path.ends_with("completions")).cloned().collect()
    }
}

type Shared =
    (Arc<Mutex<Vec<Seen>>>, Arc<Mutex<(usize, usize)>>, Arc<Script>, Arc<(Mutex<u32>, Semaphore)>);

async fn serve(mut stream: TcpStream, (seen, busy, script, met): Shared) {
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await {
        if request.path == "/v1/models" {
            let models = json!({"object": "list", "data": [{"id": "fake"}]});
            let Ok(()) = stream.write_all(&whole(200, &models.to_string())).await else { return };
            continue;
        }
        seen.lock().unwrap().push(request.clone());
        {
            let mut busy = busy.lock().unwrap();
            busy.0 += 1;
            busy.1 = busy.1.max(busy.0);
        }
        let mut open = true;
        for step in script(&request) {
            match step {
                Step::Send(bytes) => open &= stream.write_all(&bytes).await.is_ok(),
                Step::Wait(time) => tokio::time::sleep(time).await,
                Step::Meet(n) => {
                    let all = {
                        let mut count = met.0.lock().unwrap();
                        *count += 1;
                        *count >= n
                    };
                    if all {
                        met.1.add_permits(n as usize);
                    }
                    met.1.acquire().await.expect("never closed").forget();
                }
                Step::Hang => std::future::pending().await,
                Step::Close => open = false,
            }
            if !open {
                break;
            }
        }
        busy.lock().unwrap().0 -= 1;
        if !open {
            return;
        }
    }
}

/// The next request; none at the end.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    loop {
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_lowercase();
            let length = head.lines().find_map(|l| l.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |l| l.trim().parse().expect("a number"));
            if buffer.len() >= end + 4 + length {
                let body = buffer[end + 4..end + 4 + length].to_vec();
                buffer.drain(..end + 4 + length);
                let path = head.split(' ').nth(1)?.to_owned();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                return Some(Seen { path, head, body });
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// An answer in one piece.
pub(crate) fn whole(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The head of a stream.
pub(crate) fn stream_head() -> Step {
    Step::Send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec(),
    )
}

/// A piece of a stream, as one chunk.
pub(crate) fn piece(text: &str) -> Step {
    Step::Send(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
}

/// The end of a stream.
pub(crate) fn stream_end() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}

/// An event with a token.
pub(crate) fn token(path: &str) -> Step {
    let choice = match path.contains("chat") {
        true => json!({"index": 0, "delta": {"content": " a"}, "finish_reason": null}),
        false => json!({"index": 0, "text": " a", "finish_reason": null}),
    };
    piece(&format!("data: {}\n\n", json!({"choices": [choice], "usage": null})))
}

/// The events that end an answer.
pub(crate) fn ending(input: usize, output: usize) -> Step {
    let last =
        json!({"choices": [{"index": 0, "text": "", "delta": {}, "finish_reason": "length"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": input,
        "completion_tokens": output, "prompt_tokens_details": {"cached_tokens": 0}}});
    piece(&format!("data: {last}\n\ndata: {usage}\n\ndata: [DONE]\n\n"))
}

/// Tokens of a text, as this server counts: one for the beginning, one for every word, two for words
/// of more than eight letters.
pub(crate) fn tokens(text: &str) -> usize {
    1 + text.split_whitespace().map(|word| if word.len() > 8 { 2 } else { 1 }).sum::<usize>()
}

/// The text of a request; a chat's template adds five tokens.
pub(crate) fn input(seen: &Seen) -> usize {
    match seen.body["prompt"].as_str() {
        Some(text) => tokens(text),
        None => tokens(seen.body["messages"][0]["content"].as_str().unwrap()) + 5,
    }
}

/// Answers a request as it should be, with these steps before the first token and between tokens.
pub(crate) fn answer(seen: &Seen, before: Vec<Step>, between: Vec<Step>) -> Vec<Step> {
    if seen.path == "/tokenize" {
        return vec![Step::Send(whole(404, "{}"))];
    }
    let output = seen.body["max_tokens"].as_u64().unwrap() as usize;
    let mut steps = vec![stream_head()];
    steps.extend(before);
    for i in 0..output {
        if i > 0 {
            steps.extend(between.clone());
        }
        steps.push(token(&seen.path));
    }
    steps.extend([ending(input(seen), output), stream_end()]);
    steps
}
