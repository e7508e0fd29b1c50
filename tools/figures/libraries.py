"""Matrix products by other libraries: oneDNN, MKL and OpenBLAS, called by ctypes from their packages.

  libraries.py LIBRARY FILE TYPE THREADS ROWSxCOLS,… TOKENS,… ROUNDS

LIBRARY is onednn, mkl or openblas; FILE the shared object; TYPE f32, bf16 or q8_0, for which the library's product of
unsigned and signed bytes is taken. Y = X W^T, with W of ROWS x COLS and X of TOKENS x COLS. A line of JSON for each
shape, number of tokens and type that the library has: median seconds of a product, least and most. Weights come from
memory: copies of W that no cache holds together are multiplied in turn.
"""

import ctypes
import json
import sys
import time
from collections.abc import Callable
from ctypes import c_float, c_int, c_int8, c_int32, c_int64, c_size_t, c_uint8, c_void_p
from statistics import median

import numpy as np

WEIGHTS = 256 << 20     # bytes of all copies together, at least
WINDOW = 0.05           # seconds that are timed together
ROW_MAJOR, NO, YES, FIX = 101, 111, 112, 173

Multiply = Callable[[int, int, int, np.ndarray, np.ndarray, np.ndarray], None]


def pointer(array: np.ndarray) -> c_void_p:
    return c_void_p(array.ctypes.data)


