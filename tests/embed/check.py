"""Vectors of `arclight embed` beside those of `transformers`: the mean of all tokens' states, of length one, as
sentence-transformers makes them of this model."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

# Both sum in single precision, in orders of their own; vectors have length one.
TOLERANCE = 1e-5
# A folder's weights are F16 in memory, half a step of which is 2^-12 of a weight.
TOLERANCE_F16 = 1e-3
TEXTS = 200


def reference(folder: str, texts: list[str]) -> tuple[np.ndarray, list[int]]:
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    model = transformers.BertModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    vectors, counts = [], []
    with torch.no_grad():
        for text in texts:
            ids = tokenizer(text, return_tensors="pt", return_token_type_ids=False)["input_ids"]
            mean = model(ids).last_hidden_state[0].mean(0)
            vectors.append((mean / mean.norm()).numpy())
            counts.append(ids.shape[1])
    return np.stack(vectors), counts


def main() -> None:
    program, file, folder, source = sys.argv[1:]
    # Sentences of many lengths, and texts that are no plain English.
    story = Path(source).read_text()
    sentences = [s.strip() for s in story.replace("\n", " ").split(". ") if s.strip()]
    texts = [" ".join(sentences[at:at + 1 + at % 7]) for at in range(TEXTS)]
    texts += ["naïve Café, ÜBER-straße!", "日本語のテキスト", "x = [1, 2.5]; // ok?", "a"]
    want, counts = reference(folder, texts)
    with tempfile.TemporaryDirectory() as scratch:
        lines = Path(scratch) / "texts.txt"
        lines.write_text("\n".join(texts) + "\n")
        for more, what in ([], "in batches"), (["--batch", "1"], "one by one"), (["--nodes", "2"], "on two nodes"):
            matrix = Path(scratch) / "vectors.npy"
            subprocess.run([program, "embed", file, "-f", lines, "-o", matrix, "--kv-type", "f32", *more], check=True)
            error = float(np.abs(np.load(matrix) - want).max())
            print(f"embed: {what}, {len(texts)} texts of {min(counts)} to {max(counts)} tokens, largest difference {error:.1e}")
            if error > TOLERANCE:
                raise SystemExit(f"embed: more than {TOLERANCE}")
    # The folder itself, converted as it is loaded.
    out = subprocess.run([program, "embed", folder, "-p", texts[0], "--kv-type", "f32"], check=True, capture_output=True)
    line = json.loads(out.stdout)
    error = float(np.abs(np.array(line["embedding"]) - want[0]).max())
    print(f"embed: the folder itself, in F16, largest difference {error:.1e}")
    if line["tokens"] != counts[0] or error > TOLERANCE_F16:
        raise SystemExit(f"embed: the folder itself gives {line['tokens']} tokens and a difference of {error:.1e}")


if __name__ == "__main__":
    main()
