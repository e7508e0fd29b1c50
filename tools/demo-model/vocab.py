"""The byte-level BPE vocabulary, split as Qwen2 splits text.

Ids: 256 bytes, then merges in order of rank, then the three control tokens at the
end; exactly `SIZE` in all, so that nothing needs padding.
"""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import corpus

SIZE = 2048
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
END_OF_TEXT, IM_START, IM_END = range(SIZE - 3, SIZE)
SAMPLE = 6_000_000  # characters to learn merges from

# the rule that GGUF calls pre = "qwen2": contractions, words with one leading
# non-letter, single digits, punctuation runs, line breaks, spaces
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


@dataclass(frozen=True)
class Vocab:
    tokenizer: Tokenizer
    tokens: list[str]  # by id, in the byte-to-character alphabet of GPT-2
    merges: list[str]  # "left right", best rank first

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text).ids


def _sample():
    taken = 0
    for doc in corpus.documents(corpus.VOCAB_SEED):
        for mark in SPECIALS:
            doc = doc.replace(mark, "\n")
        yield doc
        taken += len(doc)
        if taken >= SAMPLE:
            return


def load(path: Path) -> Vocab:
    """The vocabulary from `path`, which is made first if it is not there."""
    if not path.exists():
        tok = Tokenizer(models.BPE())
        tok.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tok.decoder = decoders.ByteLevel()
        tok.train_from_iterator(_sample(), trainers.BpeTrainer(
            vocab_size=SIZE - len(SPECIALS), show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        tok.add_special_tokens(SPECIALS)
        tok.save(str(path))
    tok = Tokenizer.from_file(str(path))
    ids = tok.get_vocab()
    if sorted(ids.values()) != list(range(SIZE)) or ids["<|im_end|>"] != IM_END:
        raise SystemExit(f"{path}: not the vocabulary of {SIZE} tokens that this script makes")
    merges = [" ".join(m) for m in json.loads(path.read_text())["model"]["merges"]]
    return Vocab(tok, sorted(ids, key=ids.get), merges)


def stream(vocab: Vocab, seed: int, tokens: int) -> np.ndarray:
    """At least `tokens` token ids of training text, documents end to end."""
    parts, n = [], 0
    docs = corpus.documents(seed)
    while n < tokens:
        batch = [d + SPECIALS[0] for d in itertools.islice(docs, 512)]
        for enc in vocab.tokenizer.encode_batch_fast(batch):
            parts.append(np.array(enc.ids, dtype=np.uint16))
            n += len(parts[-1])
    return np.concatenate(parts)
