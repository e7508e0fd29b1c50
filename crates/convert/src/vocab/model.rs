//! `tokenizer.model`: SentencePiece's protocol buffer, of which pieces and some rules are wanted.
//!
//! Few fields of four messages: a reader of its own is smaller than a crate with generated code.

use crate::error::Error;

/// An entry of the vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub(super) text: Vec<u8>,
    pub(super) score: f32,
    /// As in `sentencepiece_model.proto`; 1 where nothing is said.
    pub(super) kind: u64,
}

/// All pieces of a file, in order.
pub(super) fn pieces(file: &[u8]) -> Result<Vec<Piece>, Error> {
    let fault = || Error::vocabulary("tokenizer.model", "it is no SentencePiece model, or damaged");
    let mut pieces = Vec::new();
    for field in fields(file) {
        if let (1, Field::Bytes(bytes)) = field.ok_or_else(fault)? {
            pieces.push(piece(bytes).ok_or_else(fault)?);
        }
    }
    match pieces.is_empty() {
        true => Err(fault()),
        false => Ok(pieces),
    }
}

/// What a file says of texts, besides its pieces.
#[derive(Debug, PartialEq)]
pub(super) struct Rules {
    /// The kind of model: 1 is Unigram, 2 BPE.
    pub(super) kind: u64,
    /// Characters that are replaced, as SentencePiece has compiled them.
    pub(super) replaced: Vec<u8>,
    /// Whether a space is put before the text.
    pub(super) prefix: bool,
    /// Whether spaces at the ends and next to others are dropped.
    pub(super) trims: bool,
}

/// The rules of a file.
pub(super) fn rules(file: &[u8]) -> Result<Rules, Error> {
    let fault = || Error::vocabulary("tokenizer.model", "it is no SentencePiece model, or damaged");
    let mut rules = Rules { kind: 1, replaced: Vec::new(), prefix: true, trims: true };
    for whole in fields(file) {
        let (message, Field::Bytes(bytes)) = whole.ok_or_else(fault)? else { continue };
        if message != 2 && message != 3 {
            continue;
        }
        for field in fields(bytes) {
            match (message, field.ok_or_else(fault)?) {
                (2, (3, Field::Number(kind))) => rules.kind = kind,
                (3, (2, Field::Bytes(replaced))) => rules.replaced = replaced.to_vec(),
                (3, (3, Field::Number(prefix))) => rules.prefix = prefix != 0,
                (3, (4, Field::Number(trims))) => rules.trims = trims != 0,
                _ => {}
            }
        }
    }
    Ok(rules)
}

fn piece(bytes: &[u8]) -> Option<Piece> {
    let mut piece = Piece { text: Vec::new(), score: 0.0, kind: 1 };
    for field in fields(bytes) {
        match field? {
            (1, Field::Bytes(text)) => piece.text = text.to_vec(),
            (2, Field::Four(bits)) => piece.score = f32::from_le_bytes(bits),
            (3, Field::Number(kind)) => piece.kind = kind,
            _ => {}
        }
    }
    Some(piece)
}

enum Field<'a> {
    Number(u64),
    Four([u8; 4]),
    Bytes(&'a [u8]),
    Eight,
}

/// Numbers and values of fields; `None`, and nothing after it, where the bytes are none.
fn fields(bytes: &[u8]) -> impl Iterator<Item = Option<(u64, Field<'_>)>> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let mut bytes = rest.filter(|rest| !rest.is_empty())?;
        let field = field(&mut bytes);
        rest = field.is_some().then_some(bytes);
        Some(field)
    })
}

fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let tag = number(bytes)?;
    let value = match tag & 7 {
        0 => Field::Number(number(bytes)?),
        1 => {
            bytes.split_off(..8)?;
            Field::Eight
        }
        2 => {
            let length = usize::try_from(number(bytes)?).ok()?;
            Field::Bytes(bytes.split_off(..length)?)
        }
        5 => Field::Four(bytes.split_off(..4)?.try_into().ok()?),
        _ => return None,
    };
    Some((tag >> 3, value))
}

/// Seven bits in each byte, the lowest first.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file of pieces, as SentencePiece writes it.
    pub(crate) fn file(pieces: &[(&str, f32, u8)]) -> Vec<u8> {
        let mut file = Vec::new();
        for (text, score, kind) in pieces {
            let mut piece = vec![0x0A, text.len() as u8];
            piece.extend(text.as_bytes());
            piece.push(0x15);
            piece.extend(score.to_le_bytes());
            piece.extend([0x18, *kind]);
            file.extend([0x0A, piece.len() as u8]);
            file.extend(piece);
        }
        // A field that is passed over: the trainer's.
        file.extend([0x12, 2, 0x08, 1]);
        file
    }

    #[test]
    fn pieces_are_read_and_other_fields_passed_over() {
        let read = pieces(&file(&[("<unk>", 0.0, 2), ("▁a", -1.5, 1)])).unwrap();
        assert_eq!(read[0].kind, 2);
        assert_eq!(read[1], Piece { text: "▁a".into(), score: -1.5, kind: 1 });
    }

    #[test]
    fn rules_are_read() {
        let mut whole = file(&[("<unk>", 0.0, 2)]);
        assert_eq!(rules(&whole).unwrap().kind, 1);
        // A trainer of BPE; a normalizer with three bytes of replacements and no prefix.
        whole.extend([0x12, 2, 0x18, 2, 0x1A, 7, 0x12, 3, 7, 8, 9, 0x18, 0]);
        let want = Rules { kind: 2, replaced: vec![7, 8, 9], prefix: false, trims: true };
        assert_eq!(rules(&whole).unwrap(), want);
        whole.truncate(whole.len() - 1);
        assert!(rules(&whole).is_err());
    }

    #[test]
    fn damage_is_an_error() {
        let whole = file(&[("<unk>", 0.0, 2), ("▁a", -1.5, 1)]);
        for end in 1..whole.len() - 4 {
            let cut = pieces(&whole[..end]);
            assert!(cut.is_err() || cut.unwrap().len() < 2, "{end}");
        }
        assert!(pieces(b"").is_err());
        assert!(
            pieces(&[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]).is_err()
        );
        assert!(pieces(b"{\"json\": true}").is_err());
    }
}
