"""Makes the vectors of this directory with ggml's Python package (gguf 0.19, numpy 2) and C library (0.25).

Usage: python make.py libggml-base.so, with `pip install gguf numpy`. The output is the same on every run. The
library makes what the package cannot quantise.

dequantise_<type>.bin  blocks, then the f32 values they stand for
quantise_<type>.bin    f32 values, then the blocks that the reference makes of them
sums.txt               for every block type the sum of what 512 random blocks stand for
python.gguf            a file with every kind of metadata value and three tensors
"""

import ctypes
import sys
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.quants import NVFP4, dequantize, quantize

HERE = Path(__file__).parent
T = GGMLQuantizationType

# Half-precision scales: one, zeros, smallest and largest subnormal, smallest normal, largest,
# a negative, infinities, a NaN, and some of usual size.
HALVES = np.array(
    [0x3C00, 0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0xC123, 0x7C00, 0xFC00, 0x7E01,
     0x2A6B, 0xA9D3, 0x1C07, 0x211F],
    dtype=np.uint16,
)
# Where each block type keeps its half-precision fields, in bytes.
FIELDS = {
    T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.IQ4_NL: [0], T.MXFP4: [],
    T.NVFP4: [],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_XS: [0],
    T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0], T.IQ1_S: [0], T.IQ1_M: [],
    T.TQ1_0: [52], T.TQ2_0: [64],
}
QUANTISED = [T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.TQ1_0, T.TQ2_0, T.MXFP4, T.NVFP4]


def count(ty):
    return 24 if GGML_QUANT_SIZES[ty][0] < 256 else 8


def dequantise_vectors(ty, rng):
    """Random blocks whose scales go through HALVES; the first are all zeros and all ones."""
    _, size = GGML_QUANT_SIZES[ty]
    blocks = rng.integers(0, 256, (count(ty), size), dtype=np.uint8)
    blocks[0] = 0x00
    blocks[1] = 0xFF
    # Few blocks of the large types: there the usual scales come first, then the extreme ones.
    order = HALVES if count(ty) > 8 else np.concatenate([HALVES[12:], HALVES[[0, 4, 6, 9]]])
    for field, offset in enumerate(FIELDS[ty]):
        for i, block in enumerate(blocks):
            half = order[(i + 3 * field) % len(order)]
            block[offset : offset + 2] = np.frombuffer(half.tobytes(), dtype=np.uint8)
    with np.errstate(all="ignore"):
        values = dequantize(blocks, ty)
    (HERE / f"dequantise_{ty.name}.bin").write_bytes(blocks.tobytes() + values.tobytes())


def dequantise_floats(ty, rng):
    """Every special half or bfloat16, and random ones."""
    special = [0, 1, 2, 0x03FF, 0x0400, 0x3C00, 0x3F80, 0x7BFF, 0x7C00, 0x7E00, 0x7F7F, 0x7F80, 0x7FC0]
    bits = np.array(special + [s | 0x8000 for s in special], dtype=np.uint16)
    bits = np.concatenate([bits, rng.integers(0, 1 << 16, 512 - bits.size).astype(np.uint16)])
    raw = bits if ty == T.F16 else bits.view(np.uint8)
    values = dequantize(raw, ty)
    (HERE / f"dequantise_{ty.name}.bin").write_bytes(bits.tobytes() + values.tobytes())


def quantise_vectors(ty, rng):
    """Blocks of many magnitudes, all zero, constant, with ties for the largest and for rounding."""
    if GGML_QUANT_SIZES[ty][0] == 256:
        return quantise_ternary(ty, rng)
    if ty == T.NVFP4:
        return quantise_nvfp4(rng)
    x = rng.standard_normal((24, 32)).astype(np.float32)
    x[9:] *= np.logspace(-6, 4, 15, dtype=np.float32)[:, None]
    x[0] = 0.0
    x[1] = 0.25
    x[2] = -3.0
    x[3] = np.arange(32) % 2 * 2 - 1  # equal magnitudes, negative first
    x[4] = -x[3]
    x[5] = np.arange(32) - 16.0
    x[6] = 127.0
    x[6, 1:] = np.arange(31) - 15.5  # halves: Q8_0's scale is 1 here
    x[7] = -8.0
    x[7, 1:] = (np.arange(31) - 15.5) / 2  # halves: Q4_0's scale is 1 here
    x[8] = rng.standard_normal(32) * 1e-9  # the scale rounds to a zero
    quants = quantize(x, ty)
    (HERE / f"quantise_{ty.name}.bin").write_bytes(x.tobytes() + quants.tobytes())


def quantise_ternary(ty, rng):
    """Ternary blocks of many scales, all zero, constant, and such that are not ternary."""
    x = (rng.integers(-1, 2, (8, 256)) * np.logspace(-3, 3, 8)[:, None]).astype(np.float32)
    x[0] = 0.0
    x[1] = -0.75
    x[2] = np.linspace(-1, 1, 256)
    x[3] = rng.standard_normal(256)
    x[4] = np.arange(256) % 5 / 4 - 0.5  # halves
    quants = quantize(x, ty)
    (HERE / f"quantise_{ty.name}.bin").write_bytes(x.tobytes() + quants.tobytes())


