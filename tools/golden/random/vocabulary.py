"""Small vocabularies of each kind that families have, made without training: every token's text is another's of none."""

import json
import struct
from pathlib import Path

SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]
GLM = ["<|endoftext|>", "[gMASK]", "<|user|>", "<|observation|>"]
LETTERS = "abcdefgh"
CYRILLIC = "абвгдежз"  # two bytes each, so that no piece is a byte's text
PAIRS = [x + y for x in LETTERS for y in LETTERS][:40]


def byte_alphabet() -> list[str]:
    """The characters that stand for bytes in byte-level BPE."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(b) if b in visible else chr(next(others)) for b in range(256)]


def shown(byte: int) -> str:
    """A byte's text in answers of the server."""
    return chr(byte) if byte < 0x80 else f"bytes:\\x{byte:02x}"


def added(texts: list[str]) -> list[dict]:
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return [dict(id=i, content=text, **flags) for i, text in enumerate(texts)]


def write(folder: Path, name: str, value) -> None:
    (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def told(folder: Path, **more) -> None:
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "pad_token": "<pad>", "model_max_length": 1024, **more})


def whole(texts: list[str], special: int, model: dict, **parts) -> dict:
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return {"version": "1.0", **empty, **parts, "added_tokens": added(texts[:special]),
            "model": {**model, "vocab": {text: i for i, text in enumerate(texts)}}}


BPE = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
       "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}


def byte_level(folder: Path, special: list[str] = [*SPECIAL, *GLM]) -> list[str]:
    """Byte-level BPE with the rules of GPT-2; gives the tokens' texts as the server shows them."""
    texts = [*special, *byte_alphabet(), *PAIRS]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    write(folder, "tokenizer.json", whole(
        texts, len(special), {**BPE, "merges": [list(pair) for pair in PAIRS]}, pre_tokenizer=level, decoder=level))
    told(folder)
    return [*special, *map(shown, range(256)), *PAIRS]


def pieces(special: list[str]) -> list[str]:
    """Tokens of SentencePiece: control tokens, bytes, characters, and what they merge to."""
    return [*special, *(f"<0x{b:02X}>" for b in range(256)), "▁", *CYRILLIC, *merged()]


def merged() -> list[str]:
    return [x + y for x in ("▁", *CYRILLIC) for y in CYRILLIC][:35]


def as_shown(special: list[str]) -> list[str]:
    of_model = [text.replace("▁", " ") for text in pieces(special)[len(special) + 256:]]
    return [*special, *map(shown, range(256)), *of_model]


def with_bytes(folder: Path, special: list[str], marks: bool) -> list[str]:
    """`tokenizer.json` alone, as `transformers` writes it today: BPE with a token for each byte. `marks`: words are marked
    by `Metaspace` as Llama's are, and otherwise replaced and split as Gemma's."""
    rules = dict(pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}) if marks else dict(
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False})
    parts = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    merges = [[text[0], text[1]] for text in merged()]
    write(folder, "tokenizer.json", whole(
        pieces(special), len(special), {**BPE, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "merges": merges},
        decoder={"type": "Sequence", "decoders": parts}, **rules))
    told(folder)
    return as_shown(special)


