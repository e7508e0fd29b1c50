//! Encoders after BERT: XLM-R and its vocabulary, ModernBERT, EmbeddingGemma.

use crate::folder::{Folder, HIDDEN, made, written};
use gguf::Gguf;
use serde_json::{Value, json};
use testkit::Checkpoint;

/// XLM-R of BERT's tensors, and a vocabulary of some pieces.
fn xlm_r() -> Folder {
    let mut folder = Folder::of(Checkpoint::bert());
    let pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁a", "▁cat", "s", "▁sat", "<mask>"];
    let vocab: Vec<Value> =
        pieces.iter().enumerate().map(|(id, text)| json!([text, -(id as f64)])).collect();
    let special = [(0, "<s>"), (1, "<pad>"), (2, "</s>"), (3, "<unk>"), (9, "<mask>")];
    let added: Vec<Value> = special
        .iter()
        .map(|(id, text)| json!({"id": id, "content": text, "special": true, "normalized": false}))
        .collect();
    folder.tokenizer = json!({
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "always"},
        "model": {"type": "Unigram", "unk_id": 3, "vocab": vocab},
    });
    folder.set("architectures", json!(["XLMRobertaModel"])).set("pad_token_id", 1);
    folder.set("bos_token_id", 0).set("eos_token_id", 2);
    folder
}

#[test]
fn positions_of_padding_are_left_out() {
    let folder = xlm_r();
    let conversion = folder.open().unwrap();
    let all = folder.values("embeddings.position_embeddings.weight");
    assert_eq!(made(&conversion, "position_embd.weight"), all[2 * HIDDEN..]);
    let file = written(&conversion);
    let gguf = Gguf::parse(&file).unwrap();
    models::build(&gguf, 1).unwrap();
    let m = gguf.metadata();
    assert_eq!(m.u32("bert.context_length").unwrap(), 62);
    assert_eq!(m.str("tokenizer.ggml.model").unwrap(), "t5");
    let tokenizer = tokenizer::Tokenizer::from_gguf(m).unwrap();
    let plain = tokenizer::EncodeOptions { add_special: false, parse_special: false };
    assert_eq!(tokenizer.encode("a cats sat", plain).unwrap(), [5, 6, 7, 8]);
}

#[test]
fn a_model_that_has_no_position_left_is_refused() {
    let mut folder = xlm_r();
    folder.set("pad_token_id", 63);
    assert!(folder.fault().contains("positions begin at 64"), "{}", folder.fault());
}

#[test]
fn a_ranker_says_so_and_what_its_number_is() {
    let mut folder = xlm_r();
    folder
        .set("architectures", json!(["XLMRobertaForSequenceClassification"]))
        .set("id2label", json!({"0": "LABEL_0"}));
    folder.without("pooler.dense.weight");
    folder.without("pooler.dense.bias");
    folder.add("classifier.dense.weight", &[HIDDEN, HIDDEN]);
    folder.add("classifier.dense.bias", &[HIDDEN]);
    folder.add("classifier.out_proj.weight", &[1, HIDDEN]);
    folder.add("classifier.out_proj.bias", &[1]);
    let file = written(&folder.open().unwrap());
    let gguf = Gguf::parse(&file).unwrap();
    assert_eq!(models::Score::of(&gguf).unwrap(), Some(models::Score::Logit));
    assert!(gguf.tensor("cls.output.weight").is_some());
    let labels = gguf.metadata().strings("bert.classifier.output_labels").unwrap();
    assert_eq!(labels.collect::<Vec<_>>(), [b"LABEL_0"]);
}

fn modern(class: &str) -> Folder {
    let mut checkpoint = Checkpoint::llama();
    checkpoint.tensors.clear();
    let mut folder = Folder::of(checkpoint);
    folder
        .set("architectures", json!([class]))
        .set("local_attention", 16)
        .set("norm_eps", 1e-5)
        .set("global_rope_theta", 160_000.0)
        .set("local_rope_theta", 10_000.0);
    let hidden = HIDDEN;
    folder.add("model.embeddings.tok_embeddings.weight", &[264, hidden]);
    folder.add("model.embeddings.norm.weight", &[hidden]);
    folder.add("model.final_norm.weight", &[hidden]);
    for layer in 0..2 {
        for (name, shape) in [
            ("attn_norm", &[hidden][..]),
            ("attn.Wqkv", &[3 * hidden, hidden]),
            ("attn.Wo", &[hidden, hidden]),
            ("mlp_norm", &[hidden]),
            ("mlp.Wi", &[64, hidden]),
            ("mlp.Wo", &[hidden, 32]),
        ] {
            if (layer, name) != (0, "attn_norm") {
                folder.add(&format!("model.layers.{layer}.{name}.weight"), shape);
            }
        }
    }
    let config = folder.config.as_object_mut().unwrap();
    config.remove("num_key_value_heads");
    folder
}

#[test]
fn the_head_that_predicts_words_is_left_out() {
    let mut folder = modern("ModernBertForMaskedLM");
    folder.add("head.dense.weight", &[HIDDEN, HIDDEN]);
    folder.add("head.norm.weight", &[HIDDEN]);
    folder.add("decoder.bias", &[264]);
    let file = written(&folder.open().unwrap());
    let gguf = Gguf::parse(&file).unwrap();
    models::build(&gguf, 1).unwrap();
    assert!(gguf.tensors().iter().all(|tensor| !tensor.name().starts_with("cls")));
    let m = gguf.metadata();
    assert_eq!(m.f32("modern-bert.rope.freq_base").unwrap(), 160_000.0);
    assert_eq!(m.f32("modern-bert.rope.freq_base_swa").unwrap(), 10_000.0);
    assert_eq!(m.u32("modern-bert.attention.sliding_window").unwrap(), 16);
}

#[test]
fn adapters_are_left_out_and_told() {
    let mut folder = modern("ModernBertModel");
    folder.set("lora_adaptations", json!(["a"]));
    let notes = folder.open().unwrap().notes().join("\n");
    assert!(notes.contains("adapters"), "{notes}");
}
