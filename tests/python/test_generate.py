"""Texts that are continued."""

import gc
import math
import os
import signal
import threading
import time

import numpy as np
import pytest
from conftest import DEMO, ROOT, arclight

from arclight import LLM, SamplingParams, _requests

STORY = "Once upon a time"
GREEDY = SamplingParams(temperature=0, max_tokens=24)


def text(output, index=0):
    return output.outputs[index].text


def test_greedy_text_is_that_of_run(llm):
    (output,) = llm.generate(STORY, GREEDY)
    assert text(output) == arclight("run", DEMO, "-q", "--temp", "0", "-n", "24", "-p", STORY).removesuffix("\n")
    assert output.prompt == STORY and output.prompt_token_ids == llm.tokenizer.encode(STORY)
    answer = output.outputs[0]
    assert len(answer.token_ids) == 24 and answer.finish_reason == "length" and output.finished
    assert llm.tokenizer.decode([*output.prompt_token_ids, *answer.token_ids]) == STORY + answer.text
    assert output.metrics.first_token_time > 0


def test_many_prompts_have_the_answers_that_they_have_alone_in_their_order(llm):
    prompts = [f"{STORY} there were {n} ducks" for n in range(50)]
    together = llm.generate(prompts, GREEDY)
    assert [output.prompt for output in together] == prompts
    alone = [llm.generate(prompt, GREEDY)[0] for prompt in prompts]
    assert [text(output) for output in together] == [text(output) for output in alone]


def test_prompts_may_be_tokens_and_parameters_their_own(llm):
    ids = llm.tokenizer.encode(STORY)
    as_tokens = llm.generate([ids, {"prompt_token_ids": ids}, {"prompt": STORY}, np.array(ids)], GREEDY)
    assert {text(output) for output in as_tokens} == {text(llm.generate(STORY, GREEDY)[0])}
    assert text(llm.generate(ids, GREEDY)[0]) == text(as_tokens[0])
    params = [SamplingParams(temperature=0, max_tokens=n) for n in (1, 5, 3)]
    lengths = [len(output.outputs[0].token_ids) for output in llm.generate([STORY] * 3, params)]
    assert lengths == [1, 5, 3]
    assert llm.generate([]) == []


def test_seeds_decide(llm):
    seeded = SamplingParams(max_tokens=20, seed=7, n=3)
    first, again = llm.generate([STORY] * 2, seeded)
    assert [text(first, at) for at in range(3)] == [text(again, at) for at in range(3)]
    assert len({text(first, at) for at in range(3)}) == 3
    assert text(llm.generate(STORY, SamplingParams(max_tokens=20, seed=8))[0]) == text(first, 1)
    unseeded = llm.generate([STORY] * 8, SamplingParams(max_tokens=20))
    assert len({text(output) for output in unseeded}) > 1


def test_answers_end_at_texts_and_tokens(llm):
    whole = text(llm.generate(STORY, GREEDY)[0])
    word = whole.split()[3]
    (ended,) = llm.generate(STORY, GREEDY.clone(stop=[word]))
    assert text(ended) == whole[: whole.index(word)]
    assert (ended.outputs[0].finish_reason, ended.outputs[0].stop_reason) == ("stop", word)
    token = llm.generate(STORY, GREEDY)[0].outputs[0].token_ids[5]
    (ended,) = llm.generate(STORY, GREEDY.clone(stop_token_ids=[token]))
    assert len(ended.outputs[0].token_ids) <= 5 and ended.outputs[0].stop_reason == token
    biased = llm.generate(STORY, GREEDY.clone(logit_bias={token: 100}, max_tokens=3))[0].outputs[0]
    assert biased.token_ids == [token] * 3