def varint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def message(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def number(field: int, n: int) -> bytes:
    return varint(field << 3) + varint(n)


def sentencepiece(folder: Path, special: list[str]) -> list[str]:
    """`tokenizer.model`, as published: the protocol buffer of SentencePiece."""
    kinds = {"<unk>": 2}
    out = b""
    for i, text in enumerate(pieces(special)):
        kind = kinds.get(text, 3) if i < len(special) else 6 if text.startswith("<0x") else 1
        score = struct.pack("<f", -float(i) if kind == 1 else 0.0)
        out += message(1, message(1, text.encode()) + b"\x15" + score + number(3, kind))
    ids = [number(40 + i, special.index(text)) for i, text in enumerate(("<unk>", "<s>", "</s>", "<pad>"))]
    out += message(2, number(3, 2) + number(35, 1) + b"".join(ids))  # BPE with bytes
    out += message(3, message(1, b"identity") + number(3, 0) + number(4, 0) + number(5, 1))
    (folder / "tokenizer.model").write_bytes(out)
    told(folder, tokenizer_class="LlamaTokenizer")
    return as_shown(special)


GEMMA = ["<pad>", "</s>", "<s>", "<unk>"]
NEMOTRON = ["<pad>", "<unk>", "<s>", "</s>"]


def words(folder: Path) -> None:
    """WordPiece, as BERT has it."""
    texts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{x}" for x in LETTERS), *PAIRS]
    texts += [f"w{i}" for i in range(304 - len(texts))]
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    write(folder, "tokenizer.json", whole(
        texts, 5, model, normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                                     "strip_accents": None, "lowercase": True},
        pre_tokenizer={"type": "BertPreTokenizer"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        post_processor={"type": "TemplateProcessing", "single": template("[CLS]", "[SEP]"), "pair": template("[CLS]", "[SEP]"),
                        "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in (("[CLS]", 2), ("[SEP]", 3))}}))
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "BertTokenizer", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]",
        "pad_token": "[PAD]", "mask_token": "[MASK]", "do_lower_case": True})


def template(first: str, last: str) -> list[dict]:
    special = lambda text: {"SpecialToken": {"id": text, "type_id": 0}}
    return [special(first), {"Sequence": {"id": "A", "type_id": 0}}, special(last)]


def roberta(folder: Path) -> None:
    """Byte-level BPE of texts with both ends."""
    byte_level(folder)
    file = json.loads((folder / "tokenizer.json").read_text())
    file["post_processor"] = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1],
                              "trim_offsets": True, "add_prefix_space": False}
    write(folder, "tokenizer.json", file)


def unigram(folder: Path) -> None:
    """Unigram, as XLM-R has it."""
    texts = ["<s>", "<pad>", "</s>", "<unk>", "▁", *LETTERS, *PAIRS]
    texts += [f"▁w{i}" for i in range(303 - len(texts))] + ["<mask>"]
    file = whole(texts, 4, {"type": "Unigram", "unk_id": 3, "byte_fallback": False})
    file["model"]["vocab"] = [[text, -float(i)] for i, text in enumerate(texts)]
    marks = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    file |= {"pre_tokenizer": marks, "decoder": marks, "post_processor": {
        "type": "TemplateProcessing", "single": template("<s>", "</s>"), "pair": template("<s>", "</s>"),
        "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in (("<s>", 0), ("</s>", 2))}}}
    file["added_tokens"].append({**file["added_tokens"][0], "id": 303, "content": "<mask>", "lstrip": True})
    write(folder, "tokenizer.json", file)
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "XLMRobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"})


def make(folder: Path, kind: str, today: bool) -> list[str] | None:
    """Writes a vocabulary; gives the texts of tokens that are another's of none, and those of others as empty ones."""
    match kind:
        case "bytes" | "glm":
            texts = byte_level(folder)
        case "gemma4":
            texts = with_bytes(folder, GEMMA, False)
        case "gemma":
            texts = with_bytes(folder, GEMMA, False) if today else sentencepiece(folder, GEMMA)
        case "phi" | "sentencepiece":
            texts = with_bytes(folder, SPECIAL, True) if today else sentencepiece(folder, SPECIAL)
        case "nemotron":
            texts = with_bytes(folder, NEMOTRON, True) if today else sentencepiece(folder, NEMOTRON)
        case "words":
            return words(folder)
        case "roberta":
            return roberta(folder)
        case "unigram" | "t5":
            return unigram(folder)
        case _:
            raise ValueError(f"no vocabulary is called {kind}")
    return [text if texts.count(text) == 1 else "" for text in texts]
