"""lm-evaluation-harness on a task of this folder: in a program, by its own command, and as a client of a server."""

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import DEMO

import arclight.lm_eval
from arclight import LLM, SamplingParams

TASKS = Path(__file__).parent / "tasks"


def evaluate(llm: LLM, task: str, **more):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    model = arclight.lm_eval.ArclightLM(llm=llm)
    manager = TaskManager(include_path=str(TASKS), include_defaults=False)
    return simple_evaluate(model=model, tasks=[task], task_manager=manager, bootstrap_iters=0, **more)


@pytest.fixture(autouse=True)
def from_here(monkeypatch):
    # Paths of the tasks' files begin here.
    monkeypatch.chdir(TASKS)


def test_choices_are_the_likelier_texts(llm):
    found = evaluate(llm, "ducks", log_samples=True)
    samples = found["samples"]["ducks"]
    right = 0
    for sample in samples:
        doc = sample["doc"]
        likely = []
        for choice in doc["choices"]:
            text = f"{doc['question']} {choice}"
            begin = len(llm.tokenizer.encode(doc["question"]))
            ids = llm.tokenizer.encode(text)
            logits = llm.logits(ids).astype("float64")
            rows = range(begin - 1, len(ids) - 1)
            shifted = logits - logits.max(1, keepdims=True)
            softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
            likely.append(sum(softmax[row, ids[row + 1]] for row in rows))
        got = [float(answer[0][0]) for answer in sample["resps"]]
        assert got == pytest.approx(likely, abs=1e-3)
        right += max(range(len(likely)), key=likely.__getitem__) == doc["answer"]
    assert found["results"]["ducks"]["acc,none"] == pytest.approx(right / len(samples))
    assert right > len(samples) / 2


def test_generated_answers_end_where_the_task_says(llm):
    found = evaluate(llm, "ducks_generate", log_samples=True)
    said = [sample["resps"][0][0] for sample in found["samples"]["ducks_generate"]]
    assert any(said) and not any("." in text for text in said)
    prompts = [sample["doc"]["question"] for sample in found["samples"]["ducks_generate"]]
    params = SamplingParams(temperature=0, max_tokens=24, stop=["."])
    assert said == [output.outputs[0].text for output in llm.generate(prompts, params)]


def test_perplexity_of_texts(llm):
    found = evaluate(llm, "ducks_perplexity")["results"]["ducks_perplexity"]
    assert 1 < found["byte_perplexity,none"] < 10 and math.isfinite(found["bits_per_byte,none"])


def test_the_command_knows_the_model(tmp_path):
    command = [
        sys.executable, "-m", "arclight.lm_eval", "run", "--model", "arclight", "--model_args", f"pretrained={DEMO}",
        "--tasks", "ducks", "--include_path", str(TASKS), "--output_path", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (result,) = tmp_path.rglob("results_*.json")
    assert json.loads(result.read_text())["results"]["ducks"]["acc,none"] > 0.5


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of `arclight serve` with the demo model."""
    log = tmp_path_factory.mktemp("server") / "log"
    program = Path(sys.executable).parent / "arclight"
    with log.open("wb") as said:
        command = [str(program), "serve", str(DEMO), "--port", "0", "--alias", "demo"]
        running = subprocess.Popen(command, stderr=said, stdout=said)
    try:
        for _ in range(300):
            found = re.search(r"on (http://\S+)/v1", log.read_text())
            if found or running.poll() is not None:
                break
            time.sleep(0.1)
        assert found, log.read_text()
        yield found[1]
    finally:
        running.terminate()
        running.wait()


def of_a_server(server: str, task: str):
    """What the harness's own client makes of a server, whose tokenizer it asks."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    args = f"model=demo,base_url={server}/v1/completions,tokenizer_backend=remote,max_length=2048"
    manager = TaskManager(include_path=str(TASKS), include_defaults=False)
    return simple_evaluate(
        model="local-completions", model_args=args, tasks=[task], task_manager=manager, bootstrap_iters=0,
        log_samples=True,
    )  # fmt: skip


@pytest.mark.parametrize("task", ["ducks", "ducks_perplexity"])
def test_its_client_finds_the_same_scores_at_a_server(llm, server, task):
    ours = evaluate(llm, task, log_samples=True)
    theirs = of_a_server(server, task)
    for one, other in zip(ours["samples"][task], theirs["samples"][task], strict=True):
        # The server writes a log-probability as the shortest decimal of its 32 bits; their sum is in another order.
        assert np.ravel(one["resps"]).astype(float) == pytest.approx(np.ravel(other["resps"]).astype(float), abs=1e-4)


def test_its_client_gets_the_same_answers_from_a_server(llm, server):
    ours = evaluate(llm, "ducks_generate", log_samples=True)
    theirs = of_a_server(server, "ducks_generate")
    said = [[sample["resps"] for sample in found["samples"]["ducks_generate"]] for found in (ours, theirs)]
    assert said[0] == said[1]
