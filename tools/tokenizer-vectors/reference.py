"""Reference tokenizers, and writing what they know as GGUF metadata."""

import json
import re
from pathlib import Path

import gguf
from tokenizers import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = (
    int(t)
    for t in (
        gguf.TokenType.NORMAL,
        gguf.TokenType.UNKNOWN,
        gguf.TokenType.CONTROL,
        gguf.TokenType.USER_DEFINED,
        gguf.TokenType.UNUSED,
        gguf.TokenType.BYTE,
    )
)


# Places kept free, which no text has.
RESERVED = r"SPECIAL_\d+|holder|reserved|<unused"


class Reference:
    """A tokenizer.json: encodes with Hugging Face's library, writes itself as GGUF."""

    def __init__(self, data: dict):
        self.data = data
        for token in data["added_tokens"]:
            # What looks like a control token becomes one when a model is converted to GGUF.
            text = token["content"]
            token["special"] |= (text[:2], text[-2:]) in (("<|", "|>"), ("<｜", "｜>"))
        self.tokenizer = Tokenizer.from_str(json.dumps(data))

    @classmethod
    def load(cls, path: Path):
        return cls(json.loads(path.read_text()))

    def encode(self, text: str, parse_special: bool) -> list[int]:
        self.tokenizer.encode_special_tokens = not parse_special
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def added(self, special: bool) -> list[str]:
        return [t["content"] for t in self.data["added_tokens"] if t["special"] == special]

    def merges(self) -> list[tuple[str, str]]:
        return [tuple(m if isinstance(m, list) else m.split(" ")) for m in self.data["model"]["merges"]]

    def tokens(self) -> list[tuple[str, int]]:
        """Text and GGUF type of every id."""
        vocab = dict(self.data["model"]["vocab"])
        types = {}
        for token in self.data["added_tokens"]:
            vocab[token["content"]] = token["id"]
            types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
        by_id = {i: t for t, i in vocab.items()}
        return [(by_id[i], types.get(i, NORMAL)) if i in by_id else (f"[PAD{i}]", UNUSED)
                for i in range(max(by_id) + 1)]

    def write_gguf(self, path: Path, pre: str, **keys):
        tokens = self.tokens()
        merges = [f"{a} {b}" for a, b in self.merges()]
        write_gguf(path, "gpt2", tokens, pre=pre, merges=merges, **keys)

    def pruned(self, texts: list[str]) -> tuple["Reference", dict[int, int]]:
        """The same tokenizer with only the tokens and merges that `texts` need on the way, and
        the map from old ids to new ones.

        BPE applies the best merge present until there is none. Leaving out merges that are never
        applied cannot change which one is the best of the present ones.
        """
        ranks = {pair: rank for rank, pair in enumerate(self.merges())}
        vocab = self.data["model"]["vocab"]
        whole_words = self.data["model"].get("ignore_merges")
        # All bytes; of other characters only those that occur.
        characters = {"▁", *"".join(texts)} | {c for text in texts for c in self.normalized(text)}
        byte_level = not self.data["model"].get("byte_fallback")
        keep = {t for t in vocab if (len(t) == 1 and (byte_level or t in characters)) or
                re.fullmatch("<0x[0-9A-F]{2}>|<unk>|</?s>", t)}
        used = set()
        for text in texts:
            for word in self.words(text):
                if whole_words and word in vocab:
                    keep.add(word)
                parts = list(word)
                while True:
                    pairs = [(ranks.get(p, len(ranks)), i) for i, p in enumerate(zip(parts, parts[1:]))]
                    rank, at = min(pairs, default=(len(ranks), 0))
                    if rank == len(ranks):
                        break
                    used.add(rank)
                    parts[at : at + 2] = ["".join(parts[at : at + 2])]
                    keep.add(parts[at])
        data = json.loads(json.dumps(self.data))
        data["added_tokens"] = [t for t in data["added_tokens"] if not re.search(RESERVED, t["content"])]
        added = {t["id"] for t in data["added_tokens"]}
        old = sorted({vocab[t] for t in keep} - added) + sorted(added)
        renumber = {o: n for n, o in enumerate(old)}
        data["model"]["vocab"] = {t: renumber[i] for t, i in vocab.items() if i in renumber}
        data["model"]["merges"] = [list(m) for r, m in enumerate(self.merges()) if r in used]
        for token in data["added_tokens"]:
            token["id"] = renumber[token["id"]]
        data["post_processor"] = None
        return Reference(data), renumber

    def words(self, text: str) -> list[str]:
        """The words of a text between added tokens, in the alphabet of bytes."""
        words = []
        text = self.normalized(text)
        # Also the text as it stands, for when control tokens in it are not parsed.
        pieces = [text, *split_at(text, [t["content"] for t in self.data["added_tokens"]]),
                  *split_at(text, self.added(special=False))]
        pre = self.tokenizer.pre_tokenizer
        for piece in pieces:
            words += [w for w, _ in pre.pre_tokenize_str(piece)] if pre else [piece]
        return words

    def normalized(self, text: str) -> str:
        normalizer = self.tokenizer.normalizer
        return normalizer.normalize_str(text) if normalizer else text


def split_at(text: str, tokens: list[str]) -> list[str]:
    pieces = [text]
    for token in sorted(tokens, key=len, reverse=True):
        pieces = [p for piece in pieces for p in piece.split(token)]
    return pieces


def write_gguf(path: Path, model: str, tokens, *, pre=None, merges=None, scores=None, **keys):
    """A GGUF file with a tokenizer and no tensors. `keys`: any further `tokenizer.ggml.*`."""
    writer = gguf.GGUFWriter(path, "none")
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list([text.encode() for text, _ in tokens])
    writer.add_token_types([kind for _, kind in tokens])
    if scores is not None:
        writer.add_token_scores(scores)
    if merges is not None:
        writer.add_token_merges(merges)
    charsmap = keys.pop("charsmap", None)
    if charsmap is not None:
        writer.add_precompiled_charsmap(charsmap)
    template = keys.pop("chat_template", None)
    if template:
        writer.add_chat_template(template)
    for key, value in keys.items():
        add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
        add(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def write_cases(path: Path, source: str, cases: list[dict]):
    lines = ",\n".join("  " + json.dumps(c, ensure_ascii=True, separators=(",", ":")) for c in cases)
    path.write_text(f'{{"source": {json.dumps(source)},\n "cases": [\n{lines}\n]}}\n')


def case(text: str, plain: list[int], parsed: list[int], decoded: str) -> dict:
    """One vector. `parsed` and `decoded` are left out where they say nothing new."""
    out = {"text": text, "plain": plain}
    if parsed != plain:
        out["parsed"] = parsed
    if decoded != text:
        out["decoded"] = decoded
    return out
