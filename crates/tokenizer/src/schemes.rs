//! How each family of byte-level vocabularies cuts text: one table entry per rule.
//!
//! The patterns are those that the families publish with their vocabularies, in the syntax of the
//! `regex` crate, without the look-ahead at their ends (see [`Step::Words`]). Whether text is
//! composed first (NFC) is not in GGUF: it is set here for the families known to do it.

/// How the vocabularies of one family cut text, and what else goes with the family's name.
#[derive(Debug)]
pub struct Scheme {
    /// Values of `tokenizer.ggml.pre` that select this entry.
    pub names: &'static [&'static str],
    /// Applied in turn, each to every word that the one before it left.
    pub steps: &'static [Step],
    /// Whether text is brought to Unicode form NFC first.
    pub nfc: bool,
    /// Whether a word that is a token is taken as such, even if the merges do not lead to it.
    pub whole_words: bool,
    /// Whether text begins with BOS when `tokenizer.ggml.add_bos_token` is absent.
    pub add_bos: bool,
}

/// One way of cutting a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Every match of the pattern is a word, and so is what lies between two matches.
    Split(&'static str),
    /// The same for a published pattern that goes on with `|\s+(?!\S)|\s+`: a run of white space
    /// leaves its last character to what follows.
    Words(&'static str),
    /// Like `Words`, but white space is cut into runs of 512, 256, … 4, 2 and 1 characters.
    WordsHalving(&'static str),
    /// Matches are runs of digits. They are cut into groups of three, counted from the right.
    Thousands(&'static str),
}

use Step::{Split, Thousands, Words, WordsHalving};

const GPT2: Step = Words(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+");
const DIGIT: Step = Split(r"\p{N}");
const DIGITS_3: Step = Split(r"\p{N}{1,3}");
const LINES: Step = Split(r"[^\n]+|\n+");

/// `cl100k`, as it became known.
const LLAMA3_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";
const QWEN2: Step = Words(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
);
/// `o200k`: words end where lower case turns to upper case.
const GPT4O: Step = Words(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
);
const DEEPSEEK3: Step = Words(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"##,
);
const HAN_AND_KANA: Step = Split(r"[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+");
/// DeepSeek's first vocabularies; the middle range ends where the first begins.
const DEEPSEEK_CJK: Step = Split(r"[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]+");
/// Sentences are cut at their punctuation only.
const BLOOM: Step = Split(r" ?[^(\s|.,!?\u{2026}\u{3002}\u{FF0C}\u{3001}\u{964}\u{6D4}\u{60C})]+");

const NONE: Scheme =
    Scheme { names: &[], steps: &[], nfc: false, whole_words: false, add_bos: false };

/// The schemes that are known. The tests compare each with the reference.
pub const PRE_TOKENIZERS: &[Scheme] = &[
    Scheme {
        names: &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan"],
        steps: &[QWEN2],
        nfc: true,
        ..NONE
    },
    Scheme { names: &["grok-2", "solar-open"], steps: &[QWEN2], ..NONE },
    Scheme {
        names: &["qwen35"],
        steps: &[Words(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+",
        )],
        nfc: true,
        ..NONE
    },
    Scheme {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        steps: &[Words(LLAMA3_PATTERN)],
        whole_words: true,
        add_bos: true,
        ..NONE
    },
    Scheme {
        names: &["dbrx", "smaug-bpe", "chatglm-bpe"],
        steps: &[Words(LLAMA3_PATTERN)],
        ..NONE
    },
    Scheme { names: &["glm4", "glm5"], steps: &[Words(LLAMA3_PATTERN)], whole_words: true, ..NONE },
    Scheme { names: &["jais-2"], steps: &[WordsHalving(LLAMA3_PATTERN)], ..NONE },
    Scheme {
        names: &["minicpm5"],
        steps: &[
            DIGITS_3,
            Words(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
            ),
        ],
        whole_words: true,
        ..NONE
    },
    Scheme {
        names: &["tekken"],
        steps: &[Words(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
        )],
        whole_words: true,
        add_bos: true,
        ..NONE
    },
    Scheme {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        steps: &[GPT4O],
        ..NONE
    },
    Scheme { names: &["granite-embed-multi-97m"], steps: &[GPT4O], whole_words: true, ..NONE },
    Scheme { names: &["tiny_aya", "cohere2moe"], steps: &[Thousands(r"\p{Nd}+\b"), GPT4O], ..NONE },
    Scheme {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        steps: &[DIGITS_3, HAN_AND_KANA, DEEPSEEK3],
        ..NONE
    },
    Scheme {
        names: &["spark2_5"],
        steps: &[
            DIGITS_3,
            HAN_AND_KANA,
            Words(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]"##,
            ),
            DIGIT,
        ],
        ..NONE
    },
    Scheme {
        names: &["deepseek-llm"],
        steps: &[
            Split(r"[\r\n]"),
            Split(DEEPSEEK_LETTERS),
            Split(
                r"\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3000}-\u{3002}]+",
            ),
            Split(r"\s+$"),
            DEEPSEEK_CJK,
            DIGIT,
        ],
        ..NONE
    },
    Scheme {
        names: &["deepseek-coder"],
        steps: &[Split(r"[\r\n]"), Split(r"\s?\p{L}+"), Split(r"\s?\p{P}+"), DEEPSEEK_CJK, DIGIT],
        ..NONE
    },
    Scheme {
        names: &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        steps: &[GPT2],
        ..NONE
    },
    Scheme { names: &["mpt", "olmo", "modern-bert"], steps: &[GPT2], nfc: true, ..NONE },
    Scheme {
        names: &["starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        steps: &[DIGIT, GPT2],
        ..NONE
    },
    Scheme { names: &["command-r"], steps: &[DIGIT, GPT2], nfc: true, ..NONE },
    Scheme {
        names: &["falcon"],
        steps: &[Split(r"[\p{P}$+<=>^~|`]+"), GPT2, Split(r"[0-9]{3}")],
        ..NONE
    },
    // What files say that were converted before families had names.
    Scheme {
        names: &["default"],
        steps: &[Split(r"[\p{P}$+<=>^~|]+"), GPT2, Split(r"\p{N}+"), Split(r"[0-9]{3}")],
        ..NONE
    },
    Scheme { names: &["poro-chat", "bloom", "gpt3-finnish"], steps: &[BLOOM], ..NONE },
    Scheme { names: &["viking"], steps: &[BLOOM, DIGIT], ..NONE },
    Scheme {
        names: &["chameleon"],
        steps: &[
            Split(r"<sentinel:[0-9]+>"),
            Split(r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
            Split(r"[\t\n]|    |  "),
            DIGIT,
            Split(r"[\p{P}!-/:-@\[-`{-~]"),
            GPT2,
        ],
        add_bos: true,
        ..NONE
    },
    Scheme {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        steps: &[Words(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]",
        )],
        ..NONE
    },
    Scheme {
        names: &["seed-coder"],
        steps: &[Words(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+",
        )],
        ..NONE
    },
    Scheme {
        names: &["exaone-moe"],
        steps: &[Words(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]",
        )],
        ..NONE
    },
    // Turkish: an apostrophe goes with the suffix that follows it.
    Scheme {
        names: &["ufakzeka"],
        steps: &[Words(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+")],
        ..NONE
    },
    Scheme { names: &["laguna"], steps: &[LINES, QWEN2], ..NONE },
    Scheme { names: &["superbpe"], steps: &[Split(r"\p{N}+"), Thousands(r"\p{Nd}+")], ..NONE },
    Scheme {
        names: &["kimi-k2"],
        steps: &[Words(
            r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
        )],
        ..NONE
    },
    Scheme {
        names: &["afmoe"],
        steps: &[
            Thousands(r"\p{N}+"),
            Split(
                r"[\u{4E00}-\u{9FFF}\u{3400}-\u{4DBF}\u{F900}-\u{FAFF}\u{3040}-\u{309F}\u{30A0}-\u{30FF}\u{FF65}-\u{FF9F}\u{2F00}-\u{2FDF}\u{E40}-\u{E7F}\u{E80}-\u{EFF}\u{1780}-\u{17FF}\u{1000}-\u{109F}\u{AA60}-\u{AA7F}\u{A9E0}-\u{A9FF}\u{AC00}-\u{D7AF}\u{1100}-\u{11FF}]+",
            ),
            DEEPSEEK3,
        ],
        ..NONE
    },
    Scheme {
        names: &["youtu"],
        steps: &[
            Split(
                r"[\u{AC00}-\u{D7A3}\u{3131}-\u{318E}]+|[\u{FF01}\u{2026}\u{201C}\u{201D}\u{2018}\u{2019}\u{2014}\u{FF1A}\u{FF1B}\u{FF0C}\u{3001}-\u{303F}\u{FE30}-\u{FE4F}]+|[\u{3105}-\u{312F}]+|[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+",
            ),
            Words(
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
            ),
        ],
        whole_words: true,
        ..NONE
    },
];

/// A space or none, then letters that have case, of the Unicode version of the day.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[",
    r"A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}",
    r"\u{295}-\u{2AF}\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}",
    r"\u{388}-\u{38A}\u{38C}\u{38E}-\u{3A1}\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}",
    r"\u{531}-\u{556}\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}",
    r"\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}",
    r"\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}",
    r"\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}",
    r"\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}",
    r"\u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}",
    r"\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}\u{2126}\u{2128}\u{212A}-\u{212D}",
    r"\u{212F}-\u{2134}\u{2139}\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}",
    r"\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}",
    r"\u{A680}-\u{A69B}\u{A722}-\u{A76F}\u{A771}-\u{A787}\u{A78B}-\u{A78E}",
    r"\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}\u{FF21}-\u{FF3A}",
    r"\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}",
    r"\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}",
    r"]+",
);
