//! The tensors of a folder by their names: of quantised weights, one tensor that stands for what several
//! together say.

mod bitnet;
mod mxfp4;
mod packed;
mod scaled;

use crate::array::Array;
use crate::config::Config;
use crate::error::Error;
use crate::folder::{Folder, Tensor};
use serde_json::Value;
use std::collections::HashSet;

/// What is read, for people.
const KNOWN: &str =
    "fp8, mxfp4, awq, gptq, bitnet and compressed-tensors (float, int, pack-quantized)";

/// All tensors, in the order of the files.
pub(crate) fn arrays(folder: &Folder) -> Result<Vec<(String, Array)>, Error> {
    let form = Form::of(&folder.config)?;
    let mut all = Vec::with_capacity(folder.tensors().len());
    let mut used: HashSet<String> = HashSet::new();
    // Those that stand for others come where the first of these was.
    for tensor in folder.tensors() {
        let name = &tensor.entry.name;
        let found = match &form {
            Form::Plain => None,
            Form::Scaled { block, ending } => scaled::of(folder, name, ending, *block)?,
            Form::Gptq(bits, offset) => packed::gptq(folder, name, *bits, *offset)?,
            Form::Awq(bits) => packed::awq(folder, name, *bits)?,
            Form::Packed(bits) => packed::compressed(folder, name, *bits)?,
            Form::Mxfp4 => mxfp4::of(folder, name)?,
            Form::Ternary { divides } => bitnet::of(folder, name, *divides)?,
        };
        if let Some(Whole { name, array, parts }) = found {
            used.extend(parts);
            all.push((name, array));
        }
    }
    let whole: HashSet<String> = all.iter().map(|(name, _)| name.clone()).collect();
    let unused = |name: &str| !used.contains(name) && !whole.contains(name) && !form.is_aside(name);
    let plain = folder.tensors().iter().filter(|tensor| unused(&tensor.entry.name));
    let mut rest: Vec<(String, Array)> =
        plain.map(|tensor| (tensor.entry.name.clone(), tensor.array())).collect();
    all.append(&mut rest);
    Ok(all)
}

/// A tensor made of several.
struct Whole {
    name: String,
    array: Array,
    /// What it is made of.
    parts: Vec<String>,
}

/// How weights are quantised.
#[derive(Debug, PartialEq)]
enum Form {
    Plain,
    /// Numbers of 8 bits and scales: of blocks of so many rows and columns, or of rows or the whole.
    Scaled {
        block: Option<(usize, usize)>,
        /// What the name of scales ends with besides.
        ending: &'static str,
    },
    /// Bits of a number, and what is added to zero points.
    Gptq(u32, i32),
    Awq(u32),
    /// compressed-tensors: bits of a number.
    Packed(u32),
    Mxfp4,
    /// BitNet: products are divided by scales, or multiplied by them.
    Ternary {
        divides: bool,
    },
}

impl Form {
    fn of(config: &Config) -> Result<Form, Error> {
        let said =
            config.get("quantization_config").or_else(|| config.outer("quantization_config"));
        let Some(said) = said else { return Ok(Form::Plain) };
        let method = said["quant_method"].as_str().unwrap_or("an unnamed method");
        let refused = |detail: String| Error::Quantisation {
            method: method.to_owned(),
            detail,
            known: KNOWN,
        };
        let bits = |value: &Value, known: &[u64]| {
            let bits = value.as_u64().filter(|bits| known.contains(bits));
            bits.map(|bits| bits as u32).ok_or_else(|| refused(format!(" with {value} bits")))
        };
        match method {
            "fp8" => {
                Ok(Form::Scaled { block: block(&said["weight_block_size"]), ending: "_scale_inv" })
            }
            "mxfp4" => Ok(Form::Mxfp4),
            // Weights that are rounded as the model runs.
            "bitnet" if said["quantization_mode"] == "online" => Ok(Form::Plain),
            "bitnet" => Ok(Form::Ternary { divides: said["linear_class"] != "autobitlinear" }),
            "gptq" => {
                let second = said["checkpoint_format"].as_str() == Some("gptq_v2");
                Ok(Form::Gptq(bits(&said["bits"], &[2, 4, 8])?, i32::from(!second)))
            }
            "awq" => match said["version"].as_str().unwrap_or("gemm") {
                version if version.eq_ignore_ascii_case("gemm") => {
                    Ok(Form::Awq(bits(&said["bits"], &[4])?))
                }
                version => Err(refused(format!(" in version {version}"))),
            },
            "compressed-tensors" => {
                let groups = said["config_groups"].as_object();
                let weights: Vec<&Value> =
                    groups.into_iter().flatten().map(|(_, group)| &group["weights"]).collect();
                let [weights] = weights[..] else {
                    return Err(refused(format!(" with {} groups", weights.len())));
                };
                match said["format"].as_str().unwrap_or_default() {
                    "float-quantized" | "int-quantized" | "naive-quantized" => {
                        if weights["group_size"].as_u64().is_some() {
                            return Err(refused(" in groups of columns".to_owned()));
                        }
                        Ok(Form::Scaled {
                            block: block(&weights["block_structure"]),
                            ending: "_scale",
                        })
                    }
                    "pack-quantized" => Ok(Form::Packed(bits(&weights["num_bits"], &[2, 4, 8])?)),
                    format => Err(refused(format!(" in the format {format:?}"))),
                }
            }
            _ => Err(refused(String::new())),
        }
    }

