//! A stand-in vocabulary of the right size: every byte is a token, so any text can be encoded, and
//! the rest are fillers with names. The special tokens have their real ids and texts.

use gguf::{OwnedValue, Writer};
use models::published::Shape;

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

/// Two halves of a token; so that there are merges at all.
const MERGES: [(&str, &str); 6] =
    [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("e", "r"), ("a", "n")];

/// A special token: its real id, text, and what the metadata calls it.
type Special = (usize, &'static str, Option<&'static str>);

const QWEN: &[Special] = &[
    (151_643, "<|endoftext|>", Some("bos_token_id")),
    (151_644, "<|im_start|>", None),
    (151_645, "<|im_end|>", Some("eos_token_id")),
];

const LLAMA: &[Special] = &[
    (128_000, "<|begin_of_text|>", Some("bos_token_id")),
    (128_001, "<|end_of_text|>", Some("eos_token_id")),
    (128_006, "<|start_header_id|>", None),
    (128_007, "<|end_header_id|>", None),
    (128_009, "<|eot_id|>", Some("eot_token_id")),
];

const OLMO: &[Special] = &[
    (100_257, "<|endoftext|>", Some("eos_token_id")),
    (100_264, "<|im_start|>", None),
    (100_265, "<|im_end|>", None),
];

/// Not their real ids, which are among the first, where bytes are here; nor is Gemma's vocabulary of
/// this kind.
const GEMMA: &[Special] = &[
    (262_140, "<bos>", Some("bos_token_id")),
    (262_141, "<eos>", Some("eos_token_id")),
    (262_142, "<start_of_turn>", None),
    (262_143, "<end_of_turn>", Some("eot_token_id")),
];

/// Adds the `tokenizer.ggml.*` keys for `shape`.
pub(crate) fn write(shape: &Shape, writer: &mut Writer<'_>) {
    let (pre, specials) = match shape.arch {
        "llama" => ("llama-bpe", LLAMA),
        "olmo2" => ("dbrx", OLMO),
        "gemma3" => ("default", GEMMA),
        _ => ("qwen2", QWEN),
    };
    // A smaller vocabulary has its special tokens at the end.
    let last = specials.last().map_or(0, |s| s.0);
    let shift = (last + 1).saturating_sub(shape.vocab);
    let mut tokens: Vec<String> = alphabet().map(String::from).collect();
    tokens.extend(MERGES.iter().map(|(a, b)| format!("{a}{b}")));
    tokens.extend((tokens.len()..shape.vocab).map(|i| format!("Ġtok{i}")));
    let mut types = vec![NORMAL; shape.vocab];
    for (id, text, key) in specials {
        let id = id - shift;
        tokens[id] = (*text).to_owned();
        types[id] = CONTROL;
        if let Some(key) = key {
            writer.kv(format!("tokenizer.ggml.{key}"), id as u32);
        }
    }
    writer
        .kv("tokenizer.ggml.model", "gpt2")
        .kv("tokenizer.ggml.pre", pre)
        .kv("tokenizer.ggml.tokens", OwnedValue::strings(&tokens))
        .kv("tokenizer.ggml.token_type", types)
        .kv("tokenizer.ggml.merges", OwnedValue::strings(MERGES.map(|(a, b)| format!("{a} {b}"))))
        .kv("tokenizer.ggml.add_bos_token", matches!(shape.arch, "llama" | "gemma3"));
}

/// How byte-level BPE writes the bytes 0 to 255 (GPT-2): those that print as themselves, the others
/// as the characters from U+0100 on.
fn alphabet() -> impl Iterator<Item = char> {
    let mut next = 0x100;
    (0u8..=255).map(move |byte| match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        _ => {
            next += 1;
            char::from_u32(next - 1).expect("just above U+0100")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gguf::Gguf;
    use models::published::SHAPES;
    use tokenizer::{EncodeOptions, Tokenizer};

    #[test]
    fn the_tokenizer_takes_it_and_any_text_comes_back() {
        for shape in SHAPES
            .iter()
            .filter(|s| ["tiny", "llama3-8b", "olmo2-1b", "gemma3-4b"].contains(&s.name))
        {
            let (mut writer, mut file) = (Writer::new(), Vec::new());
            write(shape, &mut writer);
            writer.write_to(&mut file).unwrap();
            let gguf = Gguf::parse(&file).unwrap();
            let t = Tokenizer::from_gguf(gguf.metadata()).unwrap();
            assert_eq!(t.vocab_size(), shape.vocab);
            let text = "the naïve 日本 🙂\n\u{7f}";
            let ids = t.encode(text, EncodeOptions::default()).unwrap();
            assert_eq!(t.decode(&ids, false), text);
            assert!(ids.len() < text.len(), "no merge was used");
            assert!(t.is_eog(t.eos().unwrap()));
        }
    }
}
