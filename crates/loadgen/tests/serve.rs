//! The generator against a scripted server. Nothing here depends on how fast the machine is: delays
//! are lower bounds, and who waits for whom is settled by the server's script.

mod fake;

use arclight_loadgen::{
    Arrivals, Ask, Client, Dialect, Effect, Endpoint, Figures, Intruder, Load, Options, Outcome,
    Prompt, Reason, Run, Server, Slo,
};
use fake::{Fake, Seen, Step, answer, ending, piece, stream_end, stream_head, token, whole};
use serde_json::{Map, json};
use std::sync::Arc;
use std::time::Duration;

fn options() -> Options {
    Options {
        endpoint: Endpoint::Completions,
        model: None,
        allow_eos: false,
        extra: Map::new(),
        timeout: Duration::from_secs(60),
    }
}

async fn find(fake: &Fake, options: Options) -> Arc<Server> {
    let client = Client::new(&fake.url(), Some("secret")).unwrap();
    Arc::new(Server::find(client, options).await.unwrap())
}

fn asks(n: usize, input: usize, output: usize) -> Vec<Ask> {
    vec![Ask { prompt: Prompt::Tokens(input), output }; n]
}

async fn run(server: &Arc<Server>, load: Load, asks: &[Ask], intruder: Option<Intruder>) -> Run {
    let prepared = server.prepare(load, asks, 0, intruder, (1, 0)).await;
    server.run(prepared, &mut |_| {}, &|| false).await.unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn poisson(rate: f64) -> Load {
    Load::Open(Arrivals::new(rate, 1.0).unwrap())
}

/// Whether this is one of the requests that are measured, and none of those that find out.
fn is_measured(seen: &Seen) -> bool {
    seen.path.ends_with("completions") && seen.body["max_tokens"].as_u64() > Some(2)
}

#[test]
fn arrivals_wait_for_nobody() {
    block_on(async {
        // No token for anybody until all thirty have come.
        let fake = Fake::start(|seen| {
            let before = if is_measured(seen) { vec![Step::Meet(30)] } else { vec![] };
            answer(seen, before, vec![])
        })
        .await;
        let server = find(&fake, options()).await;
        let run = run(&server, poisson(500.0), &asks(30, 9, 3), None).await;
        assert!(run.records.iter().all(|r| r.is_done()));
        assert_eq!(fake.busy.lock().unwrap().1, 30);
        let last = run.records.iter().map(|r| r.sent).fold(0.0, f64::max);
        for (record, at) in run.records.iter().zip(Arrivals::new(500.0, 1.0).unwrap().times(30, 1))
        {
            assert!(record.tokens[0] > last, "a token came before everything was sent");
            assert_eq!(record.scheduled, at.as_secs_f64());
            assert!(record.lag() >= 0.0 && record.ttft() >= record.ttft_sent());
        }
    });
}

#[test]
fn streams_are_as_many_as_asked_for_and_no_more() {
    block_on(async {
        // Of twelve requests each four meet: with fewer streams nothing would ever be answered.
        let fake = Fake::start(|seen| {
            let before = if is_measured(seen) { vec![Step::Meet(4)] } else { vec![] };
            answer(seen, before, vec![])
        })
        .await;
        let server = find(&fake, options()).await;
        let run = run(&server, Load::Closed(4), &asks(12, 9, 3), None).await;
        assert_eq!(run.records.iter().filter(|r| r.is_done()).count(), 12);
        assert_eq!(fake.busy.lock().unwrap().1, 4);
        assert!(run.records.iter().all(|r| r.lag() == 0.0), "who sends at will is never late");
        let figures = Figures::of(&run);
        assert_eq!((figures.completed, figures.offered_per_second), (12, None));
    });
}

#[test]
fn planted_delays_show_in_the_figures() {
    block_on(async {
        let wait = |ms| vec![Step::Wait(Duration::from_millis(ms))];
        let fake = Fake::start(move |seen| answer(seen, wait(80), wait(20))).await;
        let server = find(&fake, Options { endpoint: Endpoint::Chat, ..options() }).await;
        let run = run(&server, Load::Closed(1), &asks(3, 20, 4), None).await;
        let figures = Figures::of(&run);
        // The server's clock is the client's; a timer may fire at most a millisecond early.
        assert!(figures.ttft_ms.unwrap().p50 >= 79.0);
        assert!(figures.tpot_ms.unwrap().p50 >= 19.0);
        assert!(figures.e2e_ms.unwrap().p50 >= 139.0);
        let itl = figures.itl_ms.unwrap();
        assert_eq!(itl.count, 3 * 3);
        for record in &run.records {
            assert_eq!(record.tokens.len(), 4);
            assert_eq!((record.output, record.cached), (Some(4), Some(0)));
            // Twenty with the template of five and the one before the text, give or take words
            // of two tokens.
            assert_eq!(record.input_asked, Some(20));
            assert!(record.input.unwrap().abs_diff(20) <= 5, "{record:?}");
        }
        assert_eq!((figures.output_mean, figures.short), (Some(4.0), 0));
        assert!(
            Slo::new(79.0, 1.0, 90.0).unwrap().attainment(&run.records, 1.0).unwrap().ttft < 0.1
        );
        let sent = &fake.completions()[4];
        assert!(sent.head.contains("authorization: bearer secret"));
        assert_eq!((&sent.body["model"], &sent.body["stream"]), (&json!("fake"), &json!(true)));
        assert_eq!((&sent.body["min_tokens"], &sent.body["ignore_eos"]), (&json!(4), &json!(true)));
    });
}

#[test]
fn every_kind_of_failure_has_its_name() {
    const KINDS: [&str; 10] =
        ["good", "busy", "html", "hang", "silent", "cut", "error", "nonsense", "empty", "whole"];
    block_on(async {
        let fake = Fake::start(|seen| {
            let text = seen.body["prompt"].as_str().unwrap_or_default().to_owned();
            let error = "data: {\"error\": {\"message\": \"out of pages\"}}\n\n";
            match text.as_str() {
                "busy" => {
                    vec![Step::Send(whole(429, "{\"error\":{\"message\":\"queue is full\"}}"))]
                }
                "html" => vec![Step::Send(whole(502, "<h1>Bad Gateway</h1>"))],
                "hang" => vec![Step::Hang],
                "silent" => vec![Step::Close],
                "cut" => vec![stream_head(), token("completions"), stream_end()],
                "error" => vec![stream_head(), token("completions"), piece(error), stream_end()],
                "nonsense" => vec![stream_head(), piece("data: no json\n\n"), stream_end()],
                "empty" => vec![stream_head(), ending(1, 0), stream_end()],
                "whole" => vec![Step::Send(whole(200, "{\"choices\":[{\"text\":\"a\"}]}"))],
                _ => answer(seen, vec![], vec![]),
            }
        })
        .await;
        let options = Options { timeout: Duration::from_millis(400), ..options() };
        let server = find(&fake, options).await;
        let all: Vec<Ask> =
            KINDS.map(|kind| Ask { prompt: Prompt::Text(kind.to_owned()), output: 3 }).into();
        let run = run(&server, Load::Closed(3), &all, None).await;
        let reasons: Vec<Option<Reason>> = run
            .records
            .iter()
            .map(|r| match &r.outcome {
                Outcome::Failed(failure) => Some(failure.reason),
                _ => None,
            })
            .collect();
        use Reason::*;
        let expected = [
            None,
            Some(Status(429)),
            Some(Status(502)),
            Some(Timeout),
            Some(Broken),
            Some(CutOff),
            Some(ErrorEvent),
            Some(Malformed),
            Some(Empty),
            Some(Malformed),
        ];
        assert_eq!(reasons, expected, "{:?}", run.records);
        let figures = Figures::of(&run);
        assert_eq!((figures.completed, figures.failed), (1, 9));
        let of = |reason: &str| figures.failures.iter().find(|f| f.reason == reason).unwrap();
        assert_eq!((of("HTTP 429").count, of("HTTP 429").example.as_str()), (1, "queue is full"));
        assert_eq!(of("malformed answer").count, 2);
        assert_eq!(of("error in the stream").example, "out of pages");
        assert!(of("timeout").example.contains("0.4 s"), "{}", of("timeout").example);
    });
}

#[test]
fn a_stream_may_be_cut_anywhere() {
    block_on(async {
        // A byte per chunk, CRLF, pings, events of several lines, and no [DONE].
        let fake = Fake::start(|seen| {
            if !is_measured(seen) {
                return answer(seen, vec![], vec![]);
            }
            let events = ": ping\r\n\r\ndata: {\"choices\": [{\"text\": \"ä\",\r\ndata:  \
                \"finish_reason\": null}]}\r\n\r\n: ping\r\n\r\ndata: {\"choices\": [{\"text\": \
                \"b\", \"finish_reason\": \"stop\"}], \"usage\": {\"prompt_tokens\": 4, \
                \"completion_tokens\": 2}}\r\n\r\n";
            let byte = |b: &u8| Step::Send([b"1\r\n", &[*b][..], b"\r\n"].concat());
            let mut steps = vec![stream_head()];
            steps.extend(events.as_bytes().iter().map(byte));
            steps.push(stream_end());
            steps
        })
        .await;
        let server = find(&fake, options()).await;
        let run = run(&server, Load::Closed(1), &asks(2, 4, 5), None).await;
        for record in &run.records {
            assert!(record.is_done(), "{record:?}");
            assert_eq!((record.tokens.len(), record.output, record.cached), (2, Some(2), None));
        }
        assert_eq!(Figures::of(&run).short, 2);
    });
}

#[test]
fn prompts_have_the_length_that_was_asked_for() {
    block_on(async {
        // The forms of `/tokenize` that there are; none of them, but usage.
        type Count = fn(&Seen) -> Option<Vec<u8>>;
        let llama: Count = |seen| {
            let text = seen.body["content"].as_str()?;
            let special = seen.body["add_special"].as_bool().unwrap_or(false);
            let n = fake::tokens(text) - usize::from(!special);
            Some(whole(200, &json!({"tokens": vec![7; n]}).to_string()))
        };
        let vllm: Count = |seen| {
            // One that refuses what it does not know.
            if seen.body.get("content").is_some() {
                return Some(whole(400, "{}"));
            }
            let special = seen.body["add_special_tokens"].as_bool().unwrap();
            let n = fake::tokens(seen.body["prompt"].as_str()?) - usize::from(!special);
            Some(whole(200, &json!({"count": n, "tokens": []}).to_string()))
        };
        let none: Count = |_| None;
        for (count, way) in [(llama, "tokenize"), (vllm, "tokenize"), (none, "usage")] {
            for endpoint in [Endpoint::Completions, Endpoint::Chat] {
                let fake = Fake::start(move |seen| match seen.path.as_str() {
                    "/tokenize" => {
                        vec![Step::Send(count(seen).unwrap_or_else(|| whole(404, "{}")))]
                    }
                    _ => answer(seen, vec![], vec![]),
                })
                .await;
                let server = find(&fake, Options { endpoint, ..options() }).await;
                assert_eq!(server.counts_by(), way);
                let lengths = [7, 8, 9, 30, 101, 502, 2003];
                let all: Vec<Ask> =
                    lengths.map(|n| Ask { prompt: Prompt::Tokens(n), output: 3 }).into();
                let run = run(&server, Load::Closed(2), &all, None).await;
                for (record, n) in run.records.iter().zip(lengths) {
                    let counted = record.input.unwrap();
                    assert_eq!(record.input_asked, Some(n));
                    match way {
                        "tokenize" => assert_eq!(counted, n, "{endpoint}"),
                        // A tenth of the words have two tokens: the mean is right within 5 %,
                        // and a few tokens of luck.
                        _ => assert!(
                            counted.abs_diff(n) as f64 <= 6.0 + 0.05 * n as f64,
                            "{endpoint}: {counted} for {n}"
                        ),
                    }
                }
            }
        }
    });
}

#[test]
fn fields_that_a_server_does_not_know_are_left_out() {
    block_on(async {
        let strict = |refused: &'static [&'static str]| {
            move |seen: &Seen| match refused.iter().find(|f| seen.body.get(**f).is_some()) {
                Some(field) => {
                    let words = json!({"error": {"message": format!("unknown field {field}")}});
                    vec![Step::Send(whole(400, &words.to_string()))]
                }
                None => answer(seen, vec![], vec![]),
            }
        };
        for (refused, exact_length, usage) in [
            (&[][..], true, true),
            (&["min_tokens"], false, true),
            (&["ignore_eos", "stream_options"], false, false),
        ] {
            let fake = Fake::start(strict(refused)).await;
            let server = find(&fake, options()).await;
            assert_eq!(server.dialect(), Dialect { exact_length, usage });
            let run = run(&server, Load::Closed(1), &asks(1, 5, 3), None).await;
            assert!(run.records[0].is_done());
        }
        let fake = Fake::start(strict(&["prompt"])).await;
        let client = Client::new(&fake.url(), None).unwrap();
        let e = Server::find(client, options()).await.unwrap_err();
        assert!(e.to_string().contains("HTTP 400: unknown field prompt"), "{e}");
        assert!(!e.is_usage());
    });
}

