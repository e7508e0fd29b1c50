"""Starting weights that can already copy.

A model learns to repeat a name or an object from earlier in its text only when two
heads in different layers happen to cooperate: one that looks at the previous token,
and one that looks for an earlier place whose previous token is the current one (an
induction head). From random weights that had not happened after four million
tokens, nearly half of what this model reads. So both are written in by hand, and training only has to
sharpen them. The loss on a name that the story has mentioned is 1.0 nats after 300
steps; from random weights it is 4.2 there, and still 3.7 (chance) after 2000.

The hidden vector is cut into parts: the first half holds what a token is, the next
`head_dim` values what its predecessor was, and the last value is constant, something
that a purely positional head can attend with.
"""

import torch
from torch import nn

TOKEN_STD, CONSTANT = 0.3, 2.0
PREVIOUS_GAIN, COPY_GAIN = 0.4, 0.3  # what the two kinds of head write, beside TOKEN_STD
FAST = torch.tensor([1.5, 1.3, 1.0, 0.8, 0.6, 0.5])  # weight of the fastest RoPE pairs


def projection(inputs: int, outputs: int) -> torch.Tensor:
    """Random orthonormal rows, [outputs, inputs]"""
    return torch.linalg.qr(torch.randn(inputs, outputs))[0].T


@torch.no_grad()
def random_weights(model: nn.Module) -> None:
    for name, p in model.named_parameters():
        if p.ndim >= 2:
            nn.init.normal_(p, std=p.shape[-1] ** -0.5)
        if name.endswith("attn_output.weight"):
            p.mul_(0.1)
        if name.endswith(("ffn_down.weight", "ffn_down_exps.weight")):
            p.zero_()


@torch.no_grad()
def initialise(model: nn.Module) -> None:
    c = model.c
    d, pairs, content = c.head_dim, c.head_dim // 2, c.hidden // 2
    random_weights(model)
    embd = model.token_embd.weight
    nn.init.normal_(embd, std=TOKEN_STD)
    embd[:, content:] *= 0.1
    embd[:, -1] = CONSTANT

    # layer 0, head 0 attends one token back: query and key are constant, and the
    # query's phase is turned by one position
    first, fast = model.blk[0], len(FAST)
    angle = c.theta ** (-torch.arange(fast) / pairs)
    q, k = first.attn_q.weight, first.attn_k.weight
    q[:d] *= 0.1
    k[:d] *= 0.1
    k[:fast, -1] = FAST
    q[:fast, -1] = FAST * angle.cos()
    q[pairs: pairs + fast, -1] = -FAST * angle.sin()
    for norm in (first.attn_q_norm.weight, first.attn_k_norm.weight):
        norm[:fast] = norm[pairs: pairs + fast] = 2.2
    seen = projection(content, d)
    first.attn_v.weight[:d] = 0
    first.attn_v.weight[:d, :content] = seen
    first.attn_output.weight[:, :d] = 0
    first.attn_output.weight[content: content + d, :d] = PREVIOUS_GAIN * torch.eye(d)

    # the slow half of the RoPE pairs, where a match does not depend on the distance
    slow = torch.cat([torch.arange(pairs // 2, pairs), torch.arange(pairs + pairs // 2, d)])
    for block in model.blk[1:]:
        # every head copies what the tokens it attends to are
        what = projection(content, c.kv_heads * d)
        block.attn_v.weight.zero_()
        block.attn_v.weight[:, :content] = what
        back = what.view(c.kv_heads, d, content).repeat_interleave(c.heads // c.kv_heads, 0)
        block.attn_output.weight.zero_()
        block.attn_output.weight[:content] = COPY_GAIN * back.reshape(-1, content).T
        # head 0 attends where the predecessor was this token
        block.attn_q.weight[:d] = 0
        block.attn_k.weight[:d] = 0
        block.attn_q.weight[slow, :content] = seen[: len(slow)]
        block.attn_k.weight[slow, content: content + len(slow)] = torch.eye(len(slow))
        block.attn_q_norm.weight.fill_(1.5)
        block.attn_k_norm.weight.fill_(1.5)
