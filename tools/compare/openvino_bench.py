#!/usr/bin/env python3
"""Speeds of OpenVINO GenAI on a GGUF file, as JSON: tokens per second by test.

    openvino_bench.py FILE THREADS PA|SDPA CACHE TEST...

CACHE is the precision of keys and values, such as u8 or f16, or - for what the package chooses.

Runs in an environment that has openvino-genai. Prompts are random token ids, others each time,
so that no cache of prefixes can help; every test is done once unmeasured, because the first
step of a new shape compiles. What counts is the time of the model's steps as the package's own
metrics have it: no sampling, no text, as the other engines' tools do it. The precision of the
arithmetic is what the package chooses; held to AVX2, f32.
"""

import json
import os
import sys

import numpy as np
import openvino as ov
import openvino_genai as genai

from workload import BATCH_PROMPT, BATCH_TOKENS, DEPTH_TOKENS, parse

WARM_UP_TOKENS = 8


def pipeline(file: str, threads: int, backend: str, cache: str) -> genai.LLMPipeline:
    options = {"INFERENCE_NUM_THREADS": threads, "ATTENTION_BACKEND": backend}
    if os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX2":
        # What it chooses for this CPU, bf16 and products of 8 bits, it then has no kernel for, and fails.
        options |= {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    if cache != "-":
        options["KV_CACHE_PRECISION"] = cache
    if backend == "PA":
        scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        # All prompts in one step, so that the steps after it only decode.
        scheduler.dynamic_split_fuse = False
        scheduler.max_num_batched_tokens = 1 << 17
        options["scheduler_config"] = scheduler
    return genai.LLMPipeline(file, "CPU", **options)


def main() -> None:
    file, threads, backend, cache, *names = sys.argv[1:]
    pipe = pipeline(file, int(threads), backend, cache)
    vocab = len(pipe.get_tokenizer().get_vocab())
    rng = np.random.default_rng(1)

    def steps(batch: int, prompt: int, new: int) -> list[float]:
        """Seconds of every step: the prompt's, and the new tokens' but the first."""
        ids = rng.integers(0, vocab, (batch, prompt), dtype=np.int64)
        config = genai.GenerationConfig(max_new_tokens=new, min_new_tokens=new,
                                        ignore_eos=True, do_sample=False)
        inputs = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
        result = pipe.generate(inputs, config)
        times = [us / 1e6 for us in result.perf_metrics.raw_metrics.token_infer_durations]
        if len(times) != new or any(len(t) != new for t in result.tokens):
            sys.exit(f"error: {new} steps asked for, {len(times)} done")
        return times

    def measure(batch: int, prompt: int, new: int) -> list[float]:
        steps(batch, prompt, min(new, WARM_UP_TOKENS))
        return steps(batch, prompt, new)

    speeds = {}
    for test in map(parse, names):
        match test.kind:
            case "pp":
                speeds[str(test)] = test.size / measure(1, test.size, 1)[0]
            case "tg":
                speeds[str(test)] = test.size / sum(measure(1, 1, test.size + 1)[1:])
            case "b":
                times = measure(test.size, BATCH_PROMPT, BATCH_TOKENS + 1)
                speeds[str(test)] = test.size * BATCH_TOKENS / sum(times[1:])
            case "d":
                speeds[str(test)] = DEPTH_TOKENS / sum(measure(1, test.size, DEPTH_TOKENS + 1)[1:])
    print(json.dumps(speeds))


if __name__ == "__main__":
    main()
