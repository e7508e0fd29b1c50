"""Texts as numbers: vectors, scores, perplexity, logits, hidden states."""

import json

import numpy as np
import pytest
from conftest import DEMO, ROOT, arclight, peft, ranker

from arclight import LLM, SamplingParams

TEXTS = ["The duck was lonely.", "A story about the sea, and about a map.", "x"]


def test_vectors_are_those_of_the_command_line(llm):
    outputs = llm.embed(TEXTS)
    args = [part for text in TEXTS for part in ("-p", text)]
    lines = arclight("embed", DEMO, "-q", *args).splitlines()
    for output, line in zip(outputs, lines, strict=True):
        vector = output.outputs.embedding
        assert vector.dtype == np.float32 and vector.tolist() == pytest.approx(json.loads(line)["embedding"], abs=1e-7)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    assert outputs[0].outputs.embedding.base is not None, "rows of one array"
    short = llm.embed("a", dimensions=8)[0].outputs.embedding
    assert short.shape == (8,) and np.linalg.norm(short) == pytest.approx(1, abs=1e-6)
    assert llm.embed([]) == []
    for wrong in ({"dimensions": 0}, {"dimensions": 9999}, {"adapter": "none"}):
        with pytest.raises(ValueError):
            llm.embed("a", **wrong)
    long = "a " * 3000
    with pytest.raises(ValueError, match="2048"):
        llm.embed(long)
    assert llm.embed(long, truncate=True)[0].outputs.embedding.shape == (256,)


def test_perplexity_is_that_of_the_command_line(llm):
    path = ROOT / "demo/heldout.txt"
    want = json.loads(arclight("perplexity", DEMO, "-f", path, "-o", "json"))
    got = llm.perplexity(path.read_text())
    # Of f32 instead of f64.
    assert got.perplexity == pytest.approx(want["perplexity"], rel=1e-6)
    assert got.standard_error == pytest.approx(want["standard_error"], rel=1e-4)
    assert (got.scored, got.chunks) == (want["scored"], want["chunks"])
    with pytest.raises(ValueError, match="fewer than one chunk"):
        llm.perplexity("short")
    with pytest.raises(ValueError, match="nothing to score"):
        llm.perplexity("short", context=3)


def test_logits_predict_what_is_generated(llm):
    (output,) = llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=10))
    ids = [*output.prompt_token_ids, *output.outputs[0].token_ids]
    logits = llm.logits(ids)
    assert logits.shape == (len(ids), llm.tokenizer.vocab_size) and logits.dtype == np.float32
    begin = len(output.prompt_token_ids) - 1
    assert logits[begin:-1].argmax(1).tolist() == output.outputs[0].token_ids
    # A row is one of its own, whatever is behind it.
    assert (llm.logits(ids[:3]) == logits[:3]).all()
    with pytest.raises(ValueError, match="empty"):
        llm.logits([])


def test_hidden_states_are_what_vectors_are_made_of(llm):
    states = llm.hidden_states(TEXTS[0])
    ids = llm.tokenizer.encode(TEXTS[0])
    assert states.shape == (len(ids), 256)
    vector = llm.embed(TEXTS[0])[0].outputs.embedding
    # The demo model's file says nothing of pooling: the last token's.
    assert states[-1] / np.linalg.norm(states[-1]) == pytest.approx(vector, abs=1e-6)
    longer = llm.hidden_states([5] * 1500)
    assert longer.shape == (1500, 256) and np.isfinite(longer).all()


def test_arrays_are_handed_on_without_a_copy(llm):
    logits = llm.logits("a b")
    assert logits.flags.writeable and logits.flags.c_contiguous
    other = np.from_dlpack(logits)
    assert other.ctypes.data == logits.ctypes.data
    # The array keeps its memory when the model is gone.
    with LLM(DEMO) as gone:
        kept = gone.logits("a b")
    assert (kept == logits).all()


def test_adapters_change_the_requests_that_name_them(tmp_path):
    folders = {name: peft(tmp_path / name, seed) for seed, name in enumerate(["sql", "style"])}
    greedy = SamplingParams(temperature=0, max_tokens=16)
    with LLM(DEMO, adapters=folders) as llm, LLM(DEMO) as plain:
        assert llm.adapters == ["sql", "style"]
        params = [greedy, greedy.clone(adapter="sql"), greedy.clone(adapter="style"), greedy.clone(lora=[])]
        texts = [output.outputs[0].text for output in llm.generate(["Once upon a time"] * 4, params)]
        assert texts[0] == texts[3] == plain.generate("Once upon a time", greedy)[0].outputs[0].text
        assert len(set(texts)) == 3
        for scale, want in [(0.0, texts[0]), (1.0, texts[1])]:
            given = greedy.clone(lora=[{"id": 0, "scale": scale}])
            assert llm.generate("Once upon a time", given)[0].outputs[0].text == want
        vectors = [llm.embed("a", adapter=name)[0].outputs.embedding for name in (None, "sql", "style")]
        assert not np.allclose(vectors[0], vectors[1]) and not np.allclose(vectors[1], vectors[2])


def test_a_model_that_ranks_gives_scores_and_nothing_else(tmp_path):
    with LLM(ranker(tmp_path / "ranker")) as llm:
        texts = ["a cat sat.", "cats", "a a a"]
        scores = [output.outputs.score for output in llm.score("a cat", texts)]
        served = llm.request("POST", "/v1/score", {"text_1": "a cat", "text_2": texts})
        assert scores == pytest.approx([one["score"] for one in served["data"]])
        assert len(set(scores)) == 3 and all(0 < score < 1 for score in scores)
        pairs = llm.score(["a cat", "sat"], texts[:2])
        assert pairs[0].outputs.score == scores[0] and pairs[1].outputs.score != scores[1]
        with pytest.raises(ValueError, match="score and no vector"):
            llm.embed("a")
        for ask in (llm.generate, llm.logits):
            with pytest.raises(ValueError, match="writes none"):
                ask("a")
        assert llm.hidden_states("a cat").shape == (4, 32)


def test_a_model_that_does_not_rank_says_so(llm):
    with pytest.raises(ValueError, match="ranks no texts"):
        llm.score("a", ["b", "c"])
    with pytest.raises(ValueError, match="2 first texts and 3 second"):
        llm.score(["a", "b"], ["c", "d", "e"])
