//! What becomes of requests when a host is lost, and who may be a host at all.

use crate::hosts::{Hosts, host, options};
use arclight_engine::{
    Engine, Error, KvSize, LoadOptions, ModelFile, ReplicaOptions, Replicas, Request,
    SamplerParams, StageKey, StageOptions, StageState,
};
use gguf::TensorType;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Rng, TinyModel};

fn model() -> Vec<u8> {
    TinyModel { layers: 6, ..TinyModel::qwen3(TensorType::Q4_0) }.gguf()
}

fn request(seed: u64, prompt: usize, limit: usize) -> Request {
    let mut rng = Rng::new(seed);
    let prompt = (0..prompt).map(|_| rng.below(200) as u32).collect();
    Request { limit: Some(limit), sampler: SamplerParams::greedy(), ..Request::new(prompt) }
}

fn replicas(file: &Arc<ModelFile>, options: &LoadOptions) -> Result<Replicas, Error> {
    Replicas::load(file, options, &ReplicaOptions::default(), &mut |_| {})
}

fn requests() -> Vec<Request> {
    (0..12).map(|seed| request(seed, 20 + 9 * seed as usize, 20 + seed as usize)).collect()
}

/// The tokens of many requests at once.
fn answers(replicas: &Replicas) -> Vec<Vec<u32>> {
    let tickets: Vec<_> =
        requests().into_iter().map(|request| replicas.submit(request).unwrap()).collect();
    tickets.into_iter().map(|ticket| ticket.wait().unwrap().0).collect()
}

/// Waits for something for a while.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn many_requests_at_once_have_the_answers_of_one_machine() {
    // Pages for a few of them only, so that some give up theirs while they are under way.
    let options = LoadOptions {
        sequences: Some(6),
        kv_size: KvSize::Tokens(320),
        context: Some(256),
        ..options()
    };
    let file = Arc::new(ModelFile::from_bytes("tiny", model()));
    let one = replicas(&file, &options).unwrap();
    let want = answers(&one);
    drop(one);
    let hosts = Hosts::run(model(), 3, &options);
    let several = replicas(&hosts.file, &hosts.front(&options)).unwrap();
    assert!(answers(&several) == want);
    assert!(several.counters().preemptions > 0, "{:?}", several.counters());
    drop(several);
    let roomy = LoadOptions { kv_size: KvSize::Each, ..options };
    let several = replicas(&hosts.file, &hosts.front(&roomy)).unwrap();
    assert!(answers(&several) == want);
    assert!(answers(&several) == want, "with what is in the prefix cache");
    assert!(several.counters().cached_tokens > 0);
}

#[test]
fn a_lost_host_ends_requests_and_the_group_comes_back() {
    let options = options();
    let mut hosts = Hosts::run(model(), 3, &options);
    let replicas = replicas(&hosts.file, &hosts.front(&options)).unwrap();
    let (want, _) = replicas.submit(request(7, 50, 30)).unwrap().wait().unwrap();
    for lost in [1, 0] {
        let address = hosts.stages[lost].address.clone();
        // Some seconds of work, of which the first may be done by then.
        let long = |seed| replicas.submit(request(seed, 50, 190)).unwrap();
        let under_way: Vec<_> = (100..160).map(long).collect();
        until("a step", || replicas.status()[0].running > 0);
        hosts.stages.remove(lost);
        let ended = under_way.into_iter().map(|ticket| ticket.wait().err());
        let errors: Vec<Error> = ended.flatten().collect();
        assert!(errors.len() > 4, "{errors:?}");
        for error in &errors {
            let Error::StageLost { stage, of: 3, .. } = error else { panic!("{error}") };
            assert!(*stage == lost + 1 && error.to_string().contains(&address), "{error}");
        }
        until("it says so", || replicas.status()[0].failure.is_some());
        assert!(replicas.status()[0].comes_back);
        until("who asks is told which", || match replicas.submit(request(9, 5, 5)) {
            Err(error @ Error::StageLost { .. }) => error.to_string().contains(&address),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it is served by nobody"),
        });
        let again = host(&hosts.file, (lost + 1, 3), &address, &options).unwrap();
        hosts.stages.insert(lost, again);
        until("all are there", || replicas.status()[0].failure.is_none());
        let (tokens, outcome) = replicas.submit(request(7, 50, 30)).unwrap().wait().unwrap();
        assert!(tokens == want);
        assert_eq!(outcome.cached, 0, "pages of before are gone");
    }
    // Also when nothing is under way.
    let address = hosts.stages[0].address.clone();
    hosts.stages.remove(0);
    until("it is noticed", || replicas.status()[0].failure.is_some());
    let again = host(&hosts.file, (1, 3), &address, &options).unwrap();
    hosts.stages.insert(0, again);
    until("all are there", || replicas.status()[0].failure.is_none());
    assert!(replicas.submit(request(7, 50, 30)).unwrap().wait().unwrap().0 == want);
    // A front that goes away leaves stages that wait for the next.
    drop(replicas);
    for host in &hosts.stages {
        until("it waits", || host.status.state() == StageState::Waiting);
    }
    let (tokens, _) = self::replicas(&hosts.file, &hosts.front(&options))
        .unwrap()
        .submit(request(7, 50, 30))
        .unwrap()
        .wait()
        .unwrap();
    assert!(tokens == want);
}