def test_log_probabilities_are_those_of_the_server_and_of_the_logits(llm):
    params = GREEDY.clone(logprobs=3, prompt_logprobs=2)
    (output,) = llm.generate(STORY, params)
    answer = output.outputs[0]
    ids = [*output.prompt_token_ids, *answer.token_ids]
    logits = llm.logits(ids).astype(np.float64)
    log_softmax = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
    log_softmax -= logits.max(1, keepdims=True)
    begin = len(output.prompt_token_ids)
    for at, known in enumerate([*output.prompt_logprobs, *answer.logprobs]):
        if at == 0:
            assert known is None
            continue
        # Sums of f32 exponentials.
        assert known[ids[at]].logprob == pytest.approx(log_softmax[at - 1, ids[at]], abs=2e-5)
        ranked = sorted((one.rank, id) for id, one in known.items() if one.rank)
        assert len(ranked) >= (3 if at >= begin else 2)
        assert [id for _, id in ranked[:2]] == np.argsort(-log_softmax[at - 1])[:2].tolist()
    assert answer.cumulative_logprob == pytest.approx(sum(of[id].logprob for of, id in zip(answer.logprobs, answer.token_ids)))
    body = {"prompt": STORY, "max_tokens": 24, "temperature": 0, "logprobs": 3}
    served = llm.request("POST", "/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"]
    assert served == [of[id].logprob for of, id in zip(answer.logprobs, answer.token_ids)]


def test_streams_grow_to_the_same_answers(llm):
    whole = llm.generate([STORY, "The sea"], GREEDY.clone(logprobs=1))
    said, last = {}, {}
    for output in llm.generate_stream([STORY, "The sea"], GREEDY.clone(logprobs=1)):
        said[output.request_id] = said.get(output.request_id, "") + "".join(one.delta for one in output.outputs)
        last[output.request_id] = output
    for want in whole:
        got = last[want.request_id]
        assert said[want.request_id] == text(want) == text(got)
        assert got.outputs[0].token_ids == want.outputs[0].token_ids
        assert got.outputs[0].logprobs == want.outputs[0].logprobs
        assert got.finished and got.outputs[0].finish_reason == want.outputs[0].finish_reason


def running(llm):
    return sum(replica["running"] + replica["waiting"] for replica in llm.status()["replicas"])


def until(true, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


LONG = SamplingParams(max_tokens=1500, ignore_eos=True)


def test_a_stream_that_is_left_frees_its_place(llm):
    stream = llm.generate_stream([STORY] * 40, LONG)
    next(stream)
    assert running(llm) > 0
    stream.close()
    until(lambda: running(llm) == 0)
    never_begun = llm.generate_stream(STORY, LONG)
    until(lambda: running(llm) > 0)
    del never_begun
    gc.collect()
    until(lambda: running(llm) == 0)


def test_ctrl_c_ends_a_call_and_leaves_the_model_usable(llm):
    # A shell makes its jobs in the background deaf to it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    pressed = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT))
    pressed.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        llm.generate([STORY] * 2000, LONG)
    signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 20
    until(lambda: running(llm) == 0)
    assert len(llm.generate(STORY, GREEDY)[0].outputs[0].token_ids) == 24


def test_the_lock_is_released_while_the_engine_computes(llm):
    counted = [0]
    over = threading.Event()

    def count():
        while not over.is_set():
            counted[0] += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    begin = time.monotonic()
    llm.generate([STORY] * 64, LONG.clone(max_tokens=300))
    took = time.monotonic() - begin
    over.set()
    other.join()
    # Were the lock held, it would count once; the machine is busy, so not each millisecond.
    assert counted[0] > 20 * took


def test_threads_share_the_engine(llm):
    prompts = [f"{STORY} number {n}" for n in range(12)]
    want = [text(output) for output in llm.generate(prompts, GREEDY)]
    got = [None] * 12

    def ask(at):
        got[at] = text(llm.generate(prompts[at], GREEDY)[0])

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(12)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert got == want


def test_beginnings_are_computed_once():
    prompt = (ROOT / "demo/heldout.txt").read_text()[:2000]
    for cached in (True, False):
        with LLM(DEMO, enable_prefix_caching=cached) as llm:
            llm.generate(prompt, GREEDY)
            (again,) = llm.generate(prompt, GREEDY)
            assert (again.num_cached_tokens > 0) == cached


def test_a_model_that_is_closed_says_so_and_frees_its_memory():
    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    sizes = []
    for _ in range(6):
        with LLM(DEMO, max_num_seqs=64) as llm:
            llm.generate([STORY] * 64, SamplingParams(max_tokens=60, ignore_eos=True))
        gc.collect()
        sizes.append(resident())
        with pytest.raises(RuntimeError, match="closed"):
            llm.generate(STORY)
    # A model with its pages takes more than this.
    assert sizes[-1] - sizes[2] < 8 << 20, sizes
    llm.close()


def test_an_answer_that_ends_while_nobody_looks_is_read(llm, monkeypatch):
    class Late:
        """Answers that end between a look that finds nothing and the question whether all have ended."""

        def __init__(self, answers):
            self.answers, self.looked = answers, False

        def wait(self, seconds):
            if self.looked:
                return self.answers.wait(seconds)
            self.looked, ended = True, threading.Event()
            news = self.answers.wait(0)
            self.answers.on_ready(ended.set)
            assert news or ended.wait(20)
            return news

        def __getattr__(self, name):
            return getattr(self.answers, name)

    begin = _requests.Asked.begin
    monkeypatch.setattr(_requests.Asked, "begin", lambda *given: Late(begin(*given)))
    params = [SamplingParams(temperature=0, max_tokens=tokens) for tokens in (40, 41)]
    outputs = llm.generate([STORY] * 2, params)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [40, 41]


def test_closing_ends_what_another_thread_waits_for():
    llm = LLM(DEMO)
    seen = []

    def ask():
        try:
            seen.append(llm.generate([STORY] * 500, LONG))
        except RuntimeError as e:
            seen.append(e)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: running(llm) > 0)
    llm.close()
    thread.join(20)
    assert not thread.is_alive() and isinstance(seen[0], RuntimeError), seen


