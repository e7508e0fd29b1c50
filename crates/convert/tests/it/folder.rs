//! A folder of the Hub with a small Llama.

use arclight_convert::{Conversion, Error, Options};
use gguf::Gguf;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A tensor: name, dtype, shape, bytes.
pub(crate) type Stored = (String, &'static str, Vec<usize>, Vec<u8>);

/// A folder in the making.
pub(crate) struct Folder {
    pub(crate) dir: TempDir,
    pub(crate) config: Value,
    pub(crate) tensors: Vec<Stored>,
}

/// Numbers by their place, all halves of integers, so that every type of floats has them.
pub(crate) fn numbers(count: usize, start: usize) -> Vec<f32> {
    (0..count).map(|i| ((i + start) % 97) as f32 / 2.0 - 20.0).collect()
}

pub(crate) fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The file of these tensors.
pub(crate) fn safetensors(tensors: &[Stored]) -> Vec<u8> {
    let (mut head, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend(bytes);
        head.insert(
            name.clone(),
            json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]}),
        );
    }
    let head = Value::Object(head).to_string();
    let mut file = (head.len() as u64).to_le_bytes().to_vec();
    file.extend(head.as_bytes());
    file.extend(data);
    file
}

pub(crate) const HIDDEN: usize = 16;
pub(crate) const VOCAB: usize = 264;

impl Folder {
    /// A Llama of two layers, four heads and two of keys and values, in F32.
    pub(crate) fn llama() -> Folder {
        let config = json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
            "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": VOCAB, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2,
        });
        let mut folder = Folder { dir: TempDir::new().unwrap(), config, tensors: Vec::new() };
        folder.add("model.embed_tokens.weight", &[VOCAB, HIDDEN]);
        folder.add("lm_head.weight", &[VOCAB, HIDDEN]);
        folder.add("model.norm.weight", &[HIDDEN]);
        for layer in 0..2 {
            for (name, shape) in [
                ("self_attn.q_proj", &[16, HIDDEN][..]),
                ("self_attn.k_proj", &[8, HIDDEN]),
                ("self_attn.v_proj", &[8, HIDDEN]),
                ("self_attn.o_proj", &[HIDDEN, 16]),
                ("mlp.gate_proj", &[32, HIDDEN]),
                ("mlp.up_proj", &[32, HIDDEN]),
                ("mlp.down_proj", &[HIDDEN, 32]),
                ("input_layernorm", &[HIDDEN]),
                ("post_attention_layernorm", &[HIDDEN]),
            ] {
                folder.add(&format!("model.layers.{layer}.{name}.weight"), shape);
            }
        }
        folder.write("tokenizer.json", &tokenizer(VOCAB - 4).to_string());
        folder
    }

    /// Adds a tensor in F32.
    pub(crate) fn add(&mut self, name: &str, shape: &[usize]) {
        let values = numbers(shape.iter().product(), self.tensors.len());
        self.put(name, "F32", shape, f32s(&values));
    }

    pub(crate) fn put(&mut self, name: &str, dtype: &'static str, shape: &[usize], bytes: Vec<u8>) {
        self.tensors.retain(|(known, ..)| known != name);
        self.tensors.push((name.to_owned(), dtype, shape.to_vec(), bytes));
    }

    pub(crate) fn without(&mut self, name: &str) {
        self.tensors.retain(|(known, ..)| known != name);
    }

    /// Values of a tensor in F32.
    pub(crate) fn values(&self, name: &str) -> Vec<f32> {
        let (.., bytes) = self.tensors.iter().find(|(known, ..)| known == name).unwrap();
        bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Folder {
        self.config[key] = value.into();
        self
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.dir.path().join(name), content).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes configuration and tensors.
    pub(crate) fn finish(&self) {
        self.write("config.json", self.config.to_string());
        self.write("model.safetensors", safetensors(&self.tensors));
    }

    pub(crate) fn open(&self) -> Result<Conversion, Error> {
        self.open_with(&Options::default())
    }

    pub(crate) fn open_with(&self, options: &Options) -> Result<Conversion, Error> {
        self.finish();
        Conversion::open(self.path(), options)
    }

    /// What opening complains of.
    #[track_caller]
    pub(crate) fn fault(&self) -> String {
        self.open().expect_err("the folder is at fault").to_string()
    }
}

/// Byte-level BPE with Llama 3's way of cutting text.
pub(crate) fn tokenizer(tokens: usize) -> Value {
    let letters: Vec<String> = (0..tokens).map(|i| format!("t{i}")).collect();
    let vocab: serde_json::Map<String, Value> =
        letters.iter().enumerate().map(|(i, text)| (text.clone(), i.into())).collect();
    let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    json!({
        "added_tokens": [
            {"id": tokens, "content": "<|end|>", "special": true, "normalized": false},
            {"id": tokens + 1, "content": "<think>", "special": false, "normalized": false},
        ],
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": ["t1 t2", ["t3", "t 4"]]},
    })
}

/// The file as a reader sees it, written out.
pub(crate) fn written(conversion: &Conversion) -> Vec<u8> {
    let (mut file, bytes) = conversion.head().unwrap();
    for tensor in conversion.tensors() {
        // By rows in several pieces, which must not matter.
        for row in 0..tensor.rows() {
            tensor.bytes(row..row + 1, &mut file).unwrap();
        }
        file.resize(file.len().next_multiple_of(32), 0);
    }
    assert_eq!(file.len() as u64, bytes);
    Gguf::parse(&file).unwrap();
    file
}

/// The values of a tensor of the file.
pub(crate) fn made(conversion: &Conversion, name: &str) -> Vec<f32> {
    let tensor = conversion.tensors().iter().find(|tensor| tensor.name() == name);
    let tensor = tensor.unwrap_or_else(|| panic!("no tensor {name}"));
    let mut values = vec![0.0; tensor.rows() * tensor.cols()];
    tensor.values(0..tensor.rows(), &mut values).unwrap();
    values
}
