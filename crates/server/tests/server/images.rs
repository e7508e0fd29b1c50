//! Images in the requests of all protocols.

use crate::support::{Direct, NAME, options, seeing, seeing_with};
use arclight_server::{Media, Options};
use axum::http::StatusCode;
use base64::Engine as _;
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A picture of one colour and one edge, as PNG in base64.
fn png(colour: u8) -> String {
    // Written by hand: a header, one row of filtered bytes for each line, stored without compression.
    let (width, height) = (24u32, 16u32);
    let mut raw = Vec::new();
    for y in 0..height {
        raw.push(0);
        for x in 0..width {
            raw.extend([colour, (x * 10) as u8, if y > 8 { 255 } else { 0 }]);
        }
    }
    let mut data = vec![0x78, 0x01, 0x01];
    data.extend((raw.len() as u16).to_le_bytes());
    data.extend((!(raw.len() as u16)).to_le_bytes());
    data.extend(&raw);
    let (a, b) = raw.iter().fold((1u32, 0u32), |(a, b), &x| {
        let a = (a + u32::from(x)) % 65521;
        (a, (b + a) % 65521)
    });
    data.extend((b << 16 | a).to_be_bytes());
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8; 4], body: &[u8]| {
        file.extend((body.len() as u32).to_be_bytes());
        let start = file.len();
        file.extend(kind);
        file.extend(body);
        let crc = file[start..].iter().fold(u32::MAX, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 }
            })
        });
        file.extend((!crc).to_be_bytes());
    };
    let mut head = [width.to_be_bytes(), height.to_be_bytes()].concat();
    head.extend([8, 2, 0, 0, 0]);
    chunk(b"IHDR", &head);
    chunk(b"IDAT", &data);
    chunk(b"IEND", &[]);
    base64::engine::general_purpose::STANDARD.encode(file)
}

fn openai(url: &str) -> Json {
    json!({
        "model": NAME, "temperature": 0, "max_tokens": 8,
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "What is "},
            {"type": "image_url", "image_url": {"url": url, "detail": "high"}},
            {"type": "text", "text": "this?"},
        ]}],
    })
}

fn input(url: &str) -> Json {
    json!({"type": "input_image", "image_url": url})
}

const RESPONSES: &str = "/v1/responses";

fn responses(content: Json) -> Json {
    json!({
        "model": NAME, "temperature": 0, "max_output_tokens": 8,
        "input": [{"role": "user", "content": content}],
    })
}

fn data(colour: u8) -> String {
    format!("data:image/png;base64,{}", png(colour))
}

async fn posted(server: &Direct, path: &str, body: &Json) -> Json {
    let reply = server.post(path, body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    reply.json()
}

#[tokio::test]
async fn an_image_is_part_of_the_prompt_and_found_again() {
    let server = Direct::with(options(), seeing(2));
    let path = "/v1/chat/completions";
    let first = posted(&server, path, &openai(&data(10))).await;
    let text = |answer: &Json| answer["choices"][0]["message"]["content"].clone();
    let usage = |answer: &Json, name: &str| answer["usage"][name].as_u64().unwrap();
    // 24 by 16 pixels become 32 by 22, then two by two squares: four outputs, and one for the whole.
    let bare = json!([{"role": "user", "content": "What is this?"}]);
    let mut without = openai("");
    without["messages"] = bare;
    let without = posted(&server, path, &without).await;
    assert!(usage(&first, "prompt_tokens") > usage(&without, "prompt_tokens") + 5);
    let again = posted(&server, path, &openai(&data(10))).await;
    assert_eq!(text(&again), text(&first));
    let cached = |answer: &Json| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert_eq!(cached(&again).unwrap() + 1, usage(&again, "prompt_tokens"));
    // Another picture is another prompt from its first output on.
    let other = posted(&server, path, &openai(&data(200))).await;
    assert_eq!(usage(&other, "prompt_tokens"), usage(&first, "prompt_tokens"));
    assert!(cached(&other).unwrap() < usage(&other, "prompt_tokens") / 2, "{other}");
}

/// Rows that attend to each other are computed whole by a server that has taken no step yet: before, it never answered.
#[tokio::test]
async fn an_image_that_cannot_be_cut_is_answered_by_a_fresh_server() {
    let server = Direct::with(options(), seeing_with(testkit::whole_encoder(256), 2));
    let body = openai(&data(10));
    let answer = posted(&server, "/v1/chat/completions", &body);
    let answer = tokio::time::timeout(Duration::from_secs(60), answer).await.expect("an answer");
    let usage = answer["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(
        usage > testkit::WHOLE as u64 && answer["choices"][0]["message"]["content"].is_string()
    );
    let metrics = server.get("/metrics").await.text;
    assert!(
        metrics.contains("\narclight:empty_steps_total{replica=\"0\",model_name=\"demo\"} 0"),
        "{metrics}"
    );
}

/// The same image gives the same answer, whoever brings it.
#[tokio::test]
async fn all_protocols_take_images() {
    let server = Direct::with(options(), seeing(1));
    let mut body = openai(&data(90));
    body["messages"][0]["content"].as_array_mut().unwrap().remove(0);
    let openai = posted(&server, "/v1/chat/completions", &body).await;
    let want = openai["choices"][0]["message"]["content"].clone();
    let anthropic = json!({
        "model": NAME, "temperature": 0, "max_tokens": 8,
        "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png(90)}},
            {"type": "text", "text": "this?"},
        ]}],
    });
    let got = posted(&server, "/v1/messages", &anthropic).await;
    assert_eq!(got["content"][0]["text"], want);
    let tokens = posted(&server, "/v1/messages/count_tokens", &anthropic).await;
    assert_eq!(tokens["input_tokens"], openai["usage"]["prompt_tokens"]);
    let responses = responses(json!([
        {"type": "input_image", "image_url": data(90), "detail": "auto"},
        {"type": "input_text", "text": "this?"},
    ]));
    let got = posted(&server, RESPONSES, &responses).await;
    assert_eq!(got["output"][0]["content"][0]["text"], want);
    assert_eq!(got["usage"]["input_tokens"], openai["usage"]["prompt_tokens"]);
    let tokens = posted(&server, "/v1/responses/input_tokens", &responses).await;
    assert_eq!(tokens["input_tokens"], openai["usage"]["prompt_tokens"]);
    let generation = json!({"temperature": 0, "num_predict": 8});
    let chat = json!({
        "model": NAME, "stream": false, "options": generation,
        "messages": [{"role": "user", "content": "this?", "images": [png(90)]}],
    });
    let got = posted(&server, "/api/chat", &chat).await;
    assert_eq!(got["message"]["content"], want);
    let generate = json!({
        "model": NAME, "stream": false, "options": generation, "prompt": "this?",
        "images": [png(90)],
    });
    let got = posted(&server, "/api/generate", &generate).await;
    assert_eq!(got["response"], want);
    assert!(got.get("context").is_none(), "tokens do not tell of images");
}