def blas(function: ctypes._CFuncPtr, integer: type) -> Multiply:
    """cblas_sgemm, or one like it whose inputs are of another type."""
    function.restype = None

    def multiply(tokens: int, rows: int, cols: int, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> None:
        function(c_int(ROW_MAJOR), c_int(NO), c_int(YES), integer(tokens), integer(rows), integer(cols), c_float(1),
                 pointer(x), integer(cols), pointer(w), integer(cols), c_float(0), pointer(y), integer(rows))
    return multiply


def mkl_bytes(function: ctypes._CFuncPtr) -> Multiply:
    """cblas_gemm_s8u8s32: in rows, the first is unsigned."""
    function.restype = None

    def multiply(tokens: int, rows: int, cols: int, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> None:
        zero = c_int32(0)
        function(c_int(ROW_MAJOR), c_int(NO), c_int(YES), c_int(FIX), c_int(tokens), c_int(rows), c_int(cols),
                 c_float(1), pointer(x), c_int(cols), c_uint8(0), pointer(w), c_int(cols), c_int8(0), c_float(0),
                 pointer(y), c_int(rows), ctypes.byref(zero))
    return multiply


class OneDnn:
    """Its matmul, with weights laid out as it likes best (once, not timed)."""
    TYPES = {"bf16": (2, 2, 3), "f32": (3, 3, 3), "q8_0": (6, 5, 4)}   # of X, W and Y
    ANY, SOURCE, WEIGHTS, RESULT, QUERY_WEIGHTS = 1, 1, 33, 17, 131

    def __init__(self, loaded: ctypes.CDLL, of: str) -> None:
        self.loaded, self.types = loaded, self.TYPES[of]
        loaded.dnnl_primitive_desc_query_md.restype = c_void_p
        self.engine, self.stream = c_void_p(), c_void_p()
        self.call("engine_create", ctypes.byref(self.engine), c_int(1), c_size_t(0))
        self.call("stream_create", ctypes.byref(self.stream), self.engine, c_int(1))
        self.made: dict[tuple[int, int, int], tuple[c_void_p, c_void_p, c_void_p, c_void_p]] = {}
        self.packed: dict[tuple[int, int], c_void_p] = {}

    def call(self, name: str, *words: object) -> None:
        if status := getattr(self.loaded, f"dnnl_{name}")(*words):
            raise OSError(f"dnnl_{name}: status {status}")

    def layout(self, kind: int, shape: tuple[int, int], strides: tuple[int, int] | None) -> c_void_p:
        made, pair = c_void_p(), c_int64 * 2
        if strides is None:
            self.call("memory_desc_create_with_tag", ctypes.byref(made), c_int(2), pair(*shape), c_int(kind), c_int(self.ANY))
        else:
            self.call("memory_desc_create_with_strides", ctypes.byref(made), c_int(2), pair(*shape), c_int(kind),
                      pair(*strides))
        return made

    def memory(self, layout: c_void_p, at: c_void_p) -> c_void_p:
        made = c_void_p()
        self.call("memory_create", ctypes.byref(made), layout, self.engine, at)
        return made

    def execute(self, primitive: c_void_p, **memories: c_void_p) -> None:
        class Argument(ctypes.Structure):
            _fields_ = [("which", c_int), ("memory", c_void_p)]
        names = {"source": self.SOURCE, "weights": self.WEIGHTS, "result": self.RESULT}
        words = (Argument * len(memories))(*(Argument(names[n], m) for n, m in memories.items()))
        self.call("primitive_execute", primitive, self.stream, c_int(len(memories)), words)

    def product(self, tokens: int, rows: int, cols: int) -> tuple[c_void_p, c_void_p, c_void_p, c_void_p]:
        """The primitive, and the layouts of X, W and Y."""
        if (key := (tokens, rows, cols)) not in self.made:
            x, w, y = self.types
            layouts = (self.layout(x, (tokens, cols), (cols, 1)), self.layout(w, (cols, rows), None),
                       self.layout(y, (tokens, rows), (rows, 1)))
            described, primitive = c_void_p(), c_void_p()
            self.call("matmul_primitive_desc_create", ctypes.byref(described), self.engine, layouts[0], layouts[1], None,
                      layouts[2], None)
            self.call("primitive_create", ctypes.byref(primitive), described)
            best = c_void_p(self.loaded.dnnl_primitive_desc_query_md(described, c_int(self.QUERY_WEIGHTS), c_int(0)))
            self.made[key] = primitive, layouts[0], best, layouts[2]
        return self.made[key]

    def __call__(self, tokens: int, rows: int, cols: int, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> None:
        primitive, of_x, of_w, of_y = self.product(tokens, rows, cols)
        if (key := (w.ctypes.data, tokens)) not in self.packed:
            plain = self.layout(self.types[1], (cols, rows), (1, cols))
            self.packed[key] = self.memory(of_w, c_void_p(-1))     # it takes the memory itself
            described, reorder = c_void_p(), c_void_p()
            self.call("reorder_primitive_desc_create", ctypes.byref(described), plain, self.engine, of_w, self.engine, None)
            self.call("primitive_create", ctypes.byref(reorder), described)
            self.execute(reorder, source=self.memory(plain, pointer(w)), result=self.packed[key])
            self.call("stream_wait", self.stream)
        memories = [self.memory(of_x, pointer(x)), self.memory(of_y, pointer(y))]
        self.execute(primitive, source=memories[0], weights=self.packed[key], result=memories[1])
        self.call("stream_wait", self.stream)
        for memory in memories:
            self.call("memory_destroy", memory)

    def forget(self) -> None:
        """Gives the memory of weights back."""
        for memory in self.packed.values():
            self.call("memory_destroy", memory)
        self.packed = {}


def find(library: str, file: str, of: str, threads: int) -> Multiply | None:
    """The library's product of a type, if it has one."""
    loaded = ctypes.CDLL(file)

    def have(name: str) -> ctypes._CFuncPtr | None:
        return getattr(loaded, name, None)

    if library == "onednn":
        return OneDnn(loaded, of)
    if library == "mkl":
        loaded.MKL_Set_Num_Threads(c_int(threads))
        return {"f32": lambda: blas(loaded.cblas_sgemm, c_int), "q8_0": lambda: mkl_bytes(loaded.cblas_gemm_s8u8s32),
                "bf16": lambda: blas(loaded.cblas_gemm_bf16bf16f32, c_int)}[of]()
    # numpy carries OpenBLAS with names and integers of its own.
    for prefix, suffix, integer in (("scipy_", "64_", c_int64), ("", "", c_int)):
        if sets := have(f"{prefix}openblas_set_num_threads{suffix}"):
            sets(c_int(threads))
            name = {"f32": "cblas_sgemm", "bf16": "cblas_sbgemm"}.get(of)
            function = have(f"{prefix}{name}{suffix}") if name else None
            return blas(function, integer) if function else None
    raise OSError(f"{file} is no OpenBLAS")


def filled(shape: tuple[int, int], of: str, unsigned: bool) -> np.ndarray:
    """Small numbers of a type; those of bf16 are the upper halves of f32."""
    random = np.random.default_rng(1)
    if of == "q8_0":
        return random.integers(0, 100, shape, dtype=np.uint8 if unsigned else np.int8)
    numbers = random.standard_normal(shape, dtype=np.float32)
    return numbers if of == "f32" else (numbers.view(np.uint32) >> 16).astype(np.uint16)


def plain(array: np.ndarray) -> np.ndarray:
    return (array.astype(np.uint32) << 16).view(np.float32) if array.dtype == np.uint16 else array


def check(x: np.ndarray, w: np.ndarray, y: np.ndarray) -> None:
    """The product of a few rows, by numpy in double precision."""
    some = slice(0, 5)
    wanted = plain(x[some]).astype(np.float64) @ plain(w[some]).astype(np.float64).T
    got = y[some, some]
    if not np.allclose(got, wanted, rtol=1e-3, atol=1e-2 * np.sqrt(x.shape[1])):
        raise OSError(f"the product is wrong: {got[0]} and not {wanted[0]}")


def main() -> None:
    library, file, of, threads, shapes, counts, rounds = sys.argv[1:]
    multiply = find(library, file, of, int(threads))
    if multiply is None:
        print(json.dumps({"library": library, "type": of, "error": "it has no such product"}))
        return
    for shape in shapes.split(","):
        rows, cols = map(int, shape.split("x"))
        first = filled((rows, cols), of, unsigned=False)
        copies = [first] + [first.copy() for _ in range(WEIGHTS // first.nbytes)]
        for tokens in map(int, counts.split(",")):
            x = filled((tokens, cols), of, unsigned=True)
            y = np.zeros((tokens, rows), dtype=np.int32 if of == "q8_0" else np.float32)
            for copy in copies:
                multiply(tokens, rows, cols, x, copy, y)
            check(x, first, y)
            times, at = [], 0
            for _ in range(int(rounds)):
                begin, count = time.perf_counter(), 0
                while (took := time.perf_counter() - begin) < WINDOW or count == 0:
                    at = (at + 1) % len(copies)
                    multiply(tokens, rows, cols, x, copies[at], y)
                    count += 1
                times.append(took / count)
            print(json.dumps({"library": library, "type": of, "rows": rows, "cols": cols, "tokens": tokens,
                              "threads": int(threads), "seconds": median(times), "low": min(times), "high": max(times)}))
            if isinstance(multiply, OneDnn):
                multiply.forget()


if __name__ == "__main__":
    main()
