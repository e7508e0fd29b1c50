//! Encoders: names, vocabulary, pooling.

use crate::folder::{Folder, written};
use gguf::Gguf;
use serde_json::json;
use testkit::Checkpoint;

const MODULES: &str = r#"[
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
]"#;

fn folder() -> Folder {
    Folder::of(Checkpoint::bert())
}

#[test]
fn an_encoder_becomes_a_file_with_its_words_and_its_pooling() {
    let folder = folder();
    folder.file("modules.json", MODULES);
    folder.file("1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": true}"#);
    let file = written(&folder.open().unwrap());
    let gguf = Gguf::parse(&file).unwrap();
    let model = models::build(&gguf, 1).unwrap();
    assert!(model.graph.reads_texts() && !model.graph.has_head());
    assert_eq!(models::Pooling::of(&gguf).unwrap(), models::Pooling::Mean);
    let m = gguf.metadata();
    assert!(!m.opt_bool("bert.attention.causal").unwrap().unwrap());
    assert_eq!(m.u32("tokenizer.ggml.token_type_count").unwrap(), 2);
    assert_eq!(m.str("tokenizer.ggml.model").unwrap(), "bert");
    let tokens = m.strings("tokenizer.ggml.tokens").unwrap();
    let tokens: Vec<_> = tokens.map(|text| std::str::from_utf8(text).unwrap()).collect();
    assert_eq!(tokens[2..], ["[CLS]", "[SEP]", "[MASK]", "▁a", "▁cat", "s", "▁sat", "▁."]);
    let tokenizer = tokenizer::Tokenizer::from_gguf(m).unwrap();
    let all = tokenizer::EncodeOptions { add_special: true, parse_special: false };
    assert_eq!(tokenizer.encode("A cats sat.", all).unwrap(), [2, 5, 6, 7, 8, 9, 3]);
    // The layer behind the first token predicts whether sentences follow each other.
    assert!(gguf.tensor("cls.weight").is_none());
}

#[test]
fn a_classifier_ranks_by_what_is_behind_its_first_token() {
    let mut folder = folder();
    folder.set("architectures", json!(["BertForSequenceClassification"]));
    folder.add("classifier.weight", &[1, Checkpoint::HIDDEN]);
    folder.add("classifier.bias", &[1]);
    let file = written(&folder.open().unwrap());
    let gguf = Gguf::parse(&file).unwrap();
    models::build(&gguf, 1).unwrap();
    assert_eq!(models::Pooling::of(&gguf).unwrap(), models::Pooling::First);
    assert_eq!(models::Score::of(&gguf).unwrap(), Some(models::Score::Logit));
    let read = |of: &gguf::Tensor<'_>, to: &mut [f32]| of.ty.dequantize(of.data, to);
    let ranks = models::Projection::read(&gguf, &read).unwrap().unwrap();
    let state: Vec<f32> = (0..Checkpoint::HIDDEN).map(|i| i as f32 / 16.0 - 0.5).collect();
    // By hand: classifier(tanh(pooler(state))).
    let product = |name: &str, x: &[f64]| -> Vec<f64> {
        let weight = folder.values(&format!("{name}.weight"));
        let bias = folder.values(&format!("{name}.bias"));
        let rows = weight.chunks(x.len()).zip(&bias);
        rows.map(|(row, b)| {
            row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum::<f64>() + f64::from(*b)
        })
        .collect()
    };
    let state64: Vec<f64> = state.iter().map(|&x| f64::from(x)).collect();
    let pooled: Vec<f64> = product("pooler.dense", &state64).into_iter().map(f64::tanh).collect();
    let want = product("classifier", &pooled)[0];
    let got = ranks.apply(&state);
    assert_eq!(got.len(), 1);
    // Weights are F16 in the file, and multiples of 1/64 within 1, which F16 has.
    assert!((f64::from(got[0]) - want).abs() < 1e-6, "{got:?} {want}");
}

#[test]
fn pooling_that_no_file_can_say_is_refused() {
    let folder = folder();
    folder.file("modules.json", MODULES);
    let error = folder.open().err().unwrap().to_string();
    assert!(error.contains("1_Pooling/config.json, which is not there"), "{error}");
    folder.file("1_Pooling/config.json", r#"{"pooling_mode_max_tokens": true}"#);
    let error = folder.open().err().unwrap().to_string();
    assert!(error.contains("asks for a kind of pooling"), "{error}");
}
