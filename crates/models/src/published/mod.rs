//! Published models by name: the one table that says how large they are and what their files hold.
//!
//! A name such as `qwen3-4b:q4_0` is a row of [`SHAPES`] and one of [`mixes`]. The metadata of its
//! file follow from these, and the tensors from the metadata, as the page of the family asks for them.

mod dense;
mod mixes;
mod shapes;

pub use mixes::{Mix, fit, mixes, more_bits};
pub use shapes::{Experts, SHAPES, Shape, Stated, Stretch};

use crate::{Error, Model, Outline};
use gguf::{Gguf, TensorType, Writer};
use graph::{Shares, TensorSpec};
use std::fmt;
use std::ops::Range;

/// A published model in a mix of types.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// What it is.
    pub shape: Shape,
    /// What its tensors are stored as.
    pub mix: Mix,
    /// Whether its file has the layer that predicts further tokens.
    pub predicts: bool,
}

impl Published {
    /// Its graph for the memory nodes of `shares`. There are no weights, so this takes next to no
    /// memory, whatever the size of the model.
    ///
    /// # Panics
    /// When the shape is none of [`SHAPES`] and its family cannot have it.
    pub fn build(&self, shares: impl Into<Shares>) -> Model {
        self.try_build(shares, false).expect("published shapes are of their families")
    }

    /// The same of a run of layers, as [`build_part`](crate::build_part) builds them.
    ///
    /// # Errors
    /// When more than the residual stream goes from these layers to others.
    pub fn build_part(
        &self,
        shares: impl Into<Shares>,
        layers: Range<usize>,
    ) -> Result<Model, Error> {
        self.outlined(false, |outline| outline.build_part(shares, layers))
    }

    /// Its graph, and with `predicts` what predicts further tokens.
    fn try_build(&self, shares: impl Into<Shares>, predicts: bool) -> Result<Model, Error> {
        self.outlined(predicts, |outline| outline.build(shares))
    }

    fn outlined(
        &self,
        predicts: bool,
        build: impl FnOnce(&Outline<'_>) -> Result<Model, Error>,
    ) -> Result<Model, Error> {
        let (mut w, mut bytes) = (Writer::new(), Vec::new());
        self.write_metadata(self.shape.title, &mut w);
        w.write_to(&mut bytes).expect("a vector takes everything");
        let gguf = Gguf::parse(&bytes).expect("what was just written can be read");
        let Shape { vocab, tied, optional, layers, .. } = self.shape;
        let last_norm = format!("blk.{layers}.nextn.shared_head_norm.weight");
        let mut extras = vec![last_norm.as_str()];
        extras.extend((!tied).then_some("output.weight"));
        let outline = Outline {
            metadata: gguf.metadata(),
            vocab,
            ty: &|name, cols| fit(self.mix.of(name, &self.shape), cols),
            of_layers: optional,
            extras: &extras,
            values: &self.shape.values(),
            predicts,
        };
        build(&outline)
    }

    /// The tensors of its file.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let model = self.try_build(1, self.predicts).expect("it was built when it was named");
        model.graph.tensors().to_vec()
    }

