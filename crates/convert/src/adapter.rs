//! Folders of PEFT as adapters in GGUF: `adapter_config.json`, and the matrices A and B of `adapter_model.safetensors`.
//!
//! For a matrix `W` of the model an adapter adds `scale * BA`. What the family's rules do to `W` they do to this
//! product: rows and columns change places, and parts go to tensors of their own. Which go where is found by having
//! the rules work on matrices of the same shape whose elements are the numbers of their rows or columns. So rows
//! of B and columns of A are taken in that order.
//!
//! Limits: LoRA of matrices (no DoRA, no embeddings, no experts, no modules that were trained whole).

use crate::array::{Array, Blocks};
use crate::config::Config;
use crate::error::Error;
use crate::families::{self, Family};
use crate::folder;
use crate::rules::At;
use crate::safetensors::{self, Entry};
use crate::tensors::{Place, Placed, placed};
use gguf::{Gguf, TensorType, Writer};
use memory::MappedFile;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";

/// Whether a folder is one of PEFT.
pub fn is_adapter(path: &Path) -> bool {
    path.join(CONFIG).is_file()
}

/// Reads a folder of PEFT as the bytes of an adapter in GGUF, for the model whose file is `model`.
///
/// # Errors
/// What is missing in the folder, damaged, or not supported.
pub fn adapter(path: &Path, model: &Gguf<'_>) -> Result<Vec<u8>, Error> {
    let config =
        folder::json(path, CONFIG)?.ok_or_else(|| Error::NotFound { path: path.join(CONFIG) })?;
    let peft = Peft::read(&config)?;
    let arch = model.metadata().str("general.architecture")?;
    let base = base(&config, model, arch)?;
    let families: Vec<&Family> = families::all()
        .filter(|family| {
            family.variant.and_then(|variant| variant(&base)).unwrap_or(family.arch) == arch
        })
        .collect();
    if families.is_empty() {
        let what = format!("nobody knows how a model of architecture {arch:?} is called in PEFT");
        return Err(Error::Config { file: CONFIG, what });
    }
    let file = MappedFile::open(&path.join(TENSORS))?;
    let fault = |what| Error::Safetensors { path: path.join(TENSORS), what };
    let mut modules: BTreeMap<String, [Option<Entry>; 2]> = BTreeMap::new();
    for entry in safetensors::entries(&file).map_err(fault)? {
        let (module, which) = part(&entry.name)?;
        modules.entry(module).or_default()[which] = Some(entry);
    }
    let mut writer = Writer::new();
    writer.kv("general.type", "adapter").kv("general.architecture", arch);
    writer.kv("adapter.type", "lora").kv("adapter.lora.alpha", peft.alpha as f32);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    writer.kv("general.name", name.unwrap_or_else(|| "adapter".to_owned()));
    for (module, [a, b]) in &modules {
        let lacks = |which| fault(format!("module `{module}` has no lora_{which}"));
        let a = Stored { file: &file, entry: a.as_ref().ok_or_else(|| lacks("A"))? };
        let b = Stored { file: &file, entry: b.as_ref().ok_or_else(|| lacks("B"))? };
        for pair in pairs(&families, &base, (module, arch), (&a, &b))? {
            // What is not alpha over the rank is part of B.
            let factor = peft.scale(module, a.rows())? / (peft.alpha / a.rows() as f64);
            let (ty, bytes) = a.taken(None, pair.columns.as_deref(), 1.0);
            writer.tensor(format!("{}.lora_a", pair.name), &[pair.cols, a.rows()], ty, bytes);
            let (ty, bytes) = b.taken(Some(&pair.rows), None, factor);
            writer.tensor(format!("{}.lora_b", pair.name), &[a.rows(), pair.rows.len()], ty, bytes);
        }
    }
    let mut bytes = Vec::new();
    writer.write_to(&mut bytes)?;
    Ok(bytes)
}

/// What the configuration says of scales.
struct Peft {
    alpha: f64,
    /// Alphas of modules, by the ends of their names.
    alphas: Vec<(String, f64)>,
    /// Whether they stand over the root of the rank.
    by_root: bool,
}

