//! Images in prompts: the encoder, what it gave, and where that stands.
//!
//! In a prompt an image has ids where others have tokens. They are made of a hash of its pixels ([`Tile::ids`]), so the
//! prefix cache finds an image that it has seen and takes no other for it. What the encoder gives of a tile is kept for
//! a while, as the same image comes again with every turn of a conversation.

use crate::engine::{BatchEntry, Engine};
use crate::error::Error;
use crate::file::ModelFile;
use crate::load::LoadProgress;
use crate::options::{KvSize, LoadOptions, Numa};
use graph::{Graph, Inset, KvType, Outputs, Schedules, Shares, Spot, Together};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use vision::{Piece, Processor, Rows, Tile};

/// Bytes of outputs that are kept for tiles that come again.
const KEPT: usize = 256 << 20;

/// Outputs of a tile, `[outputs, width]`.
pub(crate) type Encoded = Arc<Vec<f32>>;

/// An image encoder on the cores of an engine.
pub struct Encoder {
    engine: Engine,
    processor: Processor,
    /// By tile: its outputs, and when they were wanted last.
    known: HashMap<[u8; 16], (Encoded, u64)>,
    bytes: usize,
    now: u64,
}

impl Encoder {
    /// Loads the encoder in `file` for `engine`, on its cores: call it on the thread that loaded the engine.
    ///
    /// # Errors
    /// When the file has no encoder of a supported family, is for a model of another width, or cannot be loaded.
    pub fn load(
        file: &ModelFile,
        engine: &Engine,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Encoder, Error> {
        let processor = processor(file)?;
        let exact = options.kv == KvType::F32.into();
        let kv = if exact { KvType::F32 } else { KvType::F16 }.into();
        let numa = if options.numa == Numa::Pipeline { Numa::Auto } else { options.numa };
        let options = LoadOptions {
            numa,
            kv,
            context: Some(processor.vision().most_patches),
            sequences: Some(1),
            kv_size: KvSize::Each,
            phases: Vec::new(),
            schedules: Schedules::default(),
            schedules_for: None,
            huge_pages: None,
            predicting: false,
            step_tokens: None,
            step_outputs: None,
            ..options.clone()
        };
        let encoder = engine.load_beside(file, &options, progress)?;
        same_width(encoder.executor.graph(), engine.executor.graph())?;
        let (known, bytes, now) = (HashMap::new(), 0, 0);
        Ok(Encoder { engine: encoder, processor, known, bytes, now })
    }

    /// What is made of pictures for it.
    pub fn processor(&self) -> &Processor {
        &self.processor
    }

    /// What the encoder gives of a tile: `[outputs, width]`.
    ///
    /// # Errors
    /// When the tile has more patches than the encoder takes, or a step fails.
    pub fn encode(&mut self, tile: &Tile) -> Result<Arc<Vec<f32>>, Error> {
        self.now += 1;
        if let Some((rows, used)) = self.known.get_mut(&tile.id()) {
            *used = self.now;
            return Ok(rows.clone());
        }
        let encoded = Arc::new(self.compute(&self.processor.rows(tile))?);
        self.keep(tile.id(), encoded.clone());
        Ok(encoded)
    }

    fn compute(&mut self, rows: &Rows) -> Result<Vec<f32>, Error> {
        let sequence = self.engine.new_sequence()?;
        let inset = Inset {
            at: 0,
            len: rows.count,
            rows: &rows.values,
            spots: &rows.spots,
            span: rows.count,
            together: Together::Everywhere,
            runs: &rows.runs,
        };
        // Ids of a sequence that shares nothing tell nothing.
        let tokens = vec![0; rows.count];
        let outputs = Outputs::EachHidden(rows.each);
        let entry = BatchEntry { sequence, tokens: &tokens, outputs };
        let result = self.engine.step_with(&[entry], &[&[inset]]).map(|states| {
            let count = rows.count / rows.each;
            let width = states.hidden(0).len();
            let mut all = vec![0.0; count * width];
            for at in 0..count {
                let place = rows.order.get(at).map_or(at, |&place| place as usize);
                all[place * width..(place + 1) * width].copy_from_slice(states.hidden(at));
            }
            all
        });
        self.engine.free(sequence)?;
        result
    }

    fn keep(&mut self, id: [u8; 16], rows: Encoded) {
        self.bytes += size_of_val(rows.as_slice());
        self.known.insert(id, (rows, self.now));
        while self.bytes > KEPT && self.known.len() > 1 {
            let oldest = self.known.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id);
            let Some((gone, _)) = oldest.and_then(|id| self.known.remove(&id)) else { break };
            self.bytes -= size_of_val(gone.as_slice());
        }
    }
}

