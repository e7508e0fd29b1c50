//! What a file with an image encoder (`mmproj`) says of it: its family and its sizes.

use crate::hparams::ByLayer;
use crate::{Error, Hparams};
use gguf::{Metadata, Value};
use graph::Together;

/// Encoders by what stands behind them, which tells everything else.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum VisionFamily {
    /// SmolVLM and Idefics 3: SigLIP, squares of patches beside each other.
    Idefics3,
    /// Gemma 3: SigLIP, the mean of squares of patches.
    Gemma3,
    /// Qwen2-VL: RoPE on two axes.
    Qwen2,
    /// Qwen2.5-VL: windows, RoPE on two axes.
    Qwen25,
    /// Qwen3-VL: RoPE on two axes, and what the first layers of the language model add.
    Qwen3,
    /// Pixtral and Mistral 3: RoPE on two axes.
    Pixtral,
    /// Gemma 4: RoPE on two axes, norms on both sides of blocks, the mean of squares of patches.
    Gemma4,
    /// LFM2-VL: SigLIP 2, whose positions fit images of any shape.
    Lfm2,
}

/// Families by `clip.projector_type`.
const FAMILIES: &[(&str, VisionFamily)] = &[
    ("idefics3", VisionFamily::Idefics3),
    ("gemma3", VisionFamily::Gemma3),
    ("qwen2vl_merger", VisionFamily::Qwen2),
    ("qwen2.5vl_merger", VisionFamily::Qwen25),
    ("qwen3vl_merger", VisionFamily::Qwen3),
    ("pixtral", VisionFamily::Pixtral),
    ("gemma4v", VisionFamily::Gemma4),
    ("lfm2", VisionFamily::Lfm2),
];

/// Outputs of an image of a family without a size of its own, at most, unless the file says otherwise: as many as
/// transformers' processors allow where nothing is said.
const MOST_OUTPUTS: usize = 1280;

/// An image encoder's sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Vision {
    /// Its family.
    pub family: VisionFamily,
    /// Pixels on a side of the square that positions are for, or of the largest image.
    pub image_size: usize,
    /// Pixels on a side of a patch.
    pub patch: usize,
    /// Patches on a side of a square that gives one output.
    pub merge: usize,
    /// Width of its residual stream.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Width of its feed-forward layers.
    pub ffn: usize,
    /// Heads.
    pub heads: usize,
    /// Elements of an output: the language model's width.
    pub output: usize,
    /// Added to the variance, or to the mean square.
    pub norm_eps: f32,
    /// Base of the frequencies of RoPE.
    pub rope_theta: f32,
    /// Of so many layers the last one sees everything, the others a window.
    pub window_period: Option<usize>,
    /// Layers whose outputs the first layers of the language model add.
    pub deep: Vec<usize>,
    /// Patches of an image at most.
    pub most_patches: usize,
    /// Pixels of an image as the encoder sees it: at least, and at most. Of families that fit images to such limits.
    pub pixels: (usize, usize),
    /// Longest side that an image is brought to before it is cut.
    pub longest: Option<usize>,
    /// Mean of each colour, from 0 to 1.
    pub mean: [f32; 3],
    /// Deviation of each colour.
    pub deviation: [f32; 3],
}

/// Larger values are a broken file.
const MOST: usize = 1 << 16;

impl Vision {
    /// Whether a file is an image encoder and no language model.
    pub fn is_encoder(metadata: &Metadata<'_>) -> bool {
        matches!(metadata.opt_str("general.architecture"), Ok(Some("clip")))
    }