def quantise_nvfp4(rng):
    """Parts of 16 with every scale there is and those about it, on which rounding turns, and values between
    floats."""
    scales = np.arange(1, 127, dtype=np.uint8)
    scales = 2 * NVFP4.ue4m3_to_fp32(scales).astype(np.float32)
    middles = (scales[:-1] + scales[1:]) / 2
    last = np.array([256, 288, 447, 448], dtype=np.float32)
    most = 6 * np.concatenate([scales, middles, np.nextafter(middles, np.float32(0)), last])
    most = np.concatenate([[0, 1e-30, 1e-3], most, [1] * (-(len(most) + 3) % 4)]).astype(np.float32)
    x = rng.uniform(-1, 1, (len(most), 16)).astype(np.float32)
    x[::5] = np.arange(16) / 12 - 0.625  # halves between floats
    x[:, 3] = rng.integers(0, 2, len(most)) * 2 - 1
    x *= most[:, None]
    blocks = np.zeros(x.size // 64 * 36, dtype=np.uint8)
    make = ctypes.CDLL(sys.argv[1]).quantize_row_nvfp4_ref
    make(x.ctypes.data_as(ctypes.c_void_p), blocks.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(x.size))
    (HERE / "quantise_NVFP4.bin").write_bytes(x.tobytes() + blocks.tobytes())


def sum_of_random(ty):
    """A sum over the bits of what 512 blocks of random bytes stand for, each bit pattern times an odd
    number of its own; every NaN counts as 0x7fc00000."""
    length, size = GGML_QUANT_SIZES[ty]
    words = np.arange(1, 512 * size // 8 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    # SplitMix64.
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    with np.errstate(all="ignore"):
        values = dequantize(words.astype("<u8").view(np.uint8).reshape(512, size), ty).reshape(-1)
    bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32)).astype(np.uint64)
    odd = np.uint64(2) * np.arange(bits.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    return int((bits * odd).sum(dtype=np.uint64))


def quantise_floats(ty, rng):
    """Special values, ties of both parities, and random bit patterns."""
    bits = np.array(
        [0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000,
         0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF,
         0x3F801000, 0x3F803000, 0x3F801001, 0x477FE000, 0x477FF000, 0x477FEFFF, 0x33000000,
         0x33000001, 0x33800000, 0x38800000, 0x387FC000, 0x387FE000],
        dtype=np.uint32,
    )
    bits = np.concatenate([bits, bits | np.uint32(0x80000000)])
    some = rng.standard_normal(256).astype(np.float32)
    bits = np.concatenate([bits, some.view(np.uint32)])
    bits = np.concatenate([bits, rng.integers(0, 1 << 32, 512 - bits.size, dtype=np.uint32)])
    with np.errstate(all="ignore"):
        out = quantize(bits.view(np.float32), ty)
    (HERE / f"quantise_{ty.name}.bin").write_bytes(bits.tobytes() + out.tobytes())


def python_file():
    w = GGUFWriter(HERE / "python.gguf", "test")
    scalars = {
        "u8": (GGUFValueType.UINT8, 200),
        "i8": (GGUFValueType.INT8, -100),
        "u16": (GGUFValueType.UINT16, 60000),
        "i16": (GGUFValueType.INT16, -30000),
        "u32": (GGUFValueType.UINT32, 4000000000),
        "i32": (GGUFValueType.INT32, -2000000000),
        "u64": (GGUFValueType.UINT64, 1 << 63),
        "i64": (GGUFValueType.INT64, -(1 << 62)),
        "f32": (GGUFValueType.FLOAT32, 0.15625),
        "f64": (GGUFValueType.FLOAT64, 0.1),
        "bool": (GGUFValueType.BOOL, True),
        "string": (GGUFValueType.STRING, "naïve ✓"),
    }
    for name, (ty, value) in scalars.items():
        w.add_key_value(f"scalar.{name}", value, ty)
    arrays = {
        "u8": (GGUFValueType.UINT8, [1, 2, 255]),
        "i32": (GGUFValueType.INT32, [1, -2, 3]),
        "u64": (GGUFValueType.UINT64, [1 << 40]),
        "f32": (GGUFValueType.FLOAT32, [0.5, -1.25]),
        "f64": (GGUFValueType.FLOAT64, [0.1]),
        "bool": (GGUFValueType.BOOL, [True, False, True]),
        "string": (GGUFValueType.STRING, ["", "a", "naïve ✓"]),
    }
    for name, (ty, value) in arrays.items():
        w.add_key_value(f"array.{name}", value, GGUFValueType.ARRAY, sub_type=ty)
    # The writer takes strings as bytes too: half a character, as vocabularies have.
    w.add_key_value("array.bytes", [b"\xe2\x9c", b"\xff"], GGUFValueType.ARRAY, sub_type=GGUFValueType.STRING)
    w.add_custom_alignment(64)
    w.add_tensor("one", np.arange(3, dtype=np.float32))
    w.add_tensor("cube", (np.arange(24, dtype=np.float16) / 8).reshape(2, 3, 4))
    rows = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
    w.add_tensor("quantised", quantize(rows, T.Q8_0), raw_dtype=T.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    for ty in FIELDS:
        dequantise_vectors(ty, np.random.default_rng(int(ty)))
    for ty in (T.F16, T.BF16):
        dequantise_floats(ty, np.random.default_rng(int(ty)))
        quantise_floats(ty, np.random.default_rng(100 + int(ty)))
    for ty in QUANTISED:
        quantise_vectors(ty, np.random.default_rng(100 + int(ty)))
    sums = [f"{ty.name} {sum_of_random(ty):016x}\n" for ty in FIELDS]
    (HERE / "sums.txt").write_text("".join(sums))
    python_file()
