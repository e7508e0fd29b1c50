#!/usr/bin/env python3
"""Cuts texts into words as the published pre-tokenizers do. See README.md.

The patterns here are the published ones, look-ahead and all, and run in the engine that they were
written for; those in `schemes.rs` are not copies of these.
"""

import json
from pathlib import Path

import tokenizers
from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

import texts

DATA = Path(__file__).resolve().parents[2] / "crates/tokenizer/tests/data"

MORE = [
    "x1234567 12345 1234abc 0012.3456,78 १२३४५ ²³⁴ 1a22b333c4444 n=100000000",
    " " * 1030 + "a" + "\t" * 7 + "1\n" + " " * 600,
    "<sentinel:12> IMGIMGABZ <sentinel:x> IMGIMGAZ",
    "HelloWorld fooBAR BARfoo XMLHttpRequest ǅungla ǅ aÀbÉ ʰa ªb",
    "wait...what?!  (yes)[no]{so} a/b//c\\\\d\n/\n//x",
    "abc한국어 mixed日本語と中文 and ไทย、「括弧」。《书》——…… ㄅㄆㄇ",
    "Ankara'nın İstanbul'dan I'LL they'Ve 'ſ",
    "a b cd efg hi j\u0301k \u0301l é e\u0301e\u0301 अआ की कि",
]

S3 = r"\s+(?!\S)|\s+"
C = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + S3
LLAMA3 = C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
QWEN2 = LLAMA3.replace("{1,3}", "") + S3
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(upper=UPPER, lower=LOWER, suffix=f"{C}?", digits=r"\p{N}{1,3}", ends=r"[\r\n/]*"):
    first = r"[^\r\n\p{L}\p{N}]?"
    return (f"{first}{upper}*{lower}+{suffix}|{first}{upper}+{lower}*{suffix}|{digits}"
            rf"| ?[^\s\p{{L}}\p{{N}}]+{ends}|\s*[\r\n]+|" + S3)


ASCII = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
DEEPSEEK3 = ASCII + "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|" + S3
KANA = "[一-龥぀-ゟ゠-ヿ]+"
CJK = "[一-龥ࠀ-一가-퟿]+"
LETTERS = (
    r"\s?["
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕ"
    "ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳ"
    "Ꙁ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
    "]+"
)
BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"
HAN = r"&&[^\p{Han}]]"
THAI = (
    "[一-鿿㐀-䶿\uf900-\ufaff぀-ゟ゠-ヿ･-ﾟ⼀-⿟\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f"
    "\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
HALVES = "".join(rf"|\s{{{2**n}}}(?!\S)" for n in range(9, 1, -1)) + r"|\s{1,2}(?!\S)|\s{1}"
DIGITS_3 = r"\p{N}{1,3}"

# By one name of each scheme.
SCHEMES = {
    "qwen2": [QWEN2],
    "grok-2": [QWEN2],
    "qwen35": [C + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|" + S3],
    "llama-bpe": [LLAMA3 + S3],
    "dbrx": [LLAMA3 + S3],
    "glm4": [LLAMA3 + S3],
    "jais-2": [LLAMA3[:-1] + HALVES],
    "minicpm5": [DIGITS_3, LLAMA3.replace("{1,3}", "+") + S3],
    "tekken": [cased(suffix="", digits=r"\p{N}")],
    "gpt-4o": [cased()],
    "granite-embed-multi-97m": [cased()],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", cased()],
    "deepseek-v3": [DIGITS_3, KANA, DEEPSEEK3],
    "spark2_5": [DIGITS_3, KANA, DEEPSEEK3.replace("\\p{S}]+[\r\n]*|\\s*[\r\n]+", "\\p{S}]+|[\r\n]"), r"\p{N}"],
    "deepseek-llm": ["[\r\n]", LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK, Digits(True)],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, Digits(True)],
    "gpt-2": [ByteLevel(add_prefix_space=False)],
    "mpt": [ByteLevel(add_prefix_space=False)],
    "starcoder": [Digits(True), ByteLevel(add_prefix_space=False)],
    "command-r": [Digits(True), ByteLevel(add_prefix_space=False)],
    "falcon": [Punctuation("contiguous"), GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "bloom": [BLOOM],
    "viking": [BLOOM, Digits(True)],
    "chameleon": [r"<sentinel:[0-9]+>", r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )",
                  Digits(True), Punctuation("isolated"), ByteLevel(add_prefix_space=False)],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|" + S3],
    "seed-coder": [C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|" + S3],
    "exaone-moe": [C + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|" + S3],
    "ufakzeka": [QWEN2[len(C) + 1:]],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "kimi-k2": [r"\p{Han}+|" + cased(UPPER[:-1] + HAN, LOWER[:-1] + HAN, ends=r"[\r\n]*")],
    # Published with a look-behind; this says the same.
    "afmoe": [r"\p{N}{1,2}(?=(?:\p{N}{3})+(?!\p{N}))|\p{N}{3}|\p{N}+", THAI, DEEPSEEK3],
    "youtu": ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + KANA, cased(digits=r"\p{N}")],
}

def words(steps: list, text: str) -> list[str]:
    sequence = Sequence([s if not isinstance(s, str) else Split(Regex(s), "isolated") for s in steps])
    return [text[a:b] for _, (a, b) in sequence.pre_tokenize_str(text)]


def main():
    strings = [t for t in texts.TEXTS if t and t not in texts.REPEATS] + MORE
    lines = []
    for name, steps in SCHEMES.items():
        cuts = []
        for text in strings:
            found = words(steps, text)
            assert "".join(found) == text, (name, text, found)
            cuts.append([len(w) for w in found])
        lines.append(f' {json.dumps(name)}: {json.dumps(cuts, separators=(",", ":"))}')
    head = json.dumps({"source": f"tokenizers {tokenizers.__version__} (Python)", "texts": strings})
    body = ",\n".join(lines)
    (DATA / "splits.json").write_text(f'{head[:-1]},\n"lengths": {{\n{body}\n}}}}\n')


if __name__ == "__main__":
    main()
