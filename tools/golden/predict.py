"""Layers that predict further tokens (multi-token prediction; DeepSeek-V3, arXiv:2412.19437, section 2.2).

`transformers` leaves them out of files. But such a layer is one of the model's: a model of that one layer, whose
input is made here of embeddings and hidden states, as the paper says and vLLM does.
"""

from dataclasses import replace

import numpy as np
import torch

import weights
from specs import Spec


def one_layer(spec: Spec) -> Spec:
    """The model of that layer."""
    return replace(spec, layers=1, config={**spec.config, **spec.predicts}, predicts=None)


def file_name(spec: Spec, name: str) -> str | None:
    """The parameter `name` of that model as one of the whole; None if it is the model's own."""
    if name == "model.norm.weight":
        return f"blk.{spec.layers}.nextn.shared_head_norm.weight"
    return name.replace("model.layers.0.", f"model.layers.{spec.layers}.") if ".layers." in name else None


def inputs(spec: Spec) -> dict[str, tuple]:
    """Tensors that make the layer's input, and their shapes."""
    p, n = f"blk.{spec.layers}.nextn.", spec.hidden
    return {p + "eh_proj.weight": (n, 2 * n), p + "enorm.weight": (n,), p + "hnorm.weight": (n,)}


def make_inputs(spec: Spec, seed: int) -> dict:
    """The same with their values, as `export.tensors` has them."""
    file = {}
    for name, shape in inputs(spec).items():
        spread = weights.spread(name, shape, spec.gains)
        file[name] = (weights.values(seed, name, shape, *spread), *spread)
    return file


@torch.no_grad()
def logits_of(spec: Spec, model, layer, file: dict, tokens: list[int]) -> np.ndarray:
    """What the layer says comes behind the token that comes behind each of `tokens`: [tokens, vocab]. The first token
    comes with no hidden state, which is zeros."""
    eh_proj, enorm, hnorm = (torch.from_numpy(file[name][0]) for name in inputs(spec))
    rms = lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + spec.eps) * w
    ids = torch.tensor([tokens])
    hidden = model.model(ids, use_cache=False).last_hidden_state[0]
    before = torch.cat([torch.zeros(1, spec.hidden), hidden[:-1]])
    embedded = model.get_input_embeddings()(ids)[0]
    x = torch.cat([rms(embedded, enorm), rms(before, hnorm)], 1) @ eh_proj.T
    out = layer.model(inputs_embeds=x[None], use_cache=False).last_hidden_state
    return model.lm_head(out)[0].numpy()