    /// Reads and checks what a file says.
    ///
    /// # Errors
    /// When it has no image encoder, its family is not supported, or a key is missing or implausible.
    pub fn read(metadata: &Metadata<'_>) -> Result<Vision, Error> {
        let kind = match metadata.opt_str("clip.vision.projector_type")? {
            Some(kind) => kind,
            None => metadata.str("clip.projector_type")?,
        };
        let Some((_, family)) = FAMILIES.iter().find(|(name, _)| *name == kind) else {
            let known: Vec<&str> = FAMILIES.iter().map(|(name, _)| *name).collect();
            return Err(Error::UnsupportedEncoder {
                name: kind.to_owned(),
                known: known.join(", "),
            });
        };
        let family = *family;
        let key = |name: &str| format!("clip.vision.{name}");
        let checked = |name: &str, value: u32| -> Result<usize, Error> {
            let why = match value as usize {
                0 => "it must be at least one",
                value if value > MOST => "no such model exists",
                value => return Ok(value),
            };
            Err(Error::Implausible { key: key(name), value: value.to_string(), why })
        };
        let size =
            |name: &str| -> Result<usize, Error> { checked(name, metadata.u32(&key(name))?) };
        let opt = |name: &str| -> Result<Option<usize>, Error> {
            metadata.opt_u32(&key(name))?.map(|n| checked(name, n)).transpose()
        };
        let (image_size, patch) = (size("image_size")?, size("patch_size")?);
        let (hidden, heads) = (size("embedding_length")?, size("attention.head_count")?);
        if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(4) {
            let why = "heads must share the width, each a multiple of four elements";
            let key = key("attention.head_count");
            return Err(Error::Implausible { key, value: heads.to_string(), why });
        }
        let merge = match family {
            VisionFamily::Idefics3 => opt("projector.scale_factor")?.unwrap_or(2),
            VisionFamily::Gemma3 => opt("projector.scale_factor")?.unwrap_or(4),
            VisionFamily::Lfm2 => opt("projector.scale_factor")?.unwrap_or(2),
            VisionFamily::Gemma4 => opt("projector.scale_factor")?.unwrap_or(3),
            VisionFamily::Qwen2 | VisionFamily::Qwen25 | VisionFamily::Qwen3 => {
                opt("spatial_merge_size")?.unwrap_or(2)
            }
            VisionFamily::Pixtral => opt("spatial_merge_size")?.unwrap_or(1),
        };
        let side = image_size / patch;
        if side == 0
            || matches!(family, VisionFamily::Idefics3 | VisionFamily::Gemma3)
                && !side.is_multiple_of(merge)
        {
            let (key, value) = (key("image_size"), image_size.to_string());
            return Err(Error::Implausible {
                key,
                value,
                why: "it must be a multiple of patches that are one output",
            });
        }
        let layers = size("block_count")?;
        let deep = match metadata.opt_array(&key("is_deepstack_layers"))? {
            None => Vec::new(),
            Some(list) if list.len() == layers => {
                let is = |(layer, value)| (value == Value::Bool(true)).then_some(layer);
                list.values().enumerate().filter_map(is).collect()
            }
            Some(list) => {
                let (key, value) = (key("is_deepstack_layers"), list.len().to_string());
                let why = "it must have a truth value for each layer";
                return Err(Error::Implausible { key, value, why });
            }
        };
        let area = (patch * merge).pow(2);
        let pixels = |name: &str, outputs: usize| {
            Ok::<_, Error>(metadata.opt_u32(&key(name))?.map_or(outputs * area, |n| n as usize))
        };
        let (least, most) = match family {
            VisionFamily::Lfm2 => (64, 256),
            // As many as transformers' processor gives an image, whatever its size.
            VisionFamily::Gemma4 => (1, 280),
            _ => (4, MOST_OUTPUTS),
        };
        let pixels = (pixels("image_min_pixels", least)?, pixels("image_max_pixels", most)?);
        let most_patches = match family {
            VisionFamily::Idefics3 | VisionFamily::Gemma3 | VisionFamily::Pixtral => side * side,
            VisionFamily::Qwen2
            | VisionFamily::Qwen25
            | VisionFamily::Qwen3
            | VisionFamily::Gemma4 => pixels.1 / (patch * patch),
            // A tile, or an image that is not cut.
            VisionFamily::Lfm2 => (512 / patch).pow(2).max(pixels.1 / (patch * patch)),
        };
        if pixels.0 > pixels.1 || most_patches == 0 || most_patches > MOST {
            let (key, value) = (key("image_max_pixels"), pixels.1.to_string());
            return Err(Error::Implausible { key, value, why: "it must allow an image" });
        }
        let colours = |name: &str| {
            let values = metadata.f32s(&key(name))?;
            let found =
                values.try_into().ok().filter(|v: &[f32; 3]| v.iter().all(|x| x.is_finite()));
            let why = "it must be a number for each colour";
            found.ok_or_else(|| Error::Implausible {
                key: key(name),
                value: "a list".to_owned(),
                why,
            })
        };
        Ok(Vision {
            family,
            image_size,
            patch,
            merge,
            hidden,
            layers,
            ffn: size("feed_forward_length")?,
            heads,
            output: size("projection_dim")?,
            norm_eps: metadata.f32(&key("attention.layer_norm_epsilon"))?,
            rope_theta: metadata.opt_f32("clip.rope.freq_base")?.unwrap_or(match family {
                VisionFamily::Gemma4 => 100.0,
                _ => 10_000.0,
            }),
            window_period: opt("n_wa_pattern")?,
            deep,
            most_patches,
            pixels,
            longest: opt("preproc_image_size")?,
            mean: colours("image_mean")?,
            deviation: colours("image_std")?,
        })
    }

    /// Numbers of a patch's pixels, three colours each.
    pub fn pixels_of_patch(&self) -> usize {
        3 * self.patch * self.patch
    }

    /// Whether patches have embeddings of their positions, which come with their pixels.
    pub fn has_positions(&self) -> bool {
        use VisionFamily::{Pixtral, Qwen2, Qwen25};
        !matches!(self.family, Qwen2 | Qwen25 | Pixtral)
    }

    /// In which layers of the language model the outputs of an image see each other. Files do not say it: of Gemma 4's
    /// models the two small ones, which are known by their widths, read images as they read text.
    pub fn together(&self) -> Together {
        const SMALL: [usize; 2] = [1536, 2560];
        match self.family {
            VisionFamily::Gemma3 => Together::Everywhere,
            VisionFamily::Gemma4 if !SMALL.contains(&self.output) => Together::InWindows,
            _ => Together::No,
        }
    }

    /// Numbers of a patch as the encoder takes it.
    pub fn row_width(&self) -> usize {
        self.pixels_of_patch() + if self.has_positions() { self.hidden } else { 0 }
    }

    /// As parameters of a model without tokens.
    pub(crate) fn hparams(&self, metadata: &Metadata<'_>) -> Result<Hparams, Error> {
        Ok(Hparams {
            arch: "clip".to_owned(),
            name: metadata.opt_str("general.name")?.unwrap_or("image encoder").to_owned(),
            vocab: 0,
            token_types: 1,
            context: self.most_patches,
            window: None,
            hidden: self.hidden,
            layers: self.layers,
            predicting: 0,
            ffn: self.ffn,
            heads: self.heads,
            kv_heads: self.heads,
            by_layer: ByLayer {
                kv_heads: vec![self.heads; self.layers],
                ffn: vec![self.ffn; self.layers],
            },
            head_dim: self.hidden / self.heads,
            rope_dims: self.hidden / self.heads,
            rope_theta: self.rope_theta,
            norm_eps: self.norm_eps,
        })
    }
}