#[test]
fn a_server_that_is_not_there_is_named() {
    block_on(async {
        let fake = Fake::start(|_| vec![]).await;
        // A port that nobody listens on: bound and given back.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("http://127.0.0.1:{port}");
        let e = Server::find(Client::new(&url, None).unwrap(), options()).await.unwrap_err();
        let text = e.to_string();
        assert!(text.contains(&url) && text.contains("connection refused"), "{text}");
        drop(fake);
    });
}

#[test]
fn a_run_that_is_ended_reports_what_was_measured() {
    block_on(async {
        for load in [poisson(300.0), Load::Closed(2)] {
            // The third and later never end.
            let fake = Fake::start(|seen| {
                let text = seen.body["prompt"].as_str().unwrap_or_default();
                let before = if text.starts_with("hang") { vec![Step::Hang] } else { vec![] };
                answer(seen, before, vec![])
            })
            .await;
            let server = find(&fake, options()).await;
            let text = |text: &str| Ask { prompt: Prompt::Text(text.to_owned()), output: 3 };
            let mut all = vec![text("good"), text("good")];
            all.extend(vec![text("hang"); 3]);
            let prepared = server.prepare(load, &all, 0, None, (1, 0)).await;
            let answered = std::cell::Cell::new(0);
            let run = server
                .run(
                    prepared,
                    &mut |r| answered.set(answered.get() + usize::from(r.is_done())),
                    &|| answered.get() == 2 && fake.completions().len() >= 4,
                )
                .await
                .unwrap();
            assert!(run.interrupted);
            let figures = Figures::of(&run);
            assert_eq!((figures.completed, figures.failed), (2, 0));
            assert!(figures.unfinished >= 1 && run.records.len() <= run.planned);
            // What was not finished counts neither way.
            let slo = Slo::new(1e9, 1e9, 90.0).unwrap();
            assert_eq!(slo.attainment(&run.records, 1.0).unwrap().both, 1.0);
        }
    });
}

