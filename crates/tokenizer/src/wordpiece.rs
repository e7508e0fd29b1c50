//! WordPiece: words between spaces and punctuation, each cut into the longest tokens that fit.
//!
//! GGUF marks the tokens that begin a word with `▁` and leaves the others bare, where the published
//! vocabularies mark the others with `##`. Cleaning, lower case and accents are BERT's own
//! (normalisation and model of `tokenizers`). Encoding loses spaces, case and what has no token,
//! so decoding does not give the text back.

use tokenizers::models::bpe::Vocab;
use tokenizers::models::wordpiece::WordPiece as Model;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::{
    Model as _, NormalizedString, Normalizer as _, OffsetReferential, OffsetType,
    PreTokenizedString, PreTokenizer as _,
};

use crate::Error;
use crate::spec::VocabSpec;
use crate::spm::SPACE;
use crate::vocab::Tokens;

/// Marks a token that goes on with a word, inside the model.
const GOES_ON: &str = "##";
/// The unknown token's name there. The space keeps it from being a word of the text.
const UNKNOWN: &str = " unknown";

pub(crate) struct WordPiece {
    normalizer: BertNormalizer,
    model: Model,
}

impl WordPiece {
    pub(crate) fn new(
        spec: &VocabSpec,
        tokens: &Tokens<'_>,
        unk: Option<u32>,
    ) -> Result<Self, Error> {
        let unk = unk.ok_or(Error::MissingKey { key: "tokenizer.ggml.unknown_token_id" })?;
        let form = |text: &str| match text.strip_prefix(SPACE) {
            Some(word) => word.to_owned(),
            None => [GOES_ON, text].concat(),
        };
        let mut vocab = Vocab::default();
        for (id, text, _) in tokens.iter().filter(|t| !t.1.is_empty() && !t.2.is_special()) {
            vocab.entry(form(text)).or_insert(id);
        }
        vocab.insert(UNKNOWN.to_owned(), unk);
        let model = Model::builder()
            .vocab(vocab)
            .unk_token(UNKNOWN.to_owned())
            .continuing_subword_prefix(GOES_ON.to_owned())
            .build()
            .map_err(|e| Error::Model(e.to_string()))?;
        let lowercase = spec.lowercase.unwrap_or(true);
        let normalizer = BertNormalizer::new(true, true, spec.strip_accents, lowercase);
        Ok(Self { normalizer, model })
    }

    /// Appends the ids of `text`. Bytes that are not UTF-8 are dropped like control characters.
    pub(crate) fn encode(&self, text: &[u8], out: &mut Vec<u32>) -> Result<(), Error> {
        let fault = |e: tokenizers::Error| Error::Model(e.to_string());
        let text = String::from_utf8_lossy(text);
        // Not for the result, but because the next steps take time quadratic in the text.
        let is_space =
            |c: char| matches!(c, '\t' | '\n' | '\r') || c.is_whitespace() && !c.is_control();
        for stretch in text.split(is_space) {
            let mut normalized = NormalizedString::from(stretch);
            self.normalizer.normalize(&mut normalized).map_err(fault)?;
            let mut words = PreTokenizedString::from(normalized);
            BertPreTokenizer.pre_tokenize(&mut words).map_err(fault)?;
            for (word, _, _) in words.get_splits(OffsetReferential::Normalized, OffsetType::None) {
                let tokens = self.model.tokenize(word).map_err(fault)?;
                out.extend(tokens.iter().map(|t| t.id));
            }
        }
        Ok(())
    }
}