impl Peft {
    fn read(config: &Value) -> Result<Peft, Error> {
        let fault = |what: String| Error::Config { file: CONFIG, what };
        let set = |key: &str| match &config[key] {
            Value::Null => false,
            Value::Bool(yes) => *yes,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            Value::String(text) => !text.is_empty(),
            Value::Number(_) => true,
        };
        match config["peft_type"].as_str() {
            Some("LORA") => {}
            other => {
                let other = other.unwrap_or("not there");
                return Err(fault(format!("peft_type is {other}, and only LORA is supported")));
            }
        }
        for (key, why) in [
            ("use_dora", "adapters with magnitudes (DoRA) are not supported"),
            ("use_qalora", "adapters of pooled inputs (QALoRA) are not supported"),
            ("modules_to_save", "modules that were trained whole are not supported"),
            ("layer_replication", "models of repeated layers are not supported"),
            ("trainable_token_indices", "embeddings of new tokens are not supported"),
            ("target_parameters", "adapters of parameters without a module are not supported"),
            (
                "alora_invocation_tokens",
                "adapters with invocation tokens (aLoRA) are not supported",
            ),
            ("lora_bias", "biases of B are not supported"),
        ] {
            if set(key) {
                return Err(fault(format!("{key} is set: {why}")));
            }
        }
        if let Some(bias) = config["bias"].as_str().filter(|bias| *bias != "none") {
            return Err(fault(format!("bias is {bias:?}: trained biases are not supported")));
        }
        let alpha = config["lora_alpha"].as_f64();
        let alpha = alpha.ok_or_else(|| fault("it does not say lora_alpha".to_owned()))?;
        let mut alphas = Vec::new();
        for (pattern, value) in config["alpha_pattern"].as_object().into_iter().flatten() {
            if pattern.contains(['*', '+', '?', '(', ')', '[', ']', '{', '}', '|', '\\', '$']) {
                let what =
                    format!("alpha_pattern has {pattern:?}: regular expressions are not read");
                return Err(fault(what));
            }
            let value = value.as_f64();
            let value =
                value.ok_or_else(|| fault(format!("alpha_pattern of {pattern:?} is no number")))?;
            alphas.push((pattern.clone(), value));
        }
        Ok(Peft { alpha, alphas, by_root: set("use_rslora") })
    }

    /// The factor on the product of a module.
    fn scale(&self, module: &str, rank: usize) -> Result<f64, Error> {
        let meant = |(pattern, _): &&(String, f64)| match pattern.strip_prefix('^') {
            Some(whole) => module == whole,
            None => module
                .strip_suffix(&**pattern)
                .is_some_and(|before| before.is_empty() || before.ends_with('.')),
        };
        let alpha = self.alphas.iter().find(meant).map_or(self.alpha, |(_, alpha)| *alpha);
        if self.alpha == 0.0 {
            return Err(Error::Config { file: CONFIG, what: "lora_alpha is 0".to_owned() });
        }
        let rank = rank as f64;
        Ok(alpha / if self.by_root { rank.sqrt() } else { rank })
    }
}

/// A tensor's module, and whether it is A or B.
fn part(name: &str) -> Result<(String, usize), Error> {
    let fault =
        |what: &str| Err(Error::Config { file: TENSORS, what: format!("tensor `{name}`: {what}") });
    if name.contains("lora_embedding_") {
        return fault("adapters of embeddings are not supported");
    }
    if name.contains("lora_magnitude_vector") {
        return fault("adapters with magnitudes (DoRA) are not supported");
    }
    let short = name.strip_prefix("base_model.model.").unwrap_or(name);
    for (which, mark) in [".lora_A", ".lora_B"].into_iter().enumerate() {
        if let Some((module, end)) = short.split_once(mark) {
            return match end {
                ".weight" | ".default.weight" => Ok((module.to_owned(), which)),
                _ => fault("only weights of lora_A and lora_B are supported"),
            };
        }
    }
    fault("it is neither lora_A nor lora_B: modules that were trained whole are not supported")
}