/// What is made of pictures for the encoder in a file.
///
/// # Errors
/// When the file has no encoder of a supported family.
pub fn processor(file: &ModelFile) -> Result<Processor, Error> {
    let gguf = file.gguf()?;
    let read = |of: &gguf::Tensor<'_>, values: &mut [f32]| file.values(of, 0..of.rows(), values);
    Ok(Processor::new(&gguf, &read)?)
}

/// Whether the encoder in one file gives what the model in another takes, from their headers alone.
///
/// # Errors
/// When it has no encoder of a supported family or is for a model of another width, or the model is not supported.
pub fn encoder_fits(encoder: &ModelFile, model: &ModelFile) -> Result<(), Error> {
    processor(encoder)?;
    let graph = |file: &ModelFile| -> Result<Graph, Error> {
        Ok(models::build(&file.gguf()?, Shares::from(1))?.graph)
    };
    same_width(&graph(encoder)?, &graph(model)?)
}

fn same_width(encoder: &Graph, model: &Graph) -> Result<(), Error> {
    let (gives, takes) = (encoder.hidden_width(), model.row_width());
    if gives == takes { Ok(()) } else { Err(Error::EncoderWidth { gives, takes }) }
}

/// Outputs of a tile in a prompt.
#[derive(Clone, Debug)]
pub struct ImagePart {
    at: usize,
    tile: Arc<Tile>,
    outputs: Range<usize>,
    spots: Vec<Spot>,
    span: usize,
    rows: Option<Encoded>,
}

impl ImagePart {
    /// Outputs of `tile` from position `at` of a prompt on.
    ///
    /// # Panics
    /// When the tile has no such outputs.
    pub fn new(at: usize, tile: Arc<Tile>, outputs: Range<usize>) -> ImagePart {
        assert!(!outputs.is_empty() && outputs.end <= tile.outputs(), "outputs of the tile");
        let (spots, span) = tile.spots(outputs.clone());
        ImagePart { at, tile, outputs, spots, span, rows: None }
    }

    /// Positions in the prompt.
    pub fn range(&self) -> Range<usize> {
        self.at..self.at + self.outputs.len()
    }

    /// The tile.
    pub fn tile(&self) -> &Arc<Tile> {
        &self.tile
    }

    /// Which of its outputs.
    pub fn outputs(&self) -> Range<usize> {
        self.outputs.clone()
    }

    /// For [`Engine::step_with`], with all that the [encoder](Encoder::encode) gave of the tile.
    pub fn inset_of<'a>(&'a self, all: &'a [f32]) -> Inset<'a> {
        let width = all.len() / self.tile.outputs();
        let own = self.outputs.start * width..self.outputs.end * width;
        // Nothing is known of a tile that is not encoded.
        self.inset_with(all.get(own).unwrap_or_default())
    }

    fn inset(&self) -> Inset<'_> {
        self.inset_of(self.rows.as_ref().map_or(&[], |all| all))
    }

    fn inset_with<'a>(&'a self, rows: &'a [f32]) -> Inset<'a> {
        Inset {
            at: self.at,
            len: self.outputs.len(),
            rows,
            spots: &self.spots,
            span: self.span,
            together: self.tile.together(),
            runs: &[],
        }
    }
}

/// A prompt of tokens and images.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    /// Tokens, and ids of the images' outputs where these stand.
    pub tokens: Vec<u32>,
    /// The images, in the order of their positions.
    pub images: Vec<ImagePart>,
}

