"""The training text: an endless stream of documents, fixed by its seed.

A document is a story, a few stories one after another, or a conversation in ChatML.
Documents are separated by `<|endoftext|>`; the tokenizer module adds it.
"""

import random
from collections.abc import Iterator

from chat import conversation
from grammar import Grammar
from stories import titled

TRAIN_SEED, HELDOUT_SEED, VOCAB_SEED = 1, 2, 3


def plain(g: Grammar) -> str:
    """One to four stories with an empty line between them."""
    return "\n\n".join(titled(g) for _ in range(g.pick([1, 1, 1, 2, 4])))


def documents(seed: int) -> Iterator[str]:
    g = Grammar(random.Random(seed))
    while True:
        yield plain(g) if g.chance(0.32) else conversation(g)


def heldout(size: int) -> str:
    """Plain stories of the same distribution that training never draws."""
    g, out = Grammar(random.Random(HELDOUT_SEED)), ""
    while len(out) < size:
        out += titled(g) + "\n\n"
    return out.rstrip("\n") + "\n"
