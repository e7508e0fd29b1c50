"""The same model in llama-cpp-python: tokens, probabilities, answers, and the shapes of what its methods give."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import DEMO, HELLO, ROOT

from arclight import SamplingParams
from arclight.compat.llama_cpp import Llama

llama_cpp = pytest.importorskip("llama_cpp", reason="tests/python/run --full installs it")

# Both round what is multiplied with the weights to 8 bits, each in its own way, and keep keys and values as halves:
# likelihoods of tokens differ by 0.01 in the mean, and by a few tenths where a token is very unlikely.
MEAN, MOST = 0.02, 0.8


@pytest.fixture(scope="module")
def theirs():
    return llama_cpp.Llama(str(DEMO), n_ctx=1024, n_threads=2, logits_all=True, verbose=False)


@pytest.fixture(scope="module")
def ours():
    with Llama(DEMO, n_ctx=1024, verbose=False) as ours:
        yield ours


def log_softmax(logits):
    logits = np.asarray(logits, dtype=np.float64)
    logits = logits - logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def their_rows(theirs, ids):
    theirs.reset()
    theirs.eval(ids)
    return log_softmax(theirs.scores[: len(ids)])


@pytest.mark.parametrize("special", [False, True])
def test_tokens(theirs, ours, special):
    for text in ["Once upon a time", "  two spaces\n\n and 1234567 ÄÖ 🦆 <|im_end|>", HELLO[0]["content"], ""]:
        ids = theirs.tokenize(text.encode(), add_bos=True, special=special)
        assert ours.tokenize(text.encode(), add_bos=True, special=special) == ids
        assert ours.detokenize(ids, special=True) == theirs.detokenize(ids, special=True)
    assert (ours.n_vocab(), ours.n_embd(), ours.token_eos()) == (theirs.n_vocab(), theirs.n_embd(), theirs.token_eos())


def test_probabilities(theirs, llm):
    ids = llm.tokenizer.encode((ROOT / "demo/heldout.txt").read_text())[:600]
    want, got = their_rows(theirs, ids), log_softmax(llm.logits(ids))
    at = np.arange(len(ids) - 1)
    likely = want[at, ids[1:]], got[at, ids[1:]]
    apart = np.abs(likely[0] - likely[1])
    assert apart.mean() < MEAN and apart.max() < MOST, (apart.mean(), apart.max())
    ratio = np.exp(likely[0].mean() - likely[1].mean())
    assert abs(ratio - 1) < 0.01, ratio


def test_greedy_answers_part_only_where_two_tokens_are_alike(theirs, llm):
    prompts = ["Once upon a time", "The sea", "On the map", "Her friends were"]
    params = SamplingParams(temperature=0, max_tokens=40, logprobs=2)
    same = 0
    for prompt, output in zip(prompts, llm.generate(prompts, params), strict=True):
        theirs.reset()
        answer = theirs(prompt, max_tokens=40, temperature=0)["choices"][0]["text"]
        mine = output.outputs[0]
        if mine.text == answer:
            same += 1
            continue
        shared = next(at for at in range(len(mine.text)) if mine.text[: at + 1] != answer[: at + 1])
        at = next(n for n in range(len(mine.token_ids)) if len(llm.tokenizer.decode(mine.token_ids[: n + 1])) > shared)
        first, second = sorted((one.logprob for one in mine.logprobs[at].values()), reverse=True)[:2]
        assert first - second < 0.3, (prompt, mine.text, answer)
    assert same > 0


def shape(value):
    """Keys and types, of lists the first."""
    if isinstance(value, dict):
        return {key: shape(of) for key, of in value.items()}
    if isinstance(value, list):
        return [shape(of) for of in value[:1]]
    return type(value).__name__


def has(mine, want):
    """Whether all that is in one is in the other."""
    if isinstance(want, dict):
        return isinstance(mine, dict) and all(key in mine and has(mine[key], of) for key, of in want.items())
    if isinstance(want, list):
        return isinstance(mine, list) and all(has(*pair) for pair in zip(mine, want))
    return mine == want or "NoneType" in (mine, want) or {mine, want} <= {"int", "float", "float32", "float64"}


def test_what_methods_give_has_the_same_keys(theirs, ours):
    asks = [
        lambda llama: llama("Once upon", max_tokens=4, temperature=0),
        lambda llama: list(llama("Once upon", max_tokens=4, temperature=0, stream=True))[0],
        lambda llama: llama.create_chat_completion(HELLO, temperature=0),
        lambda llama: list(llama.create_chat_completion(HELLO, temperature=0, stream=True))[1],
    ]
    for ask in asks:
        want, got = shape(ask(theirs)), shape(ask(ours))
        assert has(got, want), (want, got)
    answers = [llama.create_chat_completion(HELLO, temperature=0)["choices"][0] for llama in (theirs, ours)]
    assert answers[0]["message"]["content"] == answers[1]["message"]["content"]
    assert answers[0]["finish_reason"] == answers[1]["finish_reason"]


def test_scores_of_a_task_are_theirs(theirs, llm):
    """What lm-evaluation-harness makes of ours is in test_lm_eval.py."""
    from arclight.lm_eval import ArclightLM

    model = ArclightLM(llm=llm)
    tasks = [json.loads(line) for line in (Path(__file__).parent / "tasks/ducks.jsonl").read_text().splitlines()]
    right = [0, 0]
    for task in tasks:
        pairs = [model._encode_pair(task["question"], " " + choice) for choice in task["choices"]]
        mine = [likely for likely, _ in model._loglikelihood_tokens([(None, *pair) for pair in pairs], disable_tqdm=True)]
        other = []
        for context, continuation in pairs:
            rows = their_rows(theirs, [*context, *continuation])
            begin = len(context)
            other.append(sum(rows[begin - 1 + at, id] for at, id in enumerate(continuation)))
        assert mine == pytest.approx(other, abs=0.5)
        for at, likely in enumerate((mine, other)):
            right[at] += likely.index(max(likely)) == task["answer"]
    assert right[0] == right[1] > len(tasks) / 2
