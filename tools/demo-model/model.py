"""A Qwen3-shaped decoder in plain PyTorch: RMSNorm, grouped-query attention with
normalised queries and keys, half-split RoPE, SwiGLU, tied embeddings; with `experts`
a Qwen3MoE-shaped one, where a router chooses some of several SwiGLUs for each token."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from init import initialise


@dataclass(frozen=True)
class Config:
    """Every dimension is a multiple of 256, so that every block format fits."""

    vocab: int = 2048
    layers: int = 4
    hidden: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 512
    experts: int = 0  # of every layer; 0 is a dense model
    used: int = 2  # experts for each token
    expert_ffn: int = 256  # two of them multiply as much as the dense FFN
    context: int = 2048
    theta: float = 1e6
    eps: float = 1e-6


class Norm(nn.Module):
    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self.eps)


def rope_table(c: Config) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, [context, head_dim / 2]"""
    freq = c.theta ** (-torch.arange(0, c.head_dim, 2) / c.head_dim)
    angle = torch.arange(c.context)[:, None] * freq
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):  # [batch, heads, tokens, head_dim]
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Bank(nn.Module):
    """One matrix of every expert, [experts, out, in]"""

    def __init__(self, experts: int, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))


class Block(nn.Module):
    """Attributes carry the GGUF tensor names."""

    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.attn_norm, self.ffn_norm = Norm(c.hidden, c.eps), Norm(c.hidden, c.eps)
        self.attn_q = linear(c.hidden, c.heads * c.head_dim)
        self.attn_k = linear(c.hidden, c.kv_heads * c.head_dim)
        self.attn_v = linear(c.hidden, c.kv_heads * c.head_dim)
        self.attn_output = linear(c.heads * c.head_dim, c.hidden)
        self.attn_q_norm, self.attn_k_norm = Norm(c.head_dim, c.eps), Norm(c.head_dim, c.eps)
        if c.experts:
            bank = lambda i, o: Bank(c.experts, i, o)
            self.ffn_gate_inp = linear(c.hidden, c.experts)
            self.ffn_gate_exps = bank(c.hidden, c.expert_ffn)
            self.ffn_up_exps = bank(c.hidden, c.expert_ffn)
            self.ffn_down_exps = bank(c.expert_ffn, c.hidden)
        else:
            self.ffn_gate, self.ffn_up = linear(c.hidden, c.ffn), linear(c.hidden, c.ffn)
            self.ffn_down = linear(c.ffn, c.hidden)

    def forward(self, x, cos, sin):
        c, (batch, tokens, _) = self.c, x.shape
        h = self.attn_norm(x)
        split = lambda m: m.view(batch, tokens, -1, c.head_dim).transpose(1, 2)
        q = rotate(self.attn_q_norm(split(self.attn_q(h))), cos, sin)
        k = rotate(self.attn_k_norm(split(self.attn_k(h))), cos, sin)
        v = split(self.attn_v(h))
        k, v = (m.repeat_interleave(c.heads // c.kv_heads, dim=1) for m in (k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_output(o.transpose(1, 2).reshape(batch, tokens, -1))
        h = self.ffn_norm(x)
        if c.experts:
            return x + self.chosen_experts(h.flatten(0, 1)).view_as(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))

    def chosen_experts(self, h):  # [tokens, hidden]
        c = self.c
        with torch.autocast("cpu", enabled=False):
            share = F.linear(h, self.ffn_gate_inp.weight).softmax(-1)  # [tokens, experts]
        weight, chosen = share.topk(c.used, dim=-1)  # [tokens, used]
        weight = weight / weight.sum(-1, keepdim=True)
        count = F.one_hot(chosen, c.experts).sum((0, 1))  # [experts]
        # 1 where tokens and shares are spread evenly, more where some experts have most
        # (Switch Transformer, arXiv:2101.03961, equation 4)
        self.imbalance = c.experts * (count / chosen.numel() * share.mean(0)).sum()
        # every expert's tokens side by side
        order = chosen.flatten().argsort(stable=True)
        token = order // c.used
        banks = (b.weight.unbind() for b in (self.ffn_gate_exps, self.ffn_up_exps, self.ffn_down_exps))
        y = torch.cat([F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
                       for x, gate, up, down in zip(h[token].split(count.tolist()), *banks)])
        return torch.zeros_like(h).index_add(0, token, y * weight.flatten()[order, None])


class Model(nn.Module):
    def __init__(self, c: Config = Config()):
        super().__init__()
        self.c = c
        self.token_embd = nn.Embedding(c.vocab, c.hidden)
        self.blk = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.output_norm = Norm(c.hidden, c.eps)
        cos, sin = rope_table(c)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        initialise(self)

    def forward(self, ids):
        """[batch, tokens] ids to [batch, tokens, vocab] logits"""
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, cos, sin)
        return self.output_norm(x) @ self.token_embd.weight.T
