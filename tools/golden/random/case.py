"""A case: a folder of a drawn configuration, what the program makes of it, and the verdict."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import program
import reference
from parts import TOKENS, Family
from program import Answer, Panicked, Refused
from reference import Impossible, Unsaved

MOST = 1e-4  # between log-probabilities
MOST_OF_VECTORS = 1e-5  # between elements of vectors of length 1
LOSS = 1e-3  # of the reference in float32 at most; the program may be off from float64 by
TIMES = 3  # this many times what the reference loses
SAVED = 2e-5  # between a model and what is read from its folder
NOTHING = 1e-6  # a change of the reference that is none
TRIES = 3  # of weights
RIGHT, REFUSED, DIFFERS, PANIC = "right", "refused", "DIFFERS", "PANIC"
UNABLE, UNSAVED, UNSTEADY = "unable", "unsaved", "unsteady"  # of the reference: no verdict on the program
FAILING = (DIFFERS, PANIC)
VERDICTS = (RIGHT, REFUSED, DIFFERS, PANIC, UNABLE, UNSAVED, UNSTEADY)


@dataclass
class Tools:
    program: str
    work: Path
    llama_cpp: str | None = None
    tokenizer_model: bool = False  # written wherever the family has one
    keep: bool = False  # folders and files


@dataclass
class Outcome:
    verdict: str
    detail: str = ""
    off: float | None = None
    rows: np.ndarray | None = field(default=None, repr=False)  # the reference's numbers of the prompt,
    tokens: list[int] = field(default_factory=list, repr=False)  # which has these tokens


def prompt(vocab: int, seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab, count).tolist()


def distance(answer: Answer, expected: np.ndarray, tokens: list[int], texts: list[str]) -> float:
    """The largest difference of log-probabilities. `expected`: [positions, vocab], of the positions that the answer has."""
    ids = {text: i for i, text in enumerate(texts) if text}
    most, compared = 0.0, 0
    for row, token, own, likeliest in zip(expected, tokens, answer.own, answer.likeliest):
        pairs = [(token, own), *((ids[text], value) for text, value in likeliest.items() if text in ids)]
        compared += len(pairs)
        difference = max(abs(row[i] - value) for i, value in pairs)
        most = max(most, difference) if difference == difference else float("inf")
    if len(answer.own) != len(tokens) or compared < 10 * len(tokens):
        raise ValueError(f"{len(answer.own)} positions and {compared} numbers of {len(tokens)} tokens could be read")
    return most


def made(tools: Tools, family: Family, folder: Path, out: Path) -> None:
    if tools.llama_cpp:
        program.convert_by_llama_cpp(tools.llama_cpp, folder, out, family.vocabulary)
    else:
        program.convert(tools.program, folder, out)


def vocabulary_size(drawn: dict) -> int:
    return drawn["vocab_size"]


def of_decoder(tools: Tools, family: Family, drawn: dict, model, texts: list[str], folder: Path, seed: int) -> Outcome:
    tokens = prompt(len(texts), seed, TOKENS - program.CONTINUED)
    texts = [*texts, *(f"[PAD{i}]" for i in range(len(texts), vocabulary_size(drawn)))]
    before = reference.logits(model, tokens)
    if not np.isfinite(before).all():
        return Outcome(UNABLE, "the reference's numbers are not finite")
    try:
        out = folder.with_suffix(".gguf")
        made(tools, family, folder, out)
        answer = program.answer(tools.program, out, tokens)
    except Refused as fault:
        return Outcome(REFUSED, str(fault), None, before, tokens)
    except Panicked as fault:
        return Outcome(PANIC, str(fault), None, before, tokens)
    ids = {text: i for i, text in enumerate(texts) if text}
    continued = []
    for text in answer.tokens[len(tokens) - 1:]:  # up to one that cannot be told from another
        if text not in ids:
            break
        continued.append(ids[text])
    whole = [*tokens, *continued]
    answer = Answer(*(part[:len(whole) - 1] for part in (answer.tokens, answer.own, answer.likeliest)))
    expected = reference.logits(model, whole)[:-1]
    off = distance(answer, expected, whole[1:], texts)
    if off <= MOST:
        return Outcome(RIGHT, "", off, before, tokens)
    exact = reference.logits(model.double(), whole)[:-1]
    lost, off = float(np.abs(exact - expected).max()), distance(answer, exact, whole[1:], texts)
    verdict, detail = held(off, lost) if lost > MOST / TIMES else (DIFFERS, where(answer, expected, whole[1:]))
    return Outcome(verdict, detail, off, before, tokens)


def held(off: float, lost: float) -> tuple[str, str]:
    """The verdict on a program that is off by so much from float64, where float32 loses so much of the reference."""
    loss = f"float32 loses {lost:.1e} of the reference"
    if off <= TIMES * lost <= TIMES * LOSS:
        return RIGHT, loss
    return (UNSTEADY if off <= 30 * lost else DIFFERS), loss


def where(answer: Answer, expected: np.ndarray, tokens: list[int]) -> str:
    """The first position that differs, which often names the part."""
    for at, (row, token, own) in enumerate(zip(expected, tokens, answer.own)):
        if not abs(row[token] - own) <= MOST:
            return f"from token {at + 1} on"
    return "in the likeliest tokens alone"


def of_encoder(tools: Tools, family: Family, drawn: dict, model, folder: Path, seed: int) -> Outcome:
    texts = [prompt(300, seed + n, n) for n in (7, 64, 150)]
    texts = [[token + 5 for token in text if token < 290] for text in texts]  # no control tokens
    expected = np.stack([reference.states(model, text, family.encoder) for text in texts])
    try:
        out = folder.with_suffix(".gguf")
        made(tools, family, folder, out)
        got = np.array(program.vectors(tools.program, out, texts, family.encoder))
    except Refused as fault:
        return Outcome(REFUSED, str(fault), rows=expected)
    except Panicked as fault:
        return Outcome(PANIC, str(fault), rows=expected)
    if got.shape != expected.shape:
        return Outcome(DIFFERS, f"vectors of {got.shape[-1]} elements instead of {expected.shape[-1]}", float("inf"), expected)
    off = float(np.abs(got - expected).max())
    return Outcome(RIGHT if off <= MOST_OF_VECTORS else DIFFERS, "", off, expected)


def run(tools: Tools, family: Family, drawn: dict, form: str, seed: int) -> Outcome:
    """The verdict on one configuration. Weights that make the reference unsteady are drawn anew."""
    outcome = attempted(tools, family, drawn, form, seed)
    outcome.detail = outcome.detail.replace(f"{tools.work}/", "")
    return outcome


def attempted(tools: Tools, family: Family, drawn: dict, form: str, seed: int) -> Outcome:
    outcome = Outcome(UNABLE)
    for attempt in range(TRIES):
        folder = tools.work / f"{family.name}-{seed}-{attempt}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            outcome = once(tools, family, drawn, form, folder, seed + 1000 * attempt)
        except Impossible as fault:
            return Outcome(UNABLE, str(fault).splitlines()[0][:200])
        except Unsaved as fault:
            return Outcome(UNSAVED, str(fault).splitlines()[0][:200])
        finally:
            if not tools.keep:
                shutil.rmtree(folder, ignore_errors=True)
                folder.with_suffix(".gguf").unlink(missing_ok=True)
        if outcome.verdict != UNSTEADY:
            break
    return outcome


def once(tools: Tools, family: Family, drawn: dict, form: str, folder: Path, seed: int) -> Outcome:
    model = reference.build(family, drawn, seed)
    texts = reference.save(family, model, form, folder, tools.tokenizer_model)
    again = reference.reloaded(model, folder)
    probe = prompt(vocabulary_size(drawn), 1, 24)
    numbers = (lambda m: reference.states(m, probe, family.encoder)) if family.encoder else (lambda m: reference.logits(m, probe))
    apart = float(np.abs(numbers(model) - numbers(again)).max())
    if not apart <= SAVED:
        raise Unsaved(f"its numbers are off by {apart:.1e}")
    if family.encoder:
        return of_encoder(tools, family, drawn, again, folder, seed)
    return of_decoder(tools, family, drawn, again, texts, folder, seed)


def line(name: str, outcome: Outcome) -> str:
    off = "" if outcome.off is None else f"{outcome.off:.1e}"
    return f"{outcome.verdict:8} {off:8} {name}  {outcome.detail}".rstrip()


torch.set_num_threads(1)