#[test]
fn intruders_come_beside_the_load_and_are_counted_apart() {
    block_on(async {
        let wait = || vec![Step::Wait(Duration::from_millis(10))];
        let fake = Fake::start(move |seen| {
            // While an intruder is read, for as long as two answers take.
            let long = seen.body["prompt"].as_str().is_some_and(|t| t.len() > 1000);
            let before = if long { vec![Step::Wait(Duration::from_millis(100))] } else { wait() };
            answer(seen, before, wait())
        })
        .await;
        let server = find(&fake, options()).await;
        let every = Duration::from_millis(150);
        let intruder = Intruder { input: 400, output: 3, every };
        let run = run(&server, Load::Closed(2), &asks(30, 10, 4), Some(intruder)).await;
        assert_eq!(run.records.len(), 30);
        assert!(run.records.iter().all(|r| r.is_done() && !r.intruder));
        let effect = Effect::of(&run).unwrap();
        assert!(effect.sent >= 1 && effect.failed == 0);
        for (i, record) in run.intruders.iter().enumerate() {
            assert_eq!((record.id, record.input_asked), (i, Some(400)));
            assert!(record.sent >= every.as_secs_f64() * (i + 1) as f64);
        }
        let disturbed = effect.disturbed_tpot_ms.map_or(0, |s| s.count);
        let undisturbed = effect.undisturbed_tpot_ms.map_or(0, |s| s.count);
        assert_eq!(disturbed + undisturbed, 30);
        assert!(disturbed > 0);
        let mut texts: Vec<String> = fake
            .completions()
            .iter()
            .filter_map(|s| s.body["prompt"].as_str().map(str::to_owned))
            .filter(|t| t.len() > 1500)
            .collect();
        let n = texts.len();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), n, "a cache would know an intruder's prompt");
    });
}

