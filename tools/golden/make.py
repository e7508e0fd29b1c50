#!/usr/bin/env python3
"""Golden logits for the engine's tests.

Builds small random models, runs them with Hugging Face `transformers` (float32,
eager attention) and stores what they answered, beside the GGUF file's header: the
weights come from a rule (`weights.py`), so that nobody needs to store them.
Before anything is kept, the whole file is written, read back and evaluated by a
second, independent forward pass in NumPy float64 that follows the GGUF
conventions (`float64.py`): that checks the export and bounds the rounding error
of the float32 numbers.

    python make.py            # all models into ../../tests/golden
    python make.py qwen3_tied # one of them

Weights do not depend on any library's version; the logits do, by about 1e-6.
"""

import argparse
import json
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

import families
import predict
from export import export, tensors
from float64 import Float64
from specs import CONTEXT, SPECS, VOCAB, Spec

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden"
PROMPT_LENGTHS = (1, 7, 64, 300)
ALL_POSITIONS = 7  # the prompt whose logits are kept at every position
CONTINUATION = 64
MIN_MARGIN = 0.01  # between the best two tokens of every greedy step
MIN_DISTINCT = 24  # tokens in the continuation: a loop would test little
MAX_ERROR = 2e-5  # float32 against float64, relative to the largest logit
MIN_TIE = 1e-4  # between the last expert that is chosen and the next, of any token


def prompts() -> list[list[int]]:
    """The same token ids for every model."""
    rng = np.random.default_rng(20240229)
    return [rng.integers(0, VOCAB, n).tolist() for n in PROMPT_LENGTHS]


def build(spec: Spec):
    rope = {**spec.rope, "rope_theta": spec.theta}
    if spec.local:
        rope = {"full_attention": rope, "sliding_attention": spec.local}
    common = dict(
        vocab_size=spec.vocab, hidden_size=spec.hidden, intermediate_size=spec.ffn,
        num_hidden_layers=spec.layers, num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads, head_dim=spec.keys.get("attention.key_length_swa", spec.head_dim),
        max_position_embeddings=spec.keys.get("context_length", CONTEXT), rms_norm_eps=spec.eps,
        rope_parameters=rope,
        tie_word_embeddings=spec.tied, attention_bias=False, attn_implementation="eager",
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )
    wanted = {key: value for key, value in {**common, **spec.config}.items() if value is not ...}
    config = getattr(transformers, spec.reference + "Config")(**wanted)
    name = spec.reference.removesuffix("Text")
    headed = [name + end for end in ("ForCausalLM", "LMHeadModel") if hasattr(transformers, name + end)]
    if headed:
        model = getattr(transformers, headed[0])(config)
    else:
        model = families.Headed(getattr(transformers, spec.reference + "Model")(config), config)
    model = model.float().eval()
    if spec.change:
        spec.change(model)
    return model


@torch.no_grad()
def logits_of(model, tokens: list[int]) -> np.ndarray:
    """[tokens, vocab]"""
    more = model.more_inputs(len(tokens)) if hasattr(model, "more_inputs") else {}
    return model(torch.tensor([tokens]), use_cache=False, **more).logits[0].numpy()


def margin(row: np.ndarray) -> float:
    second, best = np.partition(row, -2)[-2:]
    return float(best - second)


def greedy(step, prompt: list[int], least: float) -> tuple[list[int], float]:
    """The continuation and the smallest top-2 margin on the way, up to where that is below
    `least`."""
    tokens, worst = list(prompt), float("inf")
    while worst > least and len(tokens) < len(prompt) + CONTINUATION:
        row = step(tokens)[-1]
        worst = min(worst, margin(row))
        tokens.append(int(row.argmax()))
    return tokens[len(prompt):], worst


def make(spec: Spec) -> None:
    folder = OUT / spec.name
    folder.mkdir(parents=True, exist_ok=True)
    ids = prompts()
    short = next(p for p in ids if len(p) == ALL_POSITIONS)
    model = build(spec)
    layer = build(predict.one_layer(spec)) if spec.predicts is not None else None
    for seed in range(1, 2000):
        file = tensors(spec, model, seed, layer)
        continuation, worst = greedy(lambda t: logits_of(model, t), short, MIN_MARGIN)
        if worst <= MIN_MARGIN or len(set(continuation)) < MIN_DISTINCT:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            whole = Path(scratch) / "model.gguf"
            export(spec, seed, file, whole)
            check = Float64(whole)
            header = whole.read_bytes()[: gguf.GGUFReader(str(whole)).data_offset]
        answers = [check(tokens) for tokens in ids]
        predicted = [check.predict(tokens) for tokens in ids] if layer else []
        exact, exact_worst = greedy(check, short, 0.0)
        if check.tie > MIN_TIE:
            break
    else:
        raise SystemExit(f"{spec.name}: no seed gives clear margins and a varied continuation")

    error, entries, spread = 0.0, [], []
    for tokens, want in zip(ids, answers):
        got = logits_of(model, tokens)
        error = max(error, float(np.abs(got - want).max() / np.abs(want).max()))
        spread.append(got[-1].std())
        wanted = slice(None) if len(tokens) == ALL_POSITIONS else slice(-1, None)
        numbers = lambda rows: [[float(str(v)) for v in row] for row in rows[wanted]]
        entries.append({"tokens": tokens, "logits": numbers(got)})
        if layer:
            got, want = predict.logits_of(spec, model, layer, file, tokens), predicted[len(entries) - 1]
            error = max(error, float(np.abs(got - want).max() / np.abs(want).max()))
            entries[-1]["predicted"] = numbers(got)
    if error > MAX_ERROR or exact != continuation:
        raise SystemExit(f"{spec.name}: float32 and float64 disagree (error {error:.2e})")

    (folder / "header.gguf").write_bytes(header)
    # dumps would spread one number per line with indent; one prompt per line is enough
    body = ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries)
    greedy_json = json.dumps({"prompt": short, "continuation": continuation}, separators=(",", ":"))
    (folder / "expected.json").write_text(
        f'{{"prompts":[\n{body}\n],\n"greedy":{greedy_json}}}\n')
    print(f"{spec.name}: seed {seed}, logit std {min(spread):.2f}..{max(spread):.2f}, "
          f"float32 error {error:.1e}, min margin {min(worst, exact_worst):.3f}, "
          f"{len(set(continuation))} distinct of {CONTINUATION}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to make (default: all)")
    names = parser.parse_args().names
    unknown = set(names) - {s.name for s in SPECS}
    if unknown:
        parser.error(f"unknown model {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for spec in SPECS:
        if not names or spec.name in names:
            make(spec)


if __name__ == "__main__":
    main()
