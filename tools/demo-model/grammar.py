"""A tiny template language.

`[a|b|c]` takes one of its alternatives (they nest; an empty one makes the text
optional), `{slot}` takes the slot's value and `{Slot}` the same with a capital
first letter. Random choices come from the generator that is passed in, so a seed
fixes the whole corpus.
"""

import random
import re

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")
_SPACES = re.compile(r" {2,}")


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def article(noun: str) -> str:
    """The noun phrase with "a" or "an" before it."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def listing(items: list[str]) -> str:
    """a, b and c"""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


class Grammar:
    """Template expansion over one random stream."""

    def __init__(self, rng: random.Random):
        self.rng = rng

    def pick(self, items):
        return self.rng.choice(items)

    def some(self, items, n: int) -> list:
        """n different items in random order."""
        return self.rng.sample(list(items), n)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def fill(self, template: str, **slots) -> str:
        while True:
            template, n = _CHOICE.subn(lambda m: self.pick(m[1].split("|")), template)
            if not n:
                break

        def value(m):
            key = m[1]
            if key in slots:
                return str(slots[key])
            return capital(str(slots[key[0].lower() + key[1:]]))

        # twice: a slot's value may hold slots itself
        text = _SLOT.sub(value, _SLOT.sub(value, template))
        return _SPACES.sub(" ", text).strip()
