//! `embed`, of a model that writes and of a folder with one that reads.

use crate::serve::{post, serve_plainly};
use crate::support::{fails, file, folder, output, run_with, succeeds, tiny};
use serde_json::{Value, json};
use std::path::Path;
use testkit::Checkpoint;

fn lines(text: &str) -> Vec<(u64, Vec<f64>)> {
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let vector = line["embedding"].as_array().unwrap().iter();
        (line["tokens"].as_u64().unwrap(), vector.map(|x| x.as_f64().unwrap()).collect())
    };
    text.lines().map(line).collect()
}

#[test]
fn every_line_becomes_a_vector_of_length_one() {
    let texts = "the cat\nthe dog and the bird\n\nthe cat\n";
    let path = file("texts.txt", texts.as_bytes());
    // The third line is empty, and this vocabulary adds nothing.
    let line = fails(1, &["embed", tiny(), "-f", &path]);
    assert!(line.contains("text 3 is empty"), "{line}");
    let path = file("three.txt", texts.replace("\n\n", "\n").as_bytes());
    let vectors = lines(&succeeds(&["embed", tiny(), "-f", &path]));
    assert_eq!(vectors.len(), 3);
    for (_, vector) in &vectors {
        assert_eq!(vector.len(), 256);
        let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    assert_eq!(vectors[0], vectors[2]);
    assert_ne!(vectors[0].1, vectors[1].1);
    // From standard input, one at a time, and by -p: the same.
    let one =
        run_with(&["embed", tiny(), "--batch", "1"], "the cat\nthe dog and the bird\nthe cat\n");
    assert_eq!(lines(&one.out), vectors);
    assert_eq!(lines(&succeeds(&["embed", tiny(), "-p", "the cat"]))[0], vectors[0]);
    let raw = lines(&succeeds(&["embed", tiny(), "-p", "the cat", "--raw", "--pooling", "mean"]));
    assert_ne!(raw[0], vectors[0]);
    let few = lines(&succeeds(&["embed", tiny(), "-p", "the cat", "--dimensions", "16"]));
    assert_eq!(few[0].1.len(), 16);
    let line = fails(2, &["embed", tiny(), "-p", "the cat", "--dimensions", "257"]);
    assert!(line.contains("vectors have 256 values"), "{line}");
}

#[test]
fn a_folder_with_an_encoder_gives_a_matrix() {
    let path = folder("bert");
    Checkpoint::bert().write(Path::new(&path));
    let json = lines(&succeeds(&["embed", &path, "-p", "A cat sat.", "-p", "cats", "--raw"]));
    // [CLS] a cat sat . [SEP]; [CLS] cat ##s [SEP]
    assert_eq!(json.iter().map(|(tokens, _)| *tokens).collect::<Vec<_>>(), [6, 4]);
    let npy = output("vectors.npy");
    succeeds(&["embed", &path, "-p", "A cat sat.", "-p", "cats", "--raw", "-o", &npy]);
    let bytes = std::fs::read(&npy).unwrap();
    let head = String::from_utf8_lossy(&bytes[10..128]).into_owned();
    assert!(head.contains("'shape': (2, 16)"), "{head}");
    let values = bytes[128..].as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b)));
    let all: Vec<f64> = json.into_iter().flat_map(|(_, vector)| vector).collect();
    for (got, want) in values.zip(all) {
        assert!((got - want).abs() < 1e-6, "{got} {want}");
    }
    // It has no head: nothing is written.
    let line = fails(1, &["run", &path, "-q", "-p", "cats"]);
    assert!(line.contains("reads texts and writes none"), "{line}");
    let long = "cat ".repeat(100);
    let line = fails(1, &["embed", &path, "-p", &long]);
    assert!(line.contains("text 1 has 102 tokens, more than the context of 64"), "{line}");
    let cut = lines(&succeeds(&["embed", &path, "-p", &long, "--truncate"]));
    assert_eq!(cut[0].0, 64);
}