    /// The metadata of its file, but for the vocabulary. `name` becomes `general.name`.
    pub fn write_metadata(&self, name: &str, w: &mut Writer<'_>) {
        let s = &self.shape;
        let key = |k: &str| format!("{}.{k}", s.arch);
        w.kv("general.architecture", s.arch)
            .kv("general.type", "model")
            .kv("general.name", name)
            .kv("general.file_type", self.mix.file_type)
            .kv("general.quantization_version", 2u32)
            .kv(key("context_length"), s.context)
            .kv(key("attention.layer_norm_rms_epsilon"), s.norm_eps)
            .kv(key("rope.freq_base"), s.rope_theta);
        for (name, size) in [
            ("block_count", s.layers + usize::from(self.predicts)),
            ("embedding_length", s.hidden),
            ("feed_forward_length", s.ffn),
            ("attention.head_count", s.heads),
            ("attention.head_count_kv", s.kv_heads),
            ("attention.key_length", s.head_dim),
            ("attention.value_length", s.head_dim),
        ] {
            if s.more.iter().all(|(more, _)| *more != name) {
                w.kv(key(name), size as u32);
            }
        }
        if self.predicts {
            w.kv(key("nextn_predict_layers"), 1u32);
        }
        for (name, value) in s.more {
            match *value {
                Stated::Size(size) => w.kv(key(name), size),
                Stated::Number(number) => w.kv(key(name), number),
                Stated::Bool(bool) => w.kv(key(name), bool),
                Stated::List(numbers) => w.kv(key(name), numbers),
                Stated::Of(number, of) => {
                    // A model that is cut short has one of them at least.
                    let last = s.layers as u32 - 1;
                    let cut = !of.iter().any(|layer| *layer <= last);
                    let has = |layer: u32| of.contains(&layer) || cut && layer == last;
                    let number = |layer| if has(layer) { number } else { 0 };
                    w.kv(key(name), (0..=last).map(number).collect::<Vec<u32>>())
                }
            };
        }
        if let Some(Experts { count, used, width }) = s.experts {
            w.kv(key("expert_count"), count as u32);
            w.kv(key("expert_used_count"), used as u32);
            w.kv(key("expert_feed_forward_length"), width as u32);
        }
        if let Some(window) = s.window {
            w.kv(key("attention.sliding_window"), window);
        }
        match s.stretch {
            Stretch::None | Stretch::Llama3(_) => {}
            Stretch::Linear(factor) => {
                w.kv(key("rope.scaling.type"), "linear").kv(key("rope.scaling.factor"), factor);
            }
            Stretch::Yarn(factor, original) => {
                w.kv(key("rope.scaling.type"), "yarn").kv(key("rope.scaling.factor"), factor);
                w.kv(key("rope.scaling.original_context_length"), original);
            }
        }
        // Converters write these for this architecture alone.
        if s.arch == "llama" {
            w.kv(key("rope.dimension_count"), s.head_dim as u32);
            w.kv(key("vocab_size"), s.vocab as u32);
        }
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { name, layers, .. } = self.shape;
        f.write_str(name)?;
        if self.predicts {
            f.write_str("+mtp")?;
        }
        if SHAPES.iter().all(|known| (known.name, known.layers) != (name, layers)) {
            write!(f, "/{layers}")?;
        }
        write!(f, ":{}", self.mix.name.to_lowercase())
    }
}

impl std::str::FromStr for Published {
    type Err = Error;

    fn from_str(text: &str) -> Result<Published, Error> {
        let (shape, mix) = text.split_once(':').ok_or(Error::NotShapeAndType)?;
        let (shape, layers) = match shape.split_once('/') {
            None => (shape, None),
            Some((shape, layers)) => {
                (shape, Some(layers.parse().map_err(|_| Error::NotShapeAndType)?))
            }
        };
        let (shape, predicts) = match shape.strip_suffix("+mtp") {
            Some(shape) => (shape, true),
            None => (shape, false),
        };
        let unknown = |what, name: &str, known: &[&str]| {
            let (name, known) = (name.to_owned(), known.join(", "));
            Error::NotPublished { what, name, known }
        };
        let known = SHAPES.each_ref().map(|s| s.name);
        let at = known.iter().position(|name| name.eq_ignore_ascii_case(shape));
        let shape = SHAPES[at.ok_or_else(|| unknown("shape", shape, &known))?];
        let shape = layers.map_or(Ok(shape), |layers| shape.first_layers(layers))?;
        let (mixes, known) = (mixes(), mix_names());
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let at = known.iter().position(|name| name.eq_ignore_ascii_case(mix));
        let mix = mixes[at.ok_or_else(|| unknown("type", mix, &known))?];
        let published = Published { shape, mix, predicts };
        if predicts {
            published.try_build(1, true)?;
        }
        Ok(published)
    }
}

/// Names of the mixes, as they are usually typed.
fn mix_names() -> Vec<String> {
    mixes().iter().map(|mix| mix.name.to_lowercase()).collect()
}