#[test]
fn seeds_choose_words_and_prefixes_are_shared() {
    block_on(async {
        let fake = Fake::start(|seen| answer(seen, vec![], vec![])).await;
        let server = find(&fake, options()).await;
        let texts = async |prefix, seed| {
            let skip = fake.completions().len();
            let prepared =
                server.prepare(Load::Closed(1), &asks(3, 20, 3), prefix, None, seed).await;
            let run = server.run(prepared, &mut |_| {}, &|| false).await.unwrap();
            for record in &run.records {
                assert_eq!(record.input_asked, Some(20 + prefix));
                // Usage alone shows the lengths of these: a few words of two tokens.
                assert!(record.input.unwrap().abs_diff(20 + prefix) < 12);
            }
            let seen = fake.completions();
            let text = |s: &Seen| s.body["prompt"].as_str().unwrap().to_owned();
            seen[skip..].iter().map(text).collect::<Vec<_>>()
        };
        let common =
            |a: &str, b: &str| a.split(' ').zip(b.split(' ')).take_while(|(a, b)| a == b).count();
        let first = texts(0, (1, 0)).await;
        assert_eq!(first, texts(0, (1, 0)).await);
        for other in [texts(0, (1, 1)).await, texts(0, (2, 0)).await] {
            assert!(first.iter().zip(&other).all(|(a, b)| common(a, b) < 4));
        }
        assert!(common(&first[0], &first[1]) < 4);
        let shared = texts(50, (1, 0)).await;
        // Fifty tokens are at least forty words.
        assert!((40..60).contains(&common(&shared[0], &shared[1])));
        assert!((40..60).contains(&common(&shared[1], &shared[2])));
    });
}
