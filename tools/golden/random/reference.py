"""What `transformers` makes of a configuration: a folder, and float32 numbers with eager attention."""

import contextlib
import io
import json
import logging
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers

import published
import vocabulary
from draw import nested
from fill import fill
from parts import Family

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
FORMS = ("today", "published")  # of a folder
TOKEN_IDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=None)


class Impossible(Exception):
    """`transformers` does not take the configuration."""


class Unsaved(Exception):
    """`transformers` reads another model from the folder than it has written."""


def configuration(family: Family, drawn: dict):
    config = getattr(transformers, family.reference + "Config")
    values = nested(drawn)
    if family.part:
        whole = {**family.around, family.part: {**values, **TOKEN_IDS}, "tie_word_embeddings": values.get("tie_word_embeddings", False)}
        if "out_hidden_size" in whole.get("vision_config", {}):
            whole["vision_config"] = {**whole["vision_config"], "out_hidden_size": values["hidden_size"]}
        elif "vision_config" in whole:
            whole["vision_config"] = {**whole["vision_config"], "hidden_size": values["hidden_size"]}
        return config(**whole)
    return config(**({} if family.encoder else TOKEN_IDS) | values)


def build(family: Family, drawn: dict, seed: int) -> torch.nn.Module:
    name = family.model or family.reference.removesuffix("Text") + "ForCausalLM"
    if not hasattr(transformers, name):
        name = family.reference + "LMHeadModel"
    with quiet():
        torch.manual_seed(0)
        try:
            config = configuration(family, drawn)
            config._attn_implementation = config._experts_implementation = "eager"
            model = getattr(transformers, name)(config).float().eval()
            fill(model, seed, family.stronger)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, RuntimeError, ZeroDivisionError) as fault:
            raise Impossible(f"{type(fault).__name__}: {fault}") from fault
        except Exception as fault:  # its own classes of faults in configurations
            if "Validation" not in type(fault).__name__:
                raise
            raise Impossible(f"{type(fault).__name__}: {fault}") from fault
    return model


@contextlib.contextmanager
def quiet():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def save(family: Family, model: torch.nn.Module, form: str, folder: Path, tokenizer_model: bool = False) -> list[str] | None:
    """Writes the folder; gives the texts of the vocabulary's tokens."""
    folder.mkdir(parents=True)
    with quiet():
        model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    if form == "published":
        part = config[family.part] if family.part else config
        part = (family.published or published.flat)(part)
        config = {**config, family.part: part} if family.part else part
    if family.architecture:
        config["architectures"] = [family.architecture]
    vocabulary.write(folder, "config.json", config)
    return vocabulary.make(folder, family.vocabulary, form == "today" and not tokenizer_model)


def reloaded(model: torch.nn.Module, folder: Path) -> torch.nn.Module:
    """The model that `transformers` reads from the folder."""
    with quiet():
        try:
            other, told = type(model).from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
                output_loading_info=True)
        except Exception as fault:
            raise Unsaved(f"{type(fault).__name__}: {fault}") from fault
    missing = {*told["missing_keys"], *told["unexpected_keys"]} - {"lm_head.weight"}
    if missing:
        raise Unsaved(f"tensors: {', '.join(sorted(missing)[:3])}")
    return other.eval()


@torch.no_grad()
def logits(model: torch.nn.Module, tokens: list[int]) -> np.ndarray:
    """Log-probabilities: [tokens, vocab]."""
    with quiet():
        try:
            out = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError) as fault:
            raise Impossible(f"{type(fault).__name__}: {fault}") from fault
    return torch.log_softmax(out.double(), -1).numpy()


@torch.no_grad()
def states(model: torch.nn.Module, tokens: list[int], pooling: str) -> np.ndarray:
    """The vector of a text, of length 1."""
    ids = torch.tensor([tokens])
    with quiet():
        try:
            hidden = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].double().numpy()
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError) as fault:
            raise Impossible(f"{type(fault).__name__}: {fault}") from fault
    vector = hidden[0] if pooling == "first" else hidden.mean(0)
    return vector / np.linalg.norm(vector)