def test_a_forked_process_is_told(llm):
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            llm.generate(STORY)
        except RuntimeError as e:
            os.write(write, str(e).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert b"forked" in os.read(read, 1000)


@pytest.mark.parametrize(
    ("ask", "kind", "says"),
    [
        (lambda llm: llm.generate([99999]), ValueError, "token 99999"),
        (lambda llm: llm.generate([-1]), TypeError, "not negative"),
        (lambda llm: llm.generate(""), ValueError, "empty"),
        (lambda llm: llm.generate("a " * 9000), ValueError, "context length is 2048"),
        (lambda llm: llm.generate(3), TypeError, "prompts must be"),
        (lambda llm: llm.generate([None]), TypeError, "a prompt must be"),
        (lambda llm: llm.generate({"text": "a"}), TypeError, "prompt_token_ids"),
        (lambda llm: llm.generate("a", SamplingParams(temperature=-1)), ValueError, "temperature = -1"),
        (lambda llm: llm.generate("a", SamplingParams(temperature=math.nan)), ValueError, "JSON"),
        (lambda llm: llm.generate("a", SamplingParams(top_p=2)), ValueError, "top_p"),
        (lambda llm: llm.generate("a", SamplingParams(n=0)), ValueError, "n must be"),
        (lambda llm: llm.generate("a", SamplingParams(logprobs=21)), ValueError, "20"),
        (lambda llm: llm.generate("a", SamplingParams(max_tokens=-5)), ValueError, "max_tokens"),
        (lambda llm: llm.generate("a", SamplingParams(adapter="none")), ValueError, "none"),
        (lambda llm: llm.generate(["a", "b"], [SamplingParams()]), ValueError, "2 prompts and 1"),
        (lambda llm: llm.generate(["a", [99999]], SamplingParams()), ValueError, "token 99999"),
        (lambda llm: llm.request("GET", "/nowhere"), ValueError, "/nowhere"),
        (lambda llm: llm.request("G T", "/"), ValueError, "method"),
        (lambda llm: llm.request("GET", "no path"), ValueError, "path"),
    ],
)
def test_what_cannot_be_is_an_exception(llm, ask, kind, says):
    with pytest.raises(kind, match=says):
        ask(llm)


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"model": "/nowhere/model.gguf"}, FileNotFoundError, "/nowhere/model.gguf"),
        ({"model": "qwen3:1234", "offline": True}, FileNotFoundError, "qwen3:1234"),
        ({"model": __file__}, RuntimeError, "not a GGUF file"),
        ({"max_model_len": 10**9}, ValueError, "2048"),
        ({"max_model_len": 0}, ValueError, "at least 1"),
        ({"threads": "many"}, ValueError, "threads"),
        ({"nonsense": 1}, ValueError, "--nonsense"),
        ({"port": 80}, ValueError, "about a server"),
        ({"adapters": {"a": "/nowhere"}}, FileNotFoundError, "/nowhere"),
    ],
)
def test_models_that_cannot_be_loaded(options, kind, says):
    options = {"model": DEMO, **options}
    with pytest.raises(kind, match=says):
        LLM(options.pop("model"), **options)