    /// Tensors that only say how what goes in is rounded.
    fn is_aside(&self, name: &str) -> bool {
        const ENDS: [&str; 8] = [
            ".activation_scale",
            "_activation_scale",
            ".input_scale",
            ".input_zero_point",
            ".output_scale",
            ".k_scale",
            ".v_scale",
            ".q_scale",
        ];
        *self != Form::Plain && ENDS.iter().any(|end| name.ends_with(end))
    }
}

fn block(value: &Value) -> Option<(usize, usize)> {
    match &value.as_array()?[..] {
        [rows, cols] => Some((rows.as_u64()? as usize, cols.as_u64()? as usize)),
        _ => None,
    }
    .filter(|&(rows, cols)| rows > 0 && cols > 0)
}

/// A tensor that another one needs.
fn needed<'f>(folder: &'f Folder, name: &str, wanted: &str) -> Result<&'f Tensor, Error> {
    folder
        .tensor(name)
        .ok_or_else(|| Error::MissingTensor { name: name.to_owned(), wanted: wanted.to_owned() })
}

/// Refuses a tensor of another shape.
fn shaped(tensor: &Tensor, want: &[usize]) -> Result<(), Error> {
    match tensor.entry.shape == want {
        true => Ok(()),
        false => Err(Error::Shape {
            name: tensor.entry.name.clone(),
            shape: tensor.entry.shape.clone(),
            want: format!("and should be {want:?}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn methods_are_told_apart_and_others_refused() {
        let form = |said: Value| {
            let config = Config::new(json!({"quantization_config": said})).unwrap();
            Form::of(&config).map_err(|e| e.to_string())
        };
        assert_eq!(form(Value::Null), Ok(Form::Plain));
        assert_eq!(
            form(json!({"quant_method": "fp8", "weight_block_size": [128, 128]})),
            Ok(Form::Scaled { block: Some((128, 128)), ending: "_scale_inv" })
        );
        assert_eq!(form(json!({"quant_method": "gptq", "bits": 4})), Ok(Form::Gptq(4, 1)));
        assert_eq!(form(json!({"quant_method": "bitnet"})), Ok(Form::Ternary { divides: true }));
        assert_eq!(
            form(json!({"quant_method": "bitnet", "linear_class": "autobitlinear"})),
            Ok(Form::Ternary { divides: false })
        );
        assert_eq!(
            form(json!({"quant_method": "bitnet", "quantization_mode": "online"})),
            Ok(Form::Plain)
        );
        assert_eq!(
            form(json!({"quant_method": "gptq", "bits": 8, "checkpoint_format": "gptq_v2"})),
            Ok(Form::Gptq(8, 0))
        );
        let message = form(json!({"quant_method": "gptq", "bits": 3})).unwrap_err();
        assert!(message.contains("\"gptq\" with 3 bits"), "{message}");
        let message = form(json!({"quant_method": "bitsandbytes"})).unwrap_err();
        assert!(message.contains("\"bitsandbytes\", which is not read; fp8"), "{message}");
        let compressed = |format: &str| {
            form(json!({"quant_method": "compressed-tensors", "format": format,
                "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}))
        };
        assert_eq!(compressed("pack-quantized"), Ok(Form::Packed(4)));
        assert!(compressed("nvfp4-pack-quantized").unwrap_err().contains("nvfp4-pack-quantized"));
    }
}
