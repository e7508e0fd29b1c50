"""Vectors of texts of a converted T5 encoder beside those of `transformers`: the mean of all tokens' states, of length
one, for the tokens of SentencePiece itself."""

from pathlib import Path

import numpy as np
import sentencepiece
import torch
import transformers

import vocabularies

# Both sum in single precision, in orders of their own.
TOLERANCE = 1e-5
ODD = ["naïve Café, ÜBER-straße!", "  spaces   between\tand at the end ", "日本語のテキスト", "ﬁne ①", "a", "x = [1, 2.5]; // ok?"]


def reference(folder: Path, texts: list[str]) -> tuple[np.ndarray, list[int]]:
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    model = transformers.T5EncoderModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    vectors, counts = [], []
    with torch.no_grad():
        for text in texts:
            ids = [*pieces.encode(text), pieces.eos_id()]
            mean = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
            vectors.append((mean / mean.norm()).numpy())
            counts.append(len(ids))
    return np.stack(vectors), counts


def differences(arclight: str, run, folder: Path, work: Path) -> list[str]:
    texts = [" ".join(line.split()) for line in vocabularies.lines() if line.strip()][:40] + ODD
    want, counts = reference(folder, texts)
    file, lines, matrix = work / "t5.f32.gguf", work / "texts.txt", work / "vectors.npy"
    lines.write_text("\n".join(texts) + "\n", encoding="utf-8")
    for args in (["convert", str(folder), "-o", str(file), "--type", "f32"],
                 ["embed", str(file), "-f", str(lines), "-o", str(matrix), "--kv-type", "f32", "--nodes", "2"]):
        made = run(arclight, *args)
        if made.returncode:
            return [f"arclight {args[0]} fails: {made.stderr.strip()}"]
    off = np.abs(np.load(matrix) - want).max(1)
    return [f"{texts[at]!r} ({counts[at]} tokens): off by {off[at]:.1e}" for at in np.flatnonzero(off > TOLERANCE)]
