"""What is measured, by name.

    pp512   a prompt of 512 tokens, into an empty cache
    tg128   128 tokens, one by one, from an empty cache
    b4      4 sequences decode together: 64 tokens each, after prompts of 128
    d8192   64 tokens, one by one, after 8192
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

BATCH_PROMPT, BATCH_TOKENS = 128, 64
DEPTH_TOKENS = 64

DEFAULT = "pp512,tg128,b1,b4,b8,b16"


@dataclass(frozen=True, order=True)
class Test:
    kind: str  # pp, tg, b or d
    size: int

    def __str__(self) -> str:
        return f"{self.kind}{self.size}"

    @property
    def title(self) -> str:
        match self.kind:
            case "pp":
                return f"prompt of {self.size}"
            case "tg":
                return f"decode {self.size}"
            case "b":
                return "1 sequence" if self.size == 1 else f"{self.size} sequences"
            case _:
                return f"decode at {self.size}"


def parse(name: str) -> Test:
    found = re.fullmatch(r"(pp|tg|b|d)([1-9]\d*)", name)
    if not found:
        raise ValueError(f"no test {name!r}: pp512, tg128, b4 and d8192 are of the known kinds")
    return Test(found[1], int(found[2]))


def groups(tests: Iterable[Test]) -> list[list[Test]]:
    """Tests that one command takes together. Prompts and plain decoding share a load of the
    model; every number of sequences and every depth is alone, which keeps commands short and
    engines close to each other in time."""
    tests = list(tests)
    plain = [t for t in tests if t.kind in ("pp", "tg")]
    return [g for g in [plain, *([t] for t in tests if t not in plain)] if g]
