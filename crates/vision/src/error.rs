//! Why an image cannot be taken.

/// Errors of decoding and of reading an encoder's settings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Bytes of none of the formats.
    #[error("this is no image in PNG, JPEG, WebP or GIF")]
    UnknownFormat,
    /// More pixels than are allowed.
    #[error("the image has {width} by {height} pixels, more than the {most} that are allowed")]
    TooLarge {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// Pixels in all that are allowed.
        most: u64,
    },
    /// A shape that no encoder takes.
    #[error("the image has {width} by {height} pixels: one side is more than 200 times the other")]
    TooNarrow {
        /// Pixels in a row.
        width: usize,
        /// Rows.
        height: usize,
    },
    /// A prompt that does not fit its pictures.
    #[error(
        "the prompt has {marks} marks {marker} for {pictures} images: the chat template shows no images, or the text \
         spells the mark"
    )]
    Marks {
        /// What marks an image.
        marker: &'static str,
        /// How often it is there.
        marks: usize,
        /// Images.
        pictures: usize,
    },
    /// Damaged, or in a variant that is not supported.
    #[error("the image cannot be decoded: {0}")]
    Decode(String),
    /// The encoder's settings.
    #[error(transparent)]
    Model(#[from] models::Error),
    /// A tensor that is read here.
    #[error(transparent)]
    Gguf(#[from] gguf::Error),
    /// Limits of one input that differ by what it is multiplied with.
    #[error(
        "layer {layer} of the image encoder limits the input of {} by a different {limit} each, which is not supported",
        tensors.join(", ")
    )]
    Limits {
        /// The layer.
        layer: usize,
        /// Which limit.
        limit: &'static str,
        /// What is multiplied with the input.
        tensors: &'static [&'static str],
    },
    /// The table of positions does not fit the settings.
    #[error("tensor v.position_embd.weight has {rows} rows of {cols}: {why}")]
    Positions {
        /// Its rows.
        rows: usize,
        /// Its columns.
        cols: usize,
        /// What is wrong.
        why: &'static str,
    },
}
