#!/usr/bin/env python3
"""Writes the published pre-tokenizers of make_splits.py as `tokenizer.json` has them. See README.md."""

import json

from tokenizers import Regex, Tokenizer, models
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

import make_splits


def main():
    lines = []
    for name, steps in make_splits.SCHEMES.items():
        parts = [Split(Regex(s), "isolated") if isinstance(s, str) else s for s in steps]
        if not any(isinstance(part, ByteLevel) for part in parts):
            parts.append(ByteLevel(add_prefix_space=False, use_regex=False))
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = Sequence(parts)
        pre = json.loads(tokenizer.to_str())["pre_tokenizer"]
        lines.append(f" {json.dumps(name)}: {json.dumps(pre, ensure_ascii=False, separators=(',', ':'))}")
    (make_splits.DATA / "pre_tokenizers.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
