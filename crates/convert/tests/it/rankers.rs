//! Qwen3's rerankers, whose folders are told from those of the models that write by their name.

use crate::folder::{Folder, HIDDEN, written};
use gguf::Gguf;
use serde_json::json;

/// Numbers of tokens that the vocabulary leaves free.
const YES: usize = 263;
const NO: usize = 262;

fn folder(tied: bool) -> Folder {
    let mut folder = Folder::llama();
    folder.set("architectures", json!(["Qwen3ForCausalLM"])).set("head_dim", 4);
    folder.set("tie_word_embeddings", tied);
    for layer in 0..2 {
        for of in ["q_norm", "k_norm"] {
            folder.add(&format!("model.layers.{layer}.self_attn.{of}.weight"), &[4]);
        }
    }
    folder.tokenizer["model"]["vocab"]["yes"] = json!(YES);
    folder.tokenizer["model"]["vocab"]["no"] = json!(NO);
    folder
}

#[test]
fn the_words_yes_and_no_are_the_classifier() {
    for (tied, head) in [(true, "model.embed_tokens.weight"), (false, "lm_head.weight")] {
        let folder = folder(tied);
        folder.file("README.md", "---\ntags: [rank]\n---\n\n# Qwen3-Reranker-0.6B\n");
        let file = written(&folder.open().unwrap());
        let gguf = Gguf::parse(&file).unwrap();
        assert!(gguf.tensor("output.weight").is_none());
        models::build(&gguf, 1).unwrap();
        assert_eq!(models::Score::of(&gguf).unwrap(), Some(models::Score::Share));
        assert_eq!(models::Pooling::of(&gguf).unwrap(), models::Pooling::Last);
        let template = gguf.metadata().str("tokenizer.chat_template.rerank").unwrap();
        assert!(template.contains("\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"));
        assert!(
            template.contains("Judge whether the Document meets the requirements based on the")
        );
        let read = |of: &gguf::Tensor<'_>, to: &mut [f32]| of.ty.dequantize(of.data, to);
        let ranks = models::Projection::read(&gguf, &read).unwrap().unwrap();
        let state: Vec<f32> = (0..HIDDEN).map(|i| i as f32 / 8.0 - 1.0).collect();
        // By hand: the share of "yes" among both words' logits.
        let weights = folder.values(head);
        let logit = |token: usize| -> f64 {
            let row = &weights[token * HIDDEN..][..HIDDEN];
            row.iter().zip(&state).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()
        };
        let want = 1.0 / (1.0 + (logit(NO) - logit(YES)).exp());
        // The file has the rows in F16.
        let got = f64::from(ranks.apply(&state)[0]);
        assert!((got - want).abs() < 1e-3, "{got} {want}");
    }
}

#[test]
fn a_model_that_writes_stays_one() {
    let file = written(&folder(true).open().unwrap());
    let gguf = Gguf::parse(&file).unwrap();
    assert!(gguf.tensor("cls.output.weight").is_none());
    assert_eq!(models::Score::of(&gguf).unwrap(), None);
}

#[test]
fn a_reranker_without_its_words_is_refused() {
    let mut folder = folder(true);
    folder.tokenizer["model"]["vocab"].as_object_mut().unwrap().remove("no");
    folder.file("README.md", "# Qwen3-Reranker-0.6B\n");
    let error = folder.open().unwrap_err().to_string();
    assert!(error.contains("tokenizer.json has no token \"no\""), "{error}");
}
