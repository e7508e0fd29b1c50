"""Compares two GGUF files: every key with its type and value, every tensor with its shape, type and bytes.

    compare.py REFERENCE OURS [DIFFERENCE ...]

A difference that is known is named: a key, or `ulp:TENSOR` for the last bit of numbers.
"""

import sys

import gguf
import numpy as np


def value(field):
    return [[t.name for t in field.types], field.contents()]


def same(a, b) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


def differences(reference: str, ours: str) -> list[str]:
    a, b = gguf.GGUFReader(reference), gguf.GGUFReader(ours)
    found = []
    counts = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count")
    keys = [{k: value(f) for k, f in r.fields.items() if k not in counts} for r in (a, b)]
    for key in sorted(keys[0].keys() | keys[1].keys()):
        left, right = keys[0].get(key), keys[1].get(key)
        if not same(left, right):
            found.append(f"{key}: {shown(left, right)} != {shown(right, left)}")
    tensors = [{t.name: t for t in r.tensors} for r in (a, b)]
    for name in sorted(tensors[0].keys() | tensors[1].keys()):
        left, right = tensors[0].get(name), tensors[1].get(name)
        if left is None or right is None:
            found.append(f"{name}: only in {'ours' if left is None else 'the reference'}")
        elif left.shape.tolist() != right.shape.tolist() or left.tensor_type != right.tensor_type:
            found.append(f"{name}: {left.shape.tolist()} {left.tensor_type.name} != "
                         f"{right.shape.tolist()} {right.tensor_type.name}")
        elif left.data.tobytes() != right.data.tobytes():
            x, y = np.ravel(left.data), np.ravel(right.data)
            if x.dtype == np.float32 and np.abs(x.view(np.int32) - y.view(np.int32)).max() <= 1:
                found.append(f"ulp:{name}: {int((x != y).sum())} of {x.size}")
            else:
                found.append(f"{name}: {int((x != y).sum())} of {x.size} differ, {x[:4]} {y[:4]}")
    return found


def shown(this, other) -> str:
    if this is None:
        return "absent"
    kinds, contents = this
    if isinstance(contents, list) and other is not None and isinstance(other[1], list):
        for i, (x, y) in enumerate(zip(contents, other[1])):
            if not same(x, y):
                return f"{kinds} [{i}] {x!r}"
        return f"{kinds} of {len(contents)}"
    return f"{kinds} {str(contents)[:80]!r}"


def unknown(found: list[str], known: list[str]) -> list[str]:
    stems = [k.rstrip("*") for k in known]
    return [f for f in found if not any(f.startswith(stem) for stem in stems)]


if __name__ == "__main__":
    left = unknown(differences(sys.argv[1], sys.argv[2]), sys.argv[3:])
    print("\n".join(left))
    sys.exit(bool(left))
