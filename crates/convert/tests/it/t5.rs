//! Encoders of T5.

use crate::folder::{Folder, HIDDEN, made, written};
use gguf::Gguf;
use serde_json::{Value, json};
use testkit::Checkpoint;

/// One of two layers, whose vocabulary has some pieces and places that nothing is in.
fn t5(gated: bool) -> Folder {
    let mut checkpoint = Checkpoint::llama();
    checkpoint.tensors.clear();
    let mut folder = Folder::of(checkpoint);
    folder.config = json!({
        "architectures": ["T5EncoderModel"], "model_type": "t5", "d_model": HIDDEN, "d_ff": 32, "d_kv": 8,
        "num_layers": 2, "num_heads": 4, "vocab_size": 12, "n_positions": 64, "layer_norm_epsilon": 1e-6,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 128,
        "feed_forward_proj": if gated { "gated-gelu" } else { "relu" },
        "eos_token_id": 1, "pad_token_id": 0,
    });
    let pieces = ["<pad>", "</s>", "<unk>", "▁", "▁a", "▁cat", "s", "▁sat"];
    let vocab: Vec<Value> =
        pieces.iter().enumerate().map(|(id, text)| json!([text, -(id as f64)])).collect();
    let special = [(0, "<pad>"), (1, "</s>"), (2, "<unk>")];
    let added: Vec<Value> = special
        .iter()
        .map(|(id, text)| json!({"id": id, "content": text, "special": true, "normalized": false}))
        .collect();
    folder.tokenizer = json!({
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "Metaspace", "add_prefix_space": true}]},
        "model": {"type": "Unigram", "unk_id": 2, "vocab": vocab},
    });
    folder.add("shared.weight", &[12, HIDDEN]);
    folder.add("encoder.final_layer_norm.weight", &[HIDDEN]);
    for layer in 0..2 {
        let ffn = if gated { &["wi_0", "wi_1"][..] } else { &["wi"] };
        let mut add = |name: &str, shape: &[usize]| {
            folder.add(&format!("encoder.block.{layer}.layer.{name}.weight"), shape);
        };
        for projection in ["q", "k", "v"] {
            add(&format!("0.SelfAttention.{projection}"), &[32, HIDDEN]);
        }
        add("0.SelfAttention.o", &[HIDDEN, 32]);
        if layer == 0 {
            add("0.SelfAttention.relative_attention_bias", &[8, 4]);
        }
        add("0.layer_norm", &[HIDDEN]);
        ffn.iter().for_each(|wi| add(&format!("1.DenseReluDense.{wi}"), &[32, HIDDEN]));
        add("1.DenseReluDense.wo", &[HIDDEN, 32]);
        add("1.layer_norm", &[HIDDEN]);
    }
    folder
}

#[test]
fn an_encoder_of_t5_is_one_that_is_read() {
    for gated in [false, true] {
        let folder = t5(gated);
        let conversion = folder.open().unwrap();
        let norm = "encoder.block.1.layer.1.layer_norm.weight";
        assert_eq!(made(&conversion, "enc.blk.1.ffn_norm.weight"), folder.values(norm));
        let bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
        assert_eq!(
            made(&conversion, "enc.blk.0.attn_rel_b.weight").len(),
            folder.values(bias).len()
        );
        let file = written(&conversion);
        let gguf = Gguf::parse(&file).unwrap();
        models::build(&gguf, 2).unwrap();
        assert_eq!(models::Pooling::of(&gguf).unwrap(), models::Pooling::Mean);
        assert_eq!(gguf.tensor("enc.blk.0.ffn_gate.weight").is_some(), gated);
        let m = gguf.metadata();
        assert_eq!(m.u32("t5encoder.attention.relative_buckets_count").unwrap(), 8);
        assert_eq!(m.u32("t5encoder.context_length").unwrap(), 64);
        let tokenizer = tokenizer::Tokenizer::from_gguf(m).unwrap();
        let whole = tokenizer::EncodeOptions { add_special: true, parse_special: false };
        // An end and no beginning; more spaces are one.
        assert_eq!(tokenizer.encode("a  cats sat", whole).unwrap(), [4, 5, 6, 7, 1]);
    }
}

/// Saved under its other name, or under both.
#[test]
fn the_embedding_has_two_names() {
    let other = "encoder.embed_tokens.weight";
    let mut both = t5(false);
    both.add(other, &[12, HIDDEN]);
    let conversion = both.open().unwrap();
    let count = |name| conversion.tensors().iter().filter(|t| t.name() == name).count();
    assert_eq!(count("token_embd.weight"), 1);
    let mut alone = t5(false);
    alone.without("shared.weight");
    alone.add(other, &[12, HIDDEN]);
    assert_eq!(made(&alone.open().unwrap(), "token_embd.weight").len(), alone.values(other).len());
}

#[test]
fn what_no_file_can_say_is_refused() {
    let fault = |key: &str, value: Value| {
        let mut folder = t5(false);
        folder.set(key, value);
        folder.fault()
    };
    let message = fault("relative_attention_max_distance", json!(64));
    assert!(message.contains("relative_attention_max_distance is 64"), "{message}");
    let message = fault("feed_forward_proj", json!("gated-silu"));
    assert!(message.contains("only relu and gated-gelu"), "{message}");
    let mut folder = t5(false);
    folder.add("decoder.block.0.layer.0.layer_norm.weight", &[HIDDEN]);
    folder.add("encoder.block.0.layer.0.SelfAttention.sink.weight", &[4]);
    assert!(folder.fault().contains("SelfAttention.sink"), "{}", folder.fault());
}

/// The layer behind pooling, which sentence-T5 and GTR have.
#[test]
fn the_dense_layer_behind_pooling_is_kept() {
    let module = |activation: &str| {
        let folder = t5(false);
        let ty = |name: &str| format!("sentence_transformers.models.{name}");
        let modules = json!([
            {"idx": 0, "path": "", "type": ty("Transformer")},
            {"idx": 1, "path": "1_Pooling", "type": ty("Pooling")},
            {"idx": 2, "path": "2_Dense", "type": ty("Dense")},
        ]);
        folder.file("modules.json", modules.to_string());
        folder.file("1_Pooling/config.json", json!({"pooling_mode_mean_tokens": true}).to_string());
        let mut dense = Checkpoint::llama();
        dense.tensors.clear();
        dense.add("linear.weight", &[6, HIDDEN]);
        std::fs::create_dir_all(folder.path().join("2_Dense")).unwrap();
        dense.write(&folder.path().join("2_Dense"));
        folder.file(
            "2_Dense/config.json",
            json!({"activation_function": format!("torch.nn.modules.{activation}"), "bias": false})
                .to_string(),
        );
        folder
    };
    let folder = module("linear.Identity");
    let file = written(&folder.open().unwrap());
    let gguf = Gguf::parse(&file).unwrap();
    models::build(&gguf, 1).unwrap();
    let read = |t: &gguf::Tensor<'_>, out: &mut [f32]| t.ty.dequantize(t.data, out);
    let projection = models::Projection::read(&gguf, &read).unwrap().unwrap();
    assert_eq!(projection.apply(&[1.0; HIDDEN]).len(), 6);
    let message = module("activation.Tanh").fault();
    assert!(message.contains("2_Dense") && message.contains("Tanh"), "{message}");
}