#[test]
fn strangers_are_refused_with_the_reason() {
    let options = options();
    let key = |secret: &str| StageKey::new(secret.as_bytes());
    let file = Arc::new(ModelFile::from_bytes("tiny", model()));
    let stage = |number, of, peers: &[&str], key| {
        let peers = peers.iter().map(|&peer| peer.to_owned()).collect();
        LoadOptions {
            stage: Some(StageOptions { number, of, peers, key, without_key: false }),
            ..options.clone()
        }
    };
    let one = host(&file, (1, 2), "127.0.0.1:0", &stage(1, 2, &[], key("secret\n"))).unwrap();
    let at = one.address.as_str();
    let refused = |file: &ModelFile, options: &LoadOptions| {
        Engine::load(file, options, &mut |_| {}).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let error = refused(&file, &stage(2, 2, &[at], key("other")));
    assert!(error.contains(&format!("stage 1/2 at {at} is lost")), "{error}");
    assert!(error.contains("another stage key"), "{error}");
    assert!(refused(&file, &stage(2, 2, &[at], StageKey::default())).contains("another stage key"));
    let error = refused(&file, &stage(3, 3, &[at, at], key("secret")));
    assert!(error.contains("this is stage 1/2, not 1/3"), "{error}");
    let other = TinyModel { seed: 9, layers: 6, ..TinyModel::qwen3(TensorType::Q4_0) };
    let other = ModelFile::from_bytes("tiny", other.gguf());
    let error = refused(&other, &stage(2, 2, &[at], key("secret")));
    assert!(error.contains("another model file"), "{error}");
    assert_eq!(refused(&file, &stage(2, 2, &[at], key("secret"))), "");
    // What is said wrongly of itself.
    for (number, of, peers) in [(1, 1, &[][..]), (3, 2, &[at]), (2, 2, &[]), (2, 2, &[at, at])] {
        let error = refused(&file, &stage(number, of, peers, key("secret")));
        assert!(error.contains("stage"), "{error}");
    }
    let adapters = LoadOptions { predicting: true, ..stage(2, 2, &[at], key("secret")) };
    assert!(refused(&file, &adapters).contains("cannot be had where several hosts"));
}

#[test]
fn a_second_front_waits_for_the_first() {
    let options = options();
    let hosts = Hosts::run(model(), 2, &options);
    let first = replicas(&hosts.file, &hosts.front(&options)).unwrap();
    let (file, front) = (hosts.file.clone(), hosts.front(&options));
    let second = std::thread::spawn(move || replicas(&file, &front).map(|_| ()));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!second.is_finished());
    let (tokens, _) = first.submit(request(1, 9, 9)).unwrap().wait().unwrap();
    assert_eq!(tokens.len(), 9);
    drop(first);
    second.join().unwrap().unwrap();
}

#[test]
fn any_bytes_at_the_port_do_no_harm() {
    let options = options();
    let hosts = Hosts::run(model(), 2, &options);
    let replicas = replicas(&hosts.file, &hosts.front(&options)).unwrap();
    let (want, _) = replicas.submit(request(3, 30, 30)).unwrap().wait().unwrap();
    let mut rng = Rng::new(11);
    for round in 0..60 {
        let mut stream = TcpStream::connect(&hosts.stages[0].address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let length = rng.below(300);
        let mut bytes: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
        if round % 2 == 0 {
            // A kind that may come, and a length.
            let kind = 1 + rng.below(13) as u8;
            let said = if round % 4 == 0 { u32::MAX } else { length as u32 };
            bytes.splice(0..0, [&[kind][..], &said.to_le_bytes()].concat());
        }
        let _ = stream.write_all(&bytes);
        if round % 8 != 0 {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let _ = stream.read(&mut [0; 64]);
    }
    let (tokens, outcome) = replicas.submit(request(3, 30, 30)).unwrap().wait().unwrap();
    assert!(tokens == want && outcome.cached > 0);
    until("they were counted", || hosts.stages[0].status.counts().refused > 30);
}