/// The configuration of the model: that of the folder that PEFT names, if it is here, or what the model's file says.
fn base(config: &Value, model: &Gguf<'_>, arch: &str) -> Result<Config, Error> {
    if let Some(named) = config["base_model_name_or_path"].as_str().map(Path::new)
        && named.is_dir()
        && let Some(config) = folder::json(named, "config.json")?
    {
        return Config::new(config);
    }
    let size = |key: &str| {
        let value = model.metadata().opt_u32(&format!("{arch}.{key}")).ok().flatten();
        value.map_or(Value::Null, Value::from)
    };
    // Delta nets (Qwen3-Next, Qwen3.5).
    let heads = size("ssm.time_step_rank");
    let inner = size("ssm.inner_size");
    let each = inner.as_u64().zip(heads.as_u64()).and_then(|(all, heads)| all.checked_div(heads));
    Config::new(json!({
        "linear_num_key_heads": size("ssm.group_count"),
        "linear_num_value_heads": heads,
        "linear_key_head_dim": size("ssm.state_size"),
        "linear_value_head_dim": each,
        "num_hidden_layers": size("block_count"),
        "hidden_size": size("embedding_length"),
        "num_attention_heads": size("attention.head_count"),
        "num_key_value_heads": size("attention.head_count_kv"),
        "head_dim": size("attention.key_length"),
        "intermediate_size": size("feed_forward_length"),
        "num_experts": size("expert_count"),
    }))
}

/// What becomes of a module's product: a tensor of the file, the rows of B that it has, and the columns of A.
struct Pair {
    name: String,
    rows: Vec<usize>,
    cols: usize,
    columns: Option<Vec<usize>>,
}

fn pairs(
    families: &[&Family],
    base: &Config,
    (module, arch): (&str, &str),
    (a, b): (&Stored<'_>, &Stored<'_>),
) -> Result<Vec<Pair>, Error> {
    let fault =
        |what: String| Error::Config { file: TENSORS, what: format!("module `{module}`: {what}") };
    let flat = |of: &Stored<'_>| of.entry.shape.len() == 2;
    if !flat(a) || !flat(b) || a.rows() != b.cols() || a.rows() == 0 {
        let (a, b) = (&a.entry.shape, &b.entry.shape);
        return Err(fault(format!("A of {a:?} and B of {b:?} are no pair")));
    }
    let name = format!("{module}.weight");
    let found = families.iter().find_map(|family| match placed(family, base, &name) {
        Placed::There(place) => Some(place),
        Placed::LeftOut | Placed::Nowhere => None,
    });
    let Some(Place { rule, ending, layer, number }) = found else {
        return Err(fault(format!("it has no place in models of architecture {arch:?}")));
    };
    if number.is_some() || rule.to.contains("_exps") {
        return Err(fault("adapters of experts are not supported".to_owned()));
    }
    if rule.to.contains("token_embd") {
        return Err(fault("adapters of embeddings are not supported".to_owned()));
    }
    let at = At { config: base, name: &name };
    let probe = |shape: [usize; 2]| -> Result<[Vec<Array>; 3], Error> {
        let of = |what| (rule.how)(&at, Array::new(&shape, false, Probe(what)));
        Ok([of(Number::Row)?, of(Number::Column)?, of(Number::One)?])
    };
    let (rows, cols) = (b.rows(), a.cols());
    let mut probes = probe([rows, cols])?;
    // Where the rule exchanges rows and columns, the model has its matrix the other way round.
    let is_turned = probes[0].first().is_some_and(|of| {
        of.shape().len() == 2
            && of.cols() > 1
            && line(of, 0..1, 0..2).windows(2).any(|w| w[0] != w[1])
    });
    if is_turned {
        probes = probe([cols, rows])?;
        probes.swap(0, 1);
    }
    let [by_row, by_col, ones] = probes;
    let mut pairs = Vec::new();
    for (at, to) in rule.to.split(' ').enumerate() {
        let name = match layer {
            Some(n) => format!("blk.{n}.{to}{ending}"),
            None => format!("{to}{ending}"),
        };
        let (Some(of), Some(by_col), Some(ones)) = (by_row.get(at), by_col.get(at), ones.get(at))
        else {
            continue;
        };
        if of.shape().len() != 2 || line(ones, 0..1, 0..1) != [1.0] {
            return Err(fault("what the file has of it is no product of rows".to_owned()));
        }
        let number = |x: &f32| *x as usize;
        let rows: Vec<usize> = line(of, 0..of.rows(), 0..1).iter().map(number).collect();
        let columns: Vec<usize> = line(by_col, 0..1, 0..of.cols()).iter().map(number).collect();
        // The last row and column go the same way as the first.
        let last_row = line(by_col, of.rows() - 1..of.rows(), 0..of.cols());
        let last_col = line(of, 0..of.rows(), of.cols() - 1..of.cols());
        let same =
            |line: &[f32], numbers: &[usize]| line.iter().map(number).eq(numbers.iter().copied());
        if !same(&last_row, &columns) || !same(&last_col, &rows) {
            return Err(fault("what the file has of it is no product of rows".to_owned()));
        }
        let in_order = columns.iter().copied().eq(0..cols);
        let (cols, columns) = (columns.len(), (!in_order).then_some(columns));
        pairs.push(Pair { name, rows, cols, columns });
    }
    Ok(pairs)
}

