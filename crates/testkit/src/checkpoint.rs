//! A folder as the Hugging Face Hub has them, with a small Llama and a vocabulary of bytes.

use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// A tensor: name, dtype, shape with the outermost dimension first, bytes.
pub type Stored = (String, &'static str, Vec<usize>, Vec<u8>);

/// What a folder will hold.
#[derive(Debug)]
pub struct Checkpoint {
    /// `config.json`.
    pub config: Value,
    /// `model.safetensors`.
    pub tensors: Vec<Stored>,
    /// `tokenizer.json`.
    pub tokenizer: Value,
}

impl Checkpoint {
    /// Elements of the residual stream.
    pub const HIDDEN: usize = 16;
    /// Tokens: bytes, four more, two special ones, two places that nothing is in.
    pub const VOCAB: usize = 264;

    /// A Llama of two layers in F32, four heads and two of keys and values.
    pub fn llama() -> Checkpoint {
        let (hidden, vocab) = (Self::HIDDEN, Self::VOCAB);
        let config = json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
            "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": vocab, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 260,
        });
        let mut made = Checkpoint { config, tensors: Vec::new(), tokenizer: tokenizer() };
        made.add("model.embed_tokens.weight", &[vocab, hidden]);
        made.add("lm_head.weight", &[vocab, hidden]);
        made.add("model.norm.weight", &[hidden]);
        for layer in 0..2 {
            for (name, shape) in [
                ("self_attn.q_proj", &[16, hidden][..]),
                ("self_attn.k_proj", &[8, hidden]),
                ("self_attn.v_proj", &[8, hidden]),
                ("self_attn.o_proj", &[hidden, 16]),
                ("mlp.gate_proj", &[32, hidden]),
                ("mlp.up_proj", &[32, hidden]),
                ("mlp.down_proj", &[hidden, 32]),
                ("input_layernorm", &[hidden]),
                ("post_attention_layernorm", &[hidden]),
            ] {
                made.add(&format!("model.layers.{layer}.{name}.weight"), shape);
            }
        }
        made
    }

    /// A BERT of two layers in F32, four heads, a vocabulary of some words and their ends.
    pub fn bert() -> Checkpoint {
        let words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s", "sat", "."];
        let (hidden, vocab) = (Self::HIDDEN, words.len());
        let config = json!({
            "architectures": ["BertModel"], "model_type": "bert", "hidden_size": hidden,
            "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "vocab_size": vocab, "type_vocab_size": 2, "max_position_embeddings": 64,
            "layer_norm_eps": 1e-12, "pad_token_id": 0,
        });
        let special = words[..5].iter().enumerate();
        let added: Vec<Value> = special
            .map(|(id, text)| json!({"id": id, "content": text, "special": true, "normalized": false}))
            .collect();
        let one = |text: &str| json!({"SpecialToken": {"id": text, "type_id": 0}});
        let tokenizer = json!({
            "added_tokens": added,
            "normalizer": {"type": "BertNormalizer", "clean_text": true, "lowercase": true},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [one("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, one("[SEP]")],
                "special_tokens": {
                    "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                    "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]},
                },
            },
            "decoder": {"type": "WordPiece"},
            "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "vocab": words.iter().enumerate().map(|(id, text)| ((*text).to_owned(), id.into()))
                    .collect::<Map<String, Value>>(),
            },
        });
        let mut made = Checkpoint { config, tensors: Vec::new(), tokenizer };
        made.add("embeddings.word_embeddings.weight", &[vocab, hidden]);
        made.add("embeddings.position_embeddings.weight", &[64, hidden]);
        made.add("embeddings.token_type_embeddings.weight", &[2, hidden]);
        let mut both = |name: &str, shape: &[usize]| {
            made.add(&format!("{name}.weight"), shape);
            made.add(&format!("{name}.bias"), &shape[..1]);
        };
        both("embeddings.LayerNorm", &[hidden]);
        both("pooler.dense", &[hidden, hidden]);
        for layer in 0..2 {
            for (name, shape) in [
                ("attention.self.query", &[hidden, hidden][..]),
                ("attention.self.key", &[hidden, hidden]),
                ("attention.self.value", &[hidden, hidden]),
                ("attention.output.dense", &[hidden, hidden]),
                ("attention.output.LayerNorm", &[hidden]),
                ("intermediate.dense", &[32, hidden]),
                ("output.dense", &[hidden, 32]),
                ("output.LayerNorm", &[hidden]),
            ] {
                both(&format!("encoder.layer.{layer}.{name}"), shape);
            }
        }
        made
    }

    /// Adds a tensor in F32.
    pub fn add(&mut self, name: &str, shape: &[usize]) {
        let values = numbers(shape.iter().product(), self.tensors.len());
        self.put(name, "F32", shape, f32s(&values));
    }

    /// Adds a tensor, in the place of one of its name.
    pub fn put(&mut self, name: &str, dtype: &'static str, shape: &[usize], bytes: Vec<u8>) {
        self.without(name);
        self.tensors.push((name.to_owned(), dtype, shape.to_vec(), bytes));
    }

    /// Drops a tensor.
    pub fn without(&mut self, name: &str) {
        self.tensors.retain(|(known, ..)| known != name);
    }

    /// Values of a tensor in F32.
    ///
    /// # Panics
    /// When there is none of the name.
    pub fn values(&self, name: &str) -> Vec<f32> {
        let (.., bytes) = self.tensors.iter().find(|(known, ..)| known == name).expect(name);
        bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// Writes configuration, tensors and, unless there is one, the vocabulary.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn write(&self, folder: &Path) {
        let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).expect(name);
        write("config.json", self.config.to_string().as_bytes());
        write("model.safetensors", &safetensors(&self.tensors));
        if !self.tokenizer.is_null() {
            write("tokenizer.json", self.tokenizer.to_string().as_bytes());
        }
    }
}

/// Small numbers by their place, all multiples of 1/64, so that every type of floats has them.
pub fn numbers(count: usize, start: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + start * 11) % 97) as f32 / 64.0 - 0.75).collect()
}

/// As they are stored.
pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The file of these tensors.
pub fn safetensors(tensors: &[Stored]) -> Vec<u8> {
    let (mut head, mut data) = (Map::new(), Vec::<u8>::new());
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend(bytes);
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        head.insert(name.clone(), entry);
    }
    let head = Value::Object(head).to_string();
    let mut file = (head.len() as u64).to_le_bytes().to_vec();
    file.extend(head.as_bytes());
    file.extend(data);
    file
}

/// Byte-level BPE of 260 tokens and two special ones, with Llama 3's way of cutting text.
fn tokenizer() -> Value {
    let visible = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let others = (256..).take((0..256).filter(|&byte| !visible(byte)).count());
    let letters = (0..256).filter(|&byte| visible(byte)).chain(others);
    let letters = letters.filter_map(char::from_u32).map(String::from);
    let more = ["th", "he", "in", "er"].map(String::from);
    let vocab: Map<String, Value> =
        letters.chain(more).enumerate().map(|(id, text)| (text, id.into())).collect();
    let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    json!({
        "added_tokens": [
            {"id": 260, "content": "<|end|>", "special": true, "normalized": false},
            {"id": 261, "content": "<think>", "special": false, "normalized": false},
        ],
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "ignore_merges": true, "vocab": vocab,
                  "merges": ["t h", ["h", "e"], "i n", "e r"]},
    })
}
