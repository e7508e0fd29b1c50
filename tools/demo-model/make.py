#!/usr/bin/env python3
"""Makes the demo model from nothing: text, vocabulary, training, GGUF.

    python make.py                 # all of it, about 30 minutes on one core
    python make.py --minutes 5     # a quick one
    python make.py --export        # only writes the GGUF files from the checkpoint
    python make.py --experts 8     # a sparse one; its files stay in --work

Work files (vocabulary, tokens, checkpoint, the F32 file) go to --work. Training stops
after --tokens tokens or --minutes minutes, whichever comes first; the learning rate
follows the one that is nearer to its end. A run bounded by tokens gives the same
model on the same machine and library versions.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import corpus
import export
import vocab as vocabulary
from model import Config, Model

ROOT = Path(__file__).resolve().parents[2]
HELDOUT_CHARS = 80_000
PEAK_LR, LAST_LR, WARMUP = 1.5e-3, 5e-5, 0.02
BATCH = 2048  # tokens a step
BALANCE = 0.01  # what an uneven choice of experts costs
LONG_FROM, SHORT, LONG = 0.85, 512, 2048  # the last part trains whole contexts


def window(step_share: float) -> int:
    return LONG if step_share >= LONG_FROM else SHORT


def batches(tokens: np.ndarray):
    """A function from a window length to the next unread batch."""
    at = 0

    def take(length: int) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal at
        if at + BATCH + 1 > len(tokens):
            at = 0
        ids = torch.from_numpy(tokens[at: at + BATCH + 1].astype(np.int64))
        at += BATCH
        return ids[:-1].view(-1, length), ids[1:].view(-1, length)

    return take


@torch.no_grad()
def heldout_loss(model: Model, ids: torch.Tensor, length: int = 1024) -> float:
    """Mean negative log likelihood over whole windows."""
    n = (len(ids) - 1) // length
    losses = [F.cross_entropy(model(ids[None, i * length: (i + 1) * length])[0],
                              ids[i * length + 1: (i + 1) * length + 1]) for i in range(n)]
    return float(torch.stack(losses).mean())


def save(model: Model, checkpoint: Path) -> None:
    # whole or not at all: --export may be reading it
    torch.save(model.state_dict(), part := checkpoint.with_suffix(".part"))
    part.replace(checkpoint)


def train(model: Model, tokens: np.ndarray, heldout: torch.Tensor, budget: int, minutes: float,
          checkpoint: Path) -> None:
    decay = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim == 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05},
                             {"params": plain, "weight_decay": 0.0}],
                            lr=PEAK_LR, betas=(0.9, 0.98), fused=True)
    take, seen, step, start, running = batches(tokens), 0, 0, time.monotonic(), None
    while True:
        spent = (time.monotonic() - start) / 60
        share = max(seen / budget, spent / minutes)
        if share >= 1.0:
            break
        lr = (PEAK_LR * share / WARMUP if share < WARMUP else
              LAST_LR + (PEAK_LR - LAST_LR) * 0.5 * (1 + math.cos(math.pi * (share - WARMUP) / (1 - WARMUP))))
        for group in opt.param_groups:
            group["lr"] = max(lr, 1e-5)
        x, y = take(window(share))
        # products in bfloat16 halve the time; weights, sums and norms stay float32
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        opt.zero_grad(set_to_none=True)
        if model.c.experts:
            (loss + BALANCE * sum(block.imbalance for block in model.blk)).backward()
        else:
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        seen, step = seen + BATCH, step + 1
        if step % 100 == 0:
            save(model, checkpoint)
            held = f", held out {heldout_loss(model, heldout[:8193]):.3f}" if step % 500 == 0 else ""
            print(f"step {step}, {seen / 1e6:.2f} M tokens, {spent:.1f} min, lr {lr:.1e}, "
                  f"loss {running:.3f}{held}", flush=True)
    save(model, checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8_000_000, help="training tokens")
    parser.add_argument("--minutes", type=float, default=1e9, help="training time at most")
    parser.add_argument("--experts", type=int, default=0, help="of every layer, instead of one FFN")
    parser.add_argument("--used", type=int, default=2, help="experts for each token")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--export", action="store_true", help="skip training")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    parser.add_argument("--out", type=Path, help="default: demo/, with --experts the work folder")
    args = parser.parse_args()
    if args.experts and not 0 < args.used <= args.experts:
        parser.error(f"--used {args.used} of --experts {args.experts}")
    args.out = args.out or (args.work if args.experts else ROOT / "demo")
    suffix = "-moe" if args.experts else ""
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    args.work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)

    text = corpus.heldout(HELDOUT_CHARS)
    (args.out / "heldout.txt").write_text(text)
    vocab = vocabulary.load(args.work / "tokenizer.json")
    heldout = torch.tensor(vocab.encode(text))
    model = Model(Config(experts=args.experts, used=args.used))
    checkpoint = args.work / f"checkpoint{suffix}.pt"
    if not args.export:
        print(f"{sum(p.numel() for p in model.parameters()):,} parameters, "
              f"{len(text) / len(heldout):.2f} characters a token", flush=True)
        tokens = vocabulary.stream(vocab, corpus.TRAIN_SEED, args.tokens)
        train(model, tokens, heldout, args.tokens, args.minutes, checkpoint)
    model.load_state_dict(torch.load(checkpoint))
    print(f"perplexity of heldout.txt: {math.exp(heldout_loss(model, heldout)):.3f}")
    name = f"arclight-demo{suffix}"
    for path in (export.write(model, vocab, args.work / f"{name}-f32.gguf", quantised=False),
                 export.write(model, vocab, args.out / f"{name}.gguf", quantised=True)):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
