"""Families whose parameters have names, orders of rows or shapes of their own, and models that `transformers` has not
under their names: what is to be done to those that compute the same."""

import types
from typing import Callable

import numpy as np
import torch

# Parameters of layers, where they are not called as in Llama.
BLOOM = {"input_layernorm": "attn_norm", "self_attention.query_key_value": "attn_qkv",
         "self_attention.dense": "attn_output", "post_attention_layernorm": "ffn_norm",
         "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
GPT2 = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
        "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
HEAD_NORMS = {"self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm"}
SUB_NORMS = {"self_attn.attn_sub_norm": "attn_sub_norm", "mlp.ffn_sub_norm": "ffn_sub_norm"}
TENSORS = {
    "bloom": BLOOM,
    "falcon": {**BLOOM, "ln_mlp": "attn_norm", "ln_attn": "attn_norm_2"},
    "gptneox": {**BLOOM, "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output"},
    "gpt2": GPT2, "starcoder": GPT2,
    "mpt": {"norm_1": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output",
            "norm_2": "ffn_norm", "ffn.up_proj": "ffn_up", "ffn.down_proj": "ffn_down"},
    "phi2": {"self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"},
    "stablelm": HEAD_NORMS,
    "exaone4": {"post_attention_layernorm": "post_attention_norm",
                "post_feedforward_layernorm": "post_ffw_norm"},
    "seed_oss": {"post_attention_layernorm": "post_attention_norm"},
    "hunyuan-dense": {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"},
    "apertus": {"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"},
    "chatglm": {f"self_attn.{m}_proj": "attn_qkv" for m in "qkv"},
    "bitnet": SUB_NORMS, "bitnet-b1.58": SUB_NORMS,
    "mistral4": {"mlp.experts.gate_up_proj": "ffn_gate_up_exps"},
}
TOP_TENSORS = {
    "transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
    "transformer.norm_f": "output_norm", "transformer.word_embeddings": "token_embd",
    "transformer.word_embeddings_layernorm": "token_embd_norm", "gpt_neox.embed_in": "token_embd",
    "gpt_neox.final_layer_norm": "output_norm", "embed_out": "output", "model.final_layernorm": "output_norm",
}
# Epsilon is that of LayerNorm.
LAYER_NORM = ("starcoder2", "gpt2", "starcoder", "gptneox", "phi2", "falcon", "mpt", "bloom", "stablelm", "command-r",
              "cohere2", "nemotron", "olmo")
FUSED = ("bailingmoe2", "chatglm")  # Q, K and V are apart in transformers only
ONE_MORE = ("gemma", "gemma2", "gemma3", "nemotron")  # is added to norm weights by the model


def left_out(name: str) -> bool:
    """Whether a parameter is no tensor of the file: numbers of xIELU, which are metadata."""
    return ".act_fn." in name


def head_norm(name: str) -> int | None:
    """The head whose norm the parameter is, where all heads' are one tensor."""
    parts = name.split(".")
    return int(parts[-2]) if parts[-3:-2] == ["norms"] else None


def of_parameter(spec, name: str, w: np.ndarray) -> np.ndarray | None:
    """The parameter `name` of its tensor, where orders differ."""
    d = spec.head_dim
    if (head := head_norm(name)) is not None:
        return w[head]
    if spec.arch == "gpt2" and w.ndim == 2 and ".c_" in name:
        return w.T
    if "query_key_value" in name:
        q, k, v = np.split(w, np.cumsum([spec.heads, spec.kv_heads]) * d)
        rest = w.shape[1:]
        groups = [m.reshape(spec.kv_heads, -1, d, *rest) for m in (q, k, v)]  # of a key head: queries, key, value
        return np.concatenate(groups, 1).reshape(w.shape)
    return None


def shape(spec, name: str, p) -> tuple | None:
    """The shape of the tensor of the parameter `p`, where it is another."""
    if head_norm(name) is not None:
        return (spec.heads if "q_layernorm" in name else spec.kv_heads, *p.shape)
    if spec.arch == "gpt2" and p.ndim == 2 and ".c_" in name:
        return (p.shape[1], p.shape[0])
    return None


class Headed(torch.nn.Module):
    """A text model with a head, where `transformers` has one with images only."""

    def __init__(self, model, config):
        super().__init__()
        self.model, self.config = model, config
        if not config.tie_word_embeddings:
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, ids, **inputs):
        hidden = self.model(ids, **inputs).last_hidden_state
        head = self.model.embed_tokens if self.config.tie_word_embeddings else self.lm_head
        return types.SimpleNamespace(logits=hidden @ head.weight.T)


def in_parallel(model) -> None:
    """Llama whose blocks read one norm."""
    def forward(self, hidden_states, **inputs):
        x = self.input_layernorm(hidden_states)
        return hidden_states + self.self_attn(hidden_states=x, **inputs)[0] + self.mlp(x)

    for layer in model.model.layers:
        layer.post_attention_layernorm = torch.nn.Identity()
        layer.forward = types.MethodType(forward, layer)


def slopes(heads: int) -> torch.Tensor:
    """ALiBi's, of a power of two of heads."""
    return torch.tensor([2.0 ** (-8.0 * (i + 1) / heads) for i in range(heads)])


def by_distance(model) -> None:
    """Llama with ALiBi instead of RoPE: all positions are 0, and the mask has what is added to scores."""
    def inputs(n: int) -> dict:
        distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        line = slopes(model.config.num_attention_heads)[:, None, None] * distance
        mask = torch.where(distance > 0, torch.finfo(torch.float32).min, line)
        return dict(attention_mask=mask[None], position_ids=torch.zeros(1, n, dtype=torch.long))

    model.more_inputs = inputs


def xielu_by_layer(model) -> None:
    """Other numbers in every layer."""
    for i, layer in enumerate(model.model.layers):
        layer.mlp.act_fn.alpha_p.data.fill_(0.3 + 0.5 * i)
        layer.mlp.act_fn.alpha_n.data.fill_(-0.4 + 0.9 * i)
        layer.mlp.act_fn.beta.fill_(0.5 + 0.25 * i)


def chosen_early(window: int) -> Callable:
    """Mixtral whose experts are chosen by the stream before attention, by sigmoids divided by their sum. With a window,
    every fourth layer from the first on is without it and without RoPE."""
    def forward(self, hidden_states, **inputs):
        n, hidden = hidden_states.shape[1:]
        weights, chosen = (hidden_states[0] @ self.mlp.gate.weight.T).sigmoid().topk(3)
        weights = weights / weights.sum(-1, keepdim=True)
        if window and self.number % 4 == 0:
            cos, sin = inputs["position_embeddings"]
            inputs["position_embeddings"] = torch.ones_like(cos), torch.zeros_like(sin)
        elif window:
            distance = torch.arange(n)[:, None] - torch.arange(n)[None, :]
            least = torch.finfo(torch.float32).min
            inputs["attention_mask"] = torch.where((distance < 0) | (distance >= window), least, 0.0)[None, None]
        x = hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **inputs)[0]
        return x + self.mlp.experts(self.post_attention_layernorm(x)[0], chosen, weights)[None]

    def change(model) -> None:
        for i, layer in enumerate(model.model.layers):
            layer.number, layer.forward = i, types.MethodType(forward, layer)

    return change
