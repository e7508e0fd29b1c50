"""Vectors of `arclight embed` beside those of `transformers`: the mean of all tokens' states, of length one, as
sentence-transformers makes them of this model. Then scores of `/v1/rerank` by the same model with a classifier, whose
weights are random, beside `BertForSequenceClassification`'s."""

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import numpy as np
import torch
import transformers

# Both sum in single precision, in orders of their own; vectors have length one.
TOLERANCE = 1e-5
# A folder's weights are F16 in memory, half a step of which is 2^-12 of a weight.
TOLERANCE_F16 = 1e-3
TEXTS = 200
QUERY = "What did the animals do in the wood?"
DOCUMENTS = 20


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


def classifier(folder: str, out: Path) -> transformers.BertForSequenceClassification:
    """The model with a pooler and a classifier of one number, in a folder that can be converted."""
    torch.manual_seed(1)
    config = transformers.BertConfig.from_pretrained(folder, num_labels=1)
    model = transformers.BertForSequenceClassification.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager").eval()
    model.bert.pooler.dense.weight.data.normal_(0, 0.3)
    model.classifier.weight.data.normal_(0, 0.3)
    model.save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (Path(folder) / name).exists():
            (out / name).write_bytes((Path(folder) / name).read_bytes())
    return model


def rerank(program: str, file: str, body: dict) -> dict:
    """The answer of a server that runs for it."""
    server = subprocess.Popen([program, "serve", file, "--port", "0", "--kv-type", "f32"], stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in server.stderr if line.startswith("serving "))
        address = "http://" + line.split("http://")[1].split("/")[0]
        request = urllib.request.Request(f"{address}/v1/rerank", json.dumps(body).encode(), {"content-type": "application/json"})
        return json.load(urllib.request.urlopen(request))
    finally:
        server.terminate()
        server.wait()


def check_ranking(program: str, folder: str, documents: list[str], scratch: Path) -> None:
    model = classifier(folder, scratch / "classifier")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json", model_input_names=[
        "input_ids", "token_type_ids", "attention_mask"])
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    want, tokens = [], 0
    with torch.no_grad():
        for document in documents:
            pair = tokenizer(QUERY, document, return_tensors="pt")
            assert pair["token_type_ids"].max() == 1
            want.append(float(model(**pair).logits[0, 0]))
            tokens += pair["input_ids"].shape[1]
    file = str(scratch / "classifier.gguf")
    subprocess.run([program, "convert", scratch / "classifier", "-o", file, "--type", "f32"], check=True)
    answer = rerank(program, file, {"query": QUERY, "documents": documents, "raw_scores": True})
    got = {item["index"]: item["relevance_score"] for item in answer["results"]}
    spread = max(want) - min(want)
    error = max(abs(got[at] - want[at]) for at in range(len(documents))) / spread
    print(f"embed: scores of {len(documents)} documents, from {min(want):.2f} to {max(want):.2f}, "
          f"largest difference {error:.1e} of that")
    order = [item["index"] for item in answer["results"]]
    if error > TOLERANCE or order != sorted(range(len(want)), key=lambda at: -want[at]):
        raise SystemExit("embed: other scores than those of transformers")
    if answer["usage"]["total_tokens"] != tokens:
        raise SystemExit(f"embed: {answer['usage']} instead of {tokens} tokens")


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
    with tempfile.TemporaryDirectory() as scratch:
        check_ranking(program, folder, texts[:DOCUMENTS], Path(scratch))
    # The folder itself, converted as it is loaded.
    out = subprocess.run([program, "embed", folder, "-p", texts[0], "--kv-type", "f32"], check=True, capture_output=True)
    line = json.loads(out.stdout)
    error = float(np.abs(np.array(line["embedding"]) - want[0]).max())
    print(f"embed: the folder itself, in F16, largest difference {error:.1e}")
    if line["tokens"] != counts[0] or error > TOLERANCE_F16:
        raise SystemExit(f"embed: the folder itself gives {line['tokens']} tokens and a difference of {error:.1e}")


if __name__ == "__main__":
    main()
