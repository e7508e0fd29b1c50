"""Tokens a second of `LLM.generate` beside those of the server of the same wheel, and of llama-cpp-python if it is
installed; in turn, several times, with the least, the median and the largest of each figure.

    speed.py [MODEL] [--prompts 256] [--tokens 32] [--at-once 32] [--rounds 3] [--llama]
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from arclight import LLM, SamplingParams


def prompts(count: int) -> list[str]:
    return [f"Once upon a time there were {n} ducks, and each of them had a map of the sea. The duck with" for n in range(count)]


@contextmanager
def server(model: str | None, args: argparse.Namespace):
    """What asks a server for all answers, with as many connections as it has slots and some that wait."""
    command = [sys.executable, "-m", "arclight", "serve", *([model] if model else []), "--port", "0"]
    command += ["--parallel", str(args.at_once), "--queue", "4096", "--ctx", str(args.ctx)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        line = next(line for line in child.stderr if line.startswith("serving "))
        base = "http://" + line.split("http://")[1].split("/v1")[0]

        def one(prompt: str) -> int:
            body = {"prompt": prompt, "max_tokens": args.tokens, "temperature": 0, "ignore_eos": True}
            request = urllib.request.Request(base + "/v1/completions", json.dumps(body).encode())
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)["usage"]["completion_tokens"]

        def ask(texts: list[str]) -> int:
            with ThreadPoolExecutor(2 * args.at_once) as pool:
                return sum(pool.map(one, texts))

        # It tells of every request.
        reader = threading.Thread(target=child.stderr.read)
        reader.start()
        try:
            yield ask
        finally:
            child.terminate()
            reader.join()


@contextmanager
def module(model: str | None, args: argparse.Namespace):
    """The same in this process."""
    params = SamplingParams(max_tokens=args.tokens, temperature=0, ignore_eos=True)
    with LLM(model, max_num_seqs=args.at_once, max_model_len=args.ctx, progress=False) as llm:
        yield lambda texts: sum(len(output.outputs[0].token_ids) for output in llm.generate(texts, params))


@contextmanager
def llama(model: str | None, args: argparse.Namespace):
    """One answer after the other, as that package gives them."""
    from llama_cpp import Llama

    model = Llama(model, n_ctx=args.ctx, verbose=False)

    def ask(texts: list[str]) -> int:
        some = texts[: max(1, len(texts) // 16)]
        answers = [model(text, max_tokens=args.tokens, temperature=0, logit_bias={model.token_eos(): -100.0}) for text in some]
        return sum(answer["usage"]["completion_tokens"] for answer in answers)

    yield ask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama", action="store_true")
    args = parser.parse_args()
    texts = prompts(args.prompts)
    engines = {"server": server, "module": module} | ({"llama-cpp-python": llama} if args.llama else {})
    rates: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(args.rounds):
        # One at a time: two would wait for each other's threads.
        for name, engine in engines.items():
            with engine(args.model, args) as ask:
                ask(texts[:4])
                begin = time.perf_counter()
                tokens = ask(texts)
                rates[name].append(tokens / (time.perf_counter() - begin))
    for name, found in rates.items():
        low, middle, high = min(found), statistics.median(found), max(found)
        ratio = middle / statistics.median(rates["server"])
        print(f"{name:18} {low:9.1f} {middle:9.1f} {high:9.1f} tokens/s, {ratio:.3f} of the server's")


if __name__ == "__main__":
    main()