/// The table of shapes and types for people.
pub fn help() -> String {
    let mut text = "Shapes (size as q4_0, in GB):\n".to_owned();
    let mix = Mix::plain(TensorType::Q4_0.info());
    // Every command makes its help when it starts, so only the first two layers of a kind are made.
    let bytes = |shape: Shape, layers: usize| -> usize {
        let model = Published { shape: Shape { layers, ..shape }, mix, predicts: false };
        model.tensors().iter().map(TensorSpec::bytes).sum()
    };
    for shape in SHAPES {
        let gb = if shape.is_hybrid() {
            bytes(shape, shape.layers)
        } else {
            let first = shape.leading_dense() + 1;
            let (one, two) = (bytes(shape, first), bytes(shape, first + 1));
            one + (shape.layers - first) * (two - one)
        } as f64
            / 1e9;
        text += &match gb < 0.01 {
            false => format!("  {:<16} {gb:>6.2}  {}\n", shape.name, shape.title),
            true => {
                format!("  {:<16} {gb:>6.3}  no published model: to try things out\n", shape.name)
            }
        };
    }
    let mixes = mix_names().join(", ");
    text + &format!(
        "\nTypes:\n  {mixes}\n  (files of 5 bits and fewer have a Q6_K head, as published ones do)\n\n\
         SHAPE/N:TYPE is a model of the first N layers, for machines with little memory.\n\
         SHAPE+mtp:TYPE has the layer that predicts further tokens, where the family has one.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gguf::TensorType;
    use graph::KvType;

    fn model(text: &str) -> Published {
        text.parse().unwrap()
    }

    fn bytes(tensors: &[TensorSpec]) -> usize {
        tensors.iter().map(TensorSpec::bytes).sum()
    }

    #[test]
    fn sizes_and_counts_are_those_of_the_published_models() {
        let params = |text| model(text).tensors().iter().map(TensorSpec::elements).sum::<usize>();
        // From the models' cards, or the sum of their safetensors.
        assert_eq!(params("qwen3-0.6b:f32"), 596_049_920);
        assert_eq!(params("qwen3-8b:f32"), 8_190_735_360);
        assert_eq!(params("qwen3-14b:f32"), 14_768_307_200);
        assert_eq!(params("qwen3-32b:f32"), 32_762_123_264);
        assert_eq!(params("llama-160m:f32"), 162_417_408);
        assert_eq!(params("sheared-llama-1.3b:f32"), 1_345_423_360);
        assert_eq!(params("llama3.2-1b:f32") - 32, 1_235_814_400);
        assert_eq!(params("llama3-8b:f32"), 8_030_261_248);
        assert_eq!(params("llama3.3-70b:f32") - 64, 70_553_706_496);
        assert_eq!(params("olmo2-1b:f32"), 1_484_916_736);
        assert_eq!(params("qwen3-30b-a3b:f32"), 30_532_122_624);
        assert_eq!(params("qwen3-235b-a22b:f32"), 235_093_634_560);
        assert_eq!(params("olmoe-1b-7b:f32"), 6_919_161_856);
        assert_eq!(params("gpt-oss-20b:f32"), 20_914_757_184);
        assert_eq!(params("gpt-oss-120b:f32"), 116_829_156_672);
        assert_eq!(params("deepseek-v2-lite:f32"), 15_706_484_224);
        assert_eq!(params("deepseek-v3:f32"), 671_026_419_200);
        // The card counts 14 billion more, of which 1.9 are embedding and head again.
        let further = params("deepseek-v3+mtp:f32") - params("deepseek-v3:f32");
        assert_eq!(further / 100_000_000, 116);
        assert_eq!(params("lfm2-1.2b:f32"), 1_170_340_608);
        assert_eq!(params("granite4-h-tiny:f32"), 6_939_037_248);
        assert_eq!(params("gemma3-270m:f32"), 268_098_176);
        // Of 4.3 billion, without the 420 million that see images.
        assert_eq!(params("gemma3-4b:f32"), 3_880_099_328);
    }

    #[test]
    fn qwen3_4b_q4_0_has_the_bytes_of_its_file() {
        // A file of 2.37 GB, of which 6 MB are metadata.
        let model = model("qwen3-4b:q4_0");
        let (layers, others): (Vec<TensorSpec>, _) = model
            .tensors()
            .into_iter()
            .filter(|t| t.rows > 1)
            .partition(|t| t.name.starts_with("blk."));
        assert_eq!((bytes(&layers) / 100_000, bytes(&others) / 100_000), (20_437, 3190));
        assert_eq!(bytes(&model.tensors()) / 1_000_000, 2363);
        // Packed, pieces of columns that are summed apart are padded to whole lines.
        for nodes in [1, 4] {
            let graph = model.build(nodes).graph;
            let of_layers = graph.matrices().iter().filter(|m| m.name != "vocab");
            let of_nodes = of_layers.flat_map(|m| (0..nodes).map(|n| m.node_bytes(n)));
            let more = of_nodes.sum::<usize>() - bytes(&layers);
            assert!(more < bytes(&layers) / 500, "{nodes} nodes: {more}");
        }
    }

    #[test]
    fn models_with_a_layer_that_predicts_are_named() {
        let with = model("tiny-hybrid+mtp:q8_0");
        assert_eq!(with.to_string(), "tiny-hybrid+mtp:q8_0");
        let names: Vec<String> = with.tensors().into_iter().map(|t| t.name).collect();
        assert!(
            names.iter().any(|name| name == "blk.4.nextn.shared_head_norm.weight"),
            "{names:?}"
        );
        let error = "qwen3-0.6b+mtp:q4_0".parse::<Published>().unwrap_err().to_string();
        assert!(
            error.contains("no layers that predict") || error.contains("not supported"),
            "{error}"
        );
    }

    #[test]
    fn graphs_of_all_shapes_need_no_weights() {
        let mix = model("tiny:q4_0").mix;
        for shape in SHAPES {
            let published = Published { shape, mix, predicts: false };
            let tensors = published.tensors();
            let matrix = |t: &&TensorSpec| t.rows > 1 && !crate::is_vector(&t.name);
            let file: usize = tensors.iter().filter(matrix).map(TensorSpec::bytes).sum();
            for nodes in [1, 4] {
                let Model { hparams, graph } = published.build(nodes);
                assert_eq!((hparams.layers, hparams.vocab), (shape.layers, shape.vocab));
                let of_nodes =
                    graph.matrices().iter().flat_map(|m| (0..nodes).map(|n| m.node_bytes(n)));
                let packed: usize = of_nodes.sum();
                // Blocks of Q6_K, as the head has them, grow by a hundredth; pieces of columns are
                // padded to lines, and nodes pad the tiles at their ends.
                // What makes latents is on every node.
                let everywhere = |t: &&TensorSpec| {
                    ["attn_kv_a_mqa", "attn_q_a.", "ffn_gate_inp"]
                        .iter()
                        .any(|n| t.name.contains(n))
                };
                let copies: usize = tensors.iter().filter(everywhere).map(TensorSpec::bytes).sum();
                // So is what makes a key/value head of which there are fewer than nodes, in 8 bits at most.
                let lacking = nodes.saturating_sub(shape.kv_heads) * shape.layers;
                let of_heads = lacking * 2 * shape.head_dim * shape.hidden / 32 * 34;
                let most = file + file / 50 + (nodes << 17) + (nodes - 1) * copies + of_heads;
                assert!((file..=most).contains(&packed), "{published}: {packed} of {file}");
                let classes = 0..graph.classes().len();
                let of_class = |class| {
                    let of_node = |n| graph.kv_bytes_per_token(n, KvType::F16, class);
                    (0..nodes).map(of_node).sum::<usize>()
                };
                // Keys and values, with copies where there are more nodes than heads. Latents are both at once.
                let latents = shape.more.iter().any(|(key, _)| key.ends_with("kv_lora_rank"));
                let (heads, halves) = (shape.kv_heads.max(nodes), if latents { 1 } else { 2 });
                let layers = shape.attention_layers();
                let token = layers * heads * shape.head_dim * halves * size_of::<u16>();
                let held = classes.map(of_class).sum::<usize>();
                match heads.is_multiple_of(nodes) {
                    true => assert_eq!(held, token, "{published}"),
                    // Nodes that share a head both have it.
                    false => assert!((token..2 * token).contains(&held), "{published}: {held}"),
                }
            }
        }
    }

    #[test]
    fn half_of_the_layers_of_q4_k_m_have_more_bits() {
        let tensors = model("qwen3-4b:q4_k_m").tensors();
        let of = |tensor: &str, ty| {
            tensors.iter().filter(|t| t.name.ends_with(tensor) && t.ty == ty).count()
        };
        assert_eq!(of("attn_v.weight", TensorType::Q6_K), 18);
        assert_eq!(of("ffn_down.weight", TensorType::Q6_K), 18);
        assert_eq!(of("ffn_up.weight", TensorType::Q6_K), 0);
    }

    #[test]
    fn unknown_names_are_told_with_the_known_ones() {
        let error = |text: &str| text.parse::<Published>().unwrap_err().to_string();
        assert!(error("qwen9:q4_0").contains("\"qwen9\"") && error("qwen9:q4_0").contains("tiny"));
        assert!(error("tiny:q9").contains("\"q9\"") && error("tiny:q9").contains("q4_k_m"));
        assert!(error("tiny").contains("colon"));
        assert_eq!(model("Qwen3-4B:Q4_K_M").to_string(), "qwen3-4b:q4_k_m");
        let cut = model("qwen3-30b-a3b/12:q4_0");
        assert_eq!((cut.shape.layers, cut.to_string().as_str()), (12, "qwen3-30b-a3b/12:q4_0"));
        assert_eq!(error("qwen3-4b/37:q4_0"), "qwen3-4b has 36 layers: 37 of them cannot be made");
        assert!(error("qwen3-4b/x:q4_0").contains("a shape and a type"));
    }
}