impl Prompt {
    /// A prompt of pieces, whose text `encode` makes tokens of; it is told whether it is the prompt's beginning.
    ///
    /// # Errors
    /// Those of `encode`.
    pub fn of<E>(
        pieces: &[Piece],
        mut encode: impl FnMut(&str, bool) -> Result<Vec<u32>, E>,
    ) -> Result<Prompt, E> {
        let mut prompt = Prompt::default();
        let (mut text, mut begun) = (String::new(), false);
        for piece in pieces {
            match piece {
                Piece::Text(more) => text.push_str(more),
                Piece::Outputs(tile, outputs) => {
                    prompt.tokens.extend(encode(&text, !begun)?);
                    (begun, text) = (true, String::new());
                    let at = prompt.tokens.len();
                    prompt.images.push(ImagePart::new(at, tile.clone(), outputs.clone()));
                    prompt.tokens.extend(tile.ids(outputs.clone()));
                }
            }
        }
        if !text.is_empty() || !begun {
            prompt.tokens.extend(encode(&text, !begun)?);
        }
        Ok(prompt)
    }
}

/// The images of a prompt that is computed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images(Vec<ImagePart>);

impl Images {
    /// # Errors
    /// When they are no parts of a prompt of so many tokens, or one is larger than a step of `most` although it has to
    /// be one, or than its rows of outputs, where those of all tokens are wanted.
    pub(crate) fn new(
        parts: Vec<ImagePart>,
        tokens: usize,
        (most, outputs): (usize, Option<usize>),
    ) -> Result<Images, Error> {
        let mut end = 0;
        for part in &parts {
            let own = part.range();
            if own.start < end || own.end > tokens {
                return Err(Error::ImagePlace { at: own.start });
            }
            let whole = part.tile.together() != Together::No;
            if whole && own.len() > most {
                return Err(Error::ImageStep { outputs: own.len(), most });
            }
            if let Some(most) = outputs.filter(|most| whole && own.len() > *most) {
                return Err(Error::ImageOutputs { outputs: own.len(), most });
            }
            end = own.end;
        }
        Ok(Images(parts))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For a step.
    pub(crate) fn insets(&self) -> Vec<Inset<'_>> {
        self.0.iter().map(ImagePart::inset).collect()
    }

    /// Whether there is no token at a position.
    pub(crate) fn have(&self, position: usize) -> bool {
        self.0.iter().any(|part| part.range().contains(&position))
    }

    /// The first tile from a position on that is still to be encoded.
    pub(crate) fn missing(&self, from: usize) -> Option<&Arc<Tile>> {
        let missing = |part: &&ImagePart| part.rows.is_none() && part.range().end > from;
        self.0.iter().find(missing).map(|part| &part.tile)
    }

    /// What the encoder gave of a tile.
    pub(crate) fn fill(&mut self, id: [u8; 16], rows: &Encoded) {
        let parts = self.0.iter_mut().filter(|part| part.tile.id() == id);
        parts.for_each(|part| part.rows = Some(rows.clone()));
    }

    /// Of the `tokens` from position `from` on, how many a step can take: no image that is not encoded yet, and rows that
    /// see each other all or not at all.
    pub(crate) fn cut(&self, from: usize, tokens: usize) -> usize {
        let mut end = from + tokens;
        for part in &self.0 {
            let own = part.range();
            if own.end <= from || own.start >= end {
                continue;
            }
            if part.rows.is_none() || part.tile.together() != Together::No && own.end > end {
                end = own.start.max(from);
            }
        }
        end - from
    }

    /// Of the tokens from position `from` on, how many a step has to take at least: all rows of an image that see each
    /// other; none while the image is not encoded.
    pub(crate) fn piece(&self, from: usize) -> usize {
        let part = self.0.iter().find(|part| part.range().contains(&from));
        part.map_or(1, |part| match part.tile.together() {
            _ if part.rows.is_none() => 0,
            Together::No => 1,
            _ => part.range().end - from,
        })
    }

    /// Where a sequence can go on of which `len` tokens are there: not within rows that see each other.
    pub(crate) fn resume(&self, len: usize) -> usize {
        let within = |part: &&ImagePart| {
            part.tile.together() != Together::No
                && part.range().start < len
                && len < part.range().end
        };
        self.0.iter().find(within).map_or(len, |part| part.range().start)
    }
}