/// A response that goes on from one with an image has that image before it.
#[tokio::test]
async fn kept_responses_have_their_images() {
    let server = Direct::with(options(), seeing(1));
    let image = |colour| input(&data(colour));
    let first = responses(json!([image(40), {"type": "input_text", "text": "this?"}]));
    let first = posted(&server, RESPONSES, &first).await;
    let said = &first["output"][0]["content"][0]["text"];
    let mut next = responses(json!("And now?"));
    next["previous_response_id"] = first["id"].clone();
    let next = posted(&server, RESPONSES, &next).await;
    let whole = |colour| {
        let mut whole = responses(json!([image(colour), {"type": "input_text", "text": "this?"}]));
        let input = whole["input"].as_array_mut().unwrap();
        input.push(json!({"role": "assistant", "content": said}));
        input.push(json!({"role": "user", "content": "And now?"}));
        whole
    };
    let same = posted(&server, RESPONSES, &whole(40)).await;
    assert_eq!(next["usage"]["input_tokens"], same["usage"]["input_tokens"]);
    assert_eq!(next["output"][0]["content"], same["output"][0]["content"]);
    let cached = |answer: &Json| {
        let tokens = &answer["usage"]["input_tokens_details"]["cached_tokens"];
        tokens.as_u64().unwrap_or_else(|| panic!("{answer}"))
    };
    assert_eq!(cached(&same) + 1, same["usage"]["input_tokens"].as_u64().unwrap());
    let other = posted(&server, RESPONSES, &whole(200)).await;
    assert!(cached(&other) < cached(&same) / 2, "{other}");
    let items = format!("{RESPONSES}/{}/input_items", first["id"].as_str().unwrap());
    let items = server.get(&items).await.json();
    assert_eq!(items["data"][0]["content"][0], image(40));
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_with_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(png(1)).unwrap();
    std::fs::write(folder.path().join("a.png"), bytes).unwrap();
    let media = Media {
        folder: Some(folder.path().to_owned()),
        pixels: 384,
        images: 2,
        ..Media::default()
    };
    let server = Direct::with(Options { media, ..options() }, seeing(1));
    let path = "/v1/chat/completions";
    posted(&server, path, &openai("file://a.png")).await;
    for (url, says) in [
        ("https://example.com/a.png", "fetches nothing"),
        ("file://../a.png", "no such file"),
        ("data:image/png;base64,aGk=", "no image"),
        ("data:image/png;base64,?", "not in base64"),
    ] {
        let reply = server.post(path, &openai(url)).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{url}: {}", reply.text);
        let error = &reply.json()["error"];
        assert_eq!(error["param"], "messages[0].content[1].image_url", "{url}");
        assert!(error["message"].as_str().unwrap().contains(says), "{url}: {error}");
    }
    let at = "input[0].content[0].image_url";
    posted(&server, RESPONSES, &responses(json!([input("file://a.png")]))).await;
    for (content, param, says) in [
        (json!([input("https://example.com/a.png")]), at, "fetches nothing"),
        (json!([input("file://../a.png")]), at, "no such file"),
        (json!([input("data:image/png;base64,aGk=")]), at, "no image"),
        (json!([input("data:image/png;base64,?")]), at, "not in base64"),
        (
            json!([{"type": "input_image", "file_id": "file-1"}]),
            "input[0].content[0].file_id",
            "image_url",
        ),
    ] {
        let reply = server.post(RESPONSES, &responses(content)).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{says}: {}", reply.text);
        let error = &reply.json()["error"];
        assert_eq!(error["param"], param, "{says}");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    let several = responses(json!(vec![input(&data(1)); 3]));
    let reply = server.post(RESPONSES, &several).await;
    assert!(reply.text.contains("3 images, and 2 are allowed"), "{}", reply.text);
    // The mark of an image in a text is text.
    let mut spelt = openai(&data(1));
    spelt["messages"][0]["content"][0]["text"] = "<image>".into();
    let reply = server.post(path, &spelt).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let mut many = openai(&data(1));
    many["messages"] = json!(vec![many["messages"][0].clone(); 3]);
    let reply = server.post(path, &many).await;
    assert!(reply.text.contains("3 images, and 2 are allowed"), "{}", reply.text);

    let small = Media { pixels: 383, ..Media::default() };
    let server = Direct::with(Options { media: small, ..options() }, seeing(1));
    let reply = server.post(path, &openai(&data(1))).await;
    assert!(reply.text.contains("24 by 16 pixels"), "{}", reply.text);
    let blind = Direct::new(1);
    for (path, body) in [(path, openai(&data(1))), (RESPONSES, responses(json!([input(&data(1))])))]
    {
        let reply = blind.post(path, &body).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        assert!(reply.text.contains("sees no images"), "{}", reply.text);
    }
}

/// All images of a request share a limit, which is checked before an image is decoded.
#[tokio::test]
async fn images_of_a_request_have_so_many_pixels_together() {
    let media = Media { all_pixels: 2 * 24 * 16 + 1, ..Media::default() };
    let server = Direct::with(Options { media, ..options() }, seeing(1));
    let of = |count: usize| responses(json!(vec![input(&data(1)); count]));
    posted(&server, RESPONSES, &of(2)).await;
    let reply = server.post(RESPONSES, &of(3)).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text);
    let error = &reply.json()["error"];
    assert_eq!(error["param"], "input[0].content[2].image_url");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("of the 769") && message.contains("together 1 are left"), "{message}");
    // The next request has a limit of its own.
    posted(&server, RESPONSES, &of(2)).await;
}