/// A block of an array.
fn line(of: &Array, rows: Range<usize>, cols: Range<usize>) -> Vec<f32> {
    let mut out = vec![0.0; rows.len() * cols.len()];
    of.read_block(rows, cols, &mut out);
    out
}

/// What the elements of a probe are.
#[derive(Copy, Clone)]
enum Number {
    Row,
    Column,
    One,
}

struct Probe(Number);

impl Blocks for Probe {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        for (row, out) in rows.zip(out.chunks_exact_mut(cols.len().max(1))) {
            for (col, out) in cols.clone().zip(out) {
                *out = match self.0 {
                    Number::Row => row as f32,
                    Number::Column => col as f32,
                    Number::One => 1.0,
                };
            }
        }
    }
}

/// A or B in its file.
struct Stored<'a> {
    file: &'a MappedFile,
    entry: &'a Entry,
}

impl Stored<'_> {
    fn rows(&self) -> usize {
        self.entry.shape.first().copied().unwrap_or(0)
    }

    fn cols(&self) -> usize {
        self.entry.shape.get(1).copied().unwrap_or(0)
    }

    /// Some rows and columns, times a factor: F16 if it is stored so and nothing is multiplied, or else F32.
    fn taken(
        &self,
        rows: Option<&[usize]>,
        columns: Option<&[usize]>,
        factor: f64,
    ) -> (TensorType, Vec<u8>) {
        let mut all = vec![0.0; self.rows() * self.cols()];
        self.entry.dtype.read(&self.file[self.entry.bytes.clone()], &mut all);
        let row = |row: usize| {
            let row = &all[row * self.cols()..][..self.cols()];
            match columns {
                None => row.to_vec(),
                Some(columns) => columns.iter().map(|&col| row[col]).collect(),
            }
        };
        let mut values: Vec<f32> = match rows {
            None => (0..self.rows()).flat_map(row).collect(),
            Some(rows) => rows.iter().flat_map(|&at| row(at)).collect(),
        };
        if factor != 1.0 {
            values.iter_mut().for_each(|value| *value = (f64::from(*value) * factor) as f32);
        }
        match (self.entry.dtype, factor) {
            (crate::dtype::Dtype::F16, 1.0) => {
                let half = |value: f32| half::f16::from_f32(value).to_le_bytes();
                (TensorType::F16, values.into_iter().flat_map(half).collect())
            }
            _ => (TensorType::F32, values.into_iter().flat_map(f32::to_le_bytes).collect()),
        }
    }
}