#[test]
fn a_classifier_gives_the_same_scores_from_its_folder_and_from_a_file() {
    const LABELS: usize = 4096; // so many that a folder's classifier is not made at once
    let path = folder("classifier");
    let mut bert = Checkpoint::bert();
    bert.config["architectures"] = serde_json::json!(["BertForSequenceClassification"]);
    bert.add("classifier.weight", &[LABELS, Checkpoint::HIDDEN]);
    bert.add("classifier.bias", &[LABELS]);
    bert.write(Path::new(&path));
    let converted = output("classifier.gguf");
    succeeds(&["convert", &path, "-o", &converted]);
    let scores = |model: &str| lines(&succeeds(&["embed", model, "-p", "a cat sat.", "--raw"]));
    let (made, stored) = (scores(&path), scores(&converted));
    assert_eq!(made[0].1.len(), LABELS);
    // The folder's weights are not rounded to F16, which has all of them.
    for (made, stored) in made[0].1.iter().zip(&stored[0].1) {
        assert!((made - stored).abs() < 1e-6, "{made} {stored}");
    }
    let line = fails(1, &["embed", &path, "-p", "cats"]);
    assert!(line.contains("this model ranks texts"), "{line}");
}

#[test]
fn a_classifier_ranks_documents() {
    let path = folder("ranker");
    let mut bert = Checkpoint::bert();
    bert.config["architectures"] = json!(["BertForSequenceClassification"]);
    bert.add("classifier.weight", &[1, Checkpoint::HIDDEN]);
    bert.add("classifier.bias", &[1]);
    bert.write(Path::new(&path));
    let (served, _) = serve_plainly(&[&path], &[]);
    let rank = |body: Value| post(&served, "/v1/rerank", &body);
    let documents = ["A cat sat.", "cats", "sat a a a"];
    let query = json!({"query": "a cat", "documents": documents, "raw_scores": true});
    let (status, raw) = rank(query.clone());
    assert_eq!(status, 200, "{raw}");
    // [CLS] a cat [SEP], and a document and [SEP]: 4 + 5, 4 + 3, 4 + 5.
    assert_eq!(raw["usage"]["total_tokens"], 25);
    let results = raw["results"].as_array().unwrap();
    let score = |item: &Value| item["relevance_score"].as_f64().unwrap();
    assert_eq!(results.len(), 3);
    assert!(results.is_sorted_by(|a, b| score(a) > score(b)), "{raw}");
    // As shares of one, the best two, with their texts; documents may be objects.
    let objects = documents.map(|text| json!({"text": text}));
    let (_, shares) = rank(json!({
        "query": {"text": "a cat"}, "documents": objects, "top_n": 2, "return_documents": true,
    }));
    let best = shares["results"].as_array().unwrap();
    assert_eq!(best.len(), 2);
    for (share, raw) in best.iter().zip(results) {
        let at = raw["index"].as_u64().unwrap() as usize;
        assert_eq!(share["index"], raw["index"]);
        assert_eq!(share["document"]["text"], documents[at]);
        let want = 1.0 / (1.0 + (-score(raw)).exp());
        assert!((score(share) - want).abs() < 1e-6, "{share} {want}");
    }
    // Alone it has the same bits, and who is asked and who answers makes a difference.
    let one = |query: &str, document: &str| {
        let body = json!({"query": query, "documents": [document], "raw_scores": true});
        rank(body).1["results"][0]["relevance_score"].clone()
    };
    let first = results.iter().find(|item| item["index"] == 0).unwrap();
    assert_eq!(one("a cat", documents[0]), first["relevance_score"]);
    assert_ne!(one("A cat sat.", "a cat"), one("a cat", "A cat sat."));
    // Long documents are cut, unless that is not wished, and a query is not.
    let long = "cat ".repeat(100);
    let body =
        |query: &str, truncate| json!({"query": query, "documents": [long], "truncate": truncate});
    assert_eq!(rank(body("a cat", true)).1["usage"]["total_tokens"], 64);
    let most = json!({"query": "a cat", "documents": [long], "max_tokens_per_doc": 5});
    assert_eq!(rank(most).1["usage"]["total_tokens"], 10);
    for (body, words) in [
        (body("a cat", false), "document 0: with the query it has 105 tokens"),
        (body(&long, true), "document 0: the query alone has 103 tokens"),
        (json!({"documents": ["a"]}), "query is missing"),
        (json!({"query": "a", "documents": []}), "empty list"),
        (json!({"query": "a", "documents": [7]}), "must be a string, or an object with a text"),
        (json!({"query": "a", "documents": ["a"], "top_n": 0}), "top_n must be at least 1"),
    ] {
        let (status, answer) = rank(body);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(status == 400 && message.contains(words), "{message}");
    }
    let (status, refused) = post(&served, "/v1/embeddings", &json!({"input": "a"}));
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("no_embeddings")));
    let (served, _) = serve_plainly(&[tiny()], &[]);
    let (status, refused) = post(&served, "/v1/rerank", &query);
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("no_ranking")));
}