/// Counts the images that are decoded on this thread's behalf.
#[derive(Clone, Default)]
struct Decoded(Arc<AtomicUsize>);

impl Subscriber for Decoded {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.target() == "arclight_server::normal::images"
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, SeqCst);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn no_image_is_decoded_for_a_client_that_has_left() {
    let decoded = Decoded::default();
    // With a single dispatcher, tracing asks the default dispatcher of the thread on which an event first occurs, and
    // caches the answer. The threads of other tests have no default.
    let _second = tracing::Dispatch::new(Decoded::default());
    let _guard = tracing::subscriber::set_default(decoded.clone());
    let count = || decoded.0.load(SeqCst);
    let server = Direct::with(options(), seeing(1));
    let several = responses(json!(vec![input(&data(1)); 6]));
    let mut begun = 0;
    for tries in 1.. {
        let before = count();
        let mut request = std::pin::pin!(server.post(RESPONSES, &several));
        while count() == before {
            tokio::select! {
                biased;
                reply = &mut request => panic!("{reply:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        begun = count();
        // Mostly one. A small image may be decoded within the poll that began it, on a busy machine even all of them:
        // the client has to leave earlier then.
        if begun - before < 6 {
            break;
        }
        assert!(tries < 20, "all images are decoded within a poll");
    }
    // The turn comes back when that image is done.
    posted(&server, RESPONSES, &responses(json!([input(&data(2))]))).await;
    assert_eq!(count(), begun + 1);
}

#[tokio::test]
async fn who_sees_says_so() {
    let server = Direct::with(options(), seeing(1));
    let shown = server.post("/api/show", &json!({"model": NAME})).await.json();
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("vision")), "{shown}");
    let shown = Direct::new(1).post("/api/show", &json!({"model": NAME})).await.json();
    assert!(!shown["capabilities"].as_array().unwrap().contains(&json!("vision")), "{shown}");
}
