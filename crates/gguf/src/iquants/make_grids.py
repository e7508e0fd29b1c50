"""Makes grids.bin, the tables of the IQ types, from those in ggml's Python package (gguf 0.19).

Usage: python make_grids.py, with `pip install gguf numpy`.

The file holds, one after the other, the tables of IQ2_XXS (256 rows), IQ2_XS (512), IQ2_S (1024)
and IQ1_S (2048), 16 bits a row: eight entries of 2 bits, the first lowest; then those of IQ3_XXS
(256) and IQ3_S (512), 12 bits a row in 16: four entries of 3 bits, the first lowest.
"""

from pathlib import Path

import numpy as np
from gguf import quants

out = b""
for name, bits in [("IQ2_XXS", 2), ("IQ2_XS", 2), ("IQ2_S", 2), ("IQ1_S", 2), ("IQ3_XXS", 3), ("IQ3_S", 3)]:
    kind = getattr(quants, name)
    kind.init_grid()
    entries = np.searchsorted(np.array(kind.grid_map), kind.grid.reshape(kind.grid_shape))
    shifts = bits * np.arange(kind.grid_shape[1])
    out += (entries << shifts).sum(axis=1).astype("<u2").tobytes()
(Path(__file__).parent / "grids.bin").write_bytes(out)
