"""A second, independent forward pass over a GGUF file, in NumPy float64."""

import math
from pathlib import Path

import gguf
import numpy as np

import recurrent
from specs import INTERLEAVED, NOPE_EVERY, PERMUTED


GELU = ("starcoder2", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4", "gpt2", "starcoder", "phi2", "bloom")
GELU_ERF = ("gptneox", "falcon", "mpt")
SQUARED_RELU = ("nemotron", "arcee", "bitnet-b1.58")
CENTRED = ("command-r", "cohere2", "mpt", "olmo", "stablelm")  # norms without a bias take the mean off
PARALLEL = ("falcon", "phi2", "command-r", "cohere2", "plamo")  # blocks read one stream
UNROTATED = ("gpt2", "starcoder", "mpt", "bloom")
# Every such layer is without a window, where some have one; files may list the layers instead.
PERIOD = {"exaone4": 4, "cohere2": 4, "gemma4": 6, "gemma3n": 5, "llama4": 4, "gemma2": 2, "gemma3": 6, "olmo2": 4, "gpt-oss": 2}
LOCAL = {"gemma4": 1e4, "gemma3n": 1e4, "gemma3": 1e4, "olmo2": None}  # layers with a window have unstretched RoPE of this base


SOFTMAX, SIGMOID, CHOSEN, MIXER = 1, 2, 3, -1  # what scores of experts become
GATES = {"llama": CHOSEN, "granitemoe": CHOSEN, "gpt-oss": CHOSEN, "minimax-m2": SIGMOID, "llama4": SIGMOID,
         "nemotron_h_moe": SIGMOID, "lfm2moe": SIGMOID, "granitehybrid": CHOSEN,
         "phimoe": MIXER}
NORMALISED = ("smallthinker", "qwen3moe", "qwen3vlmoe", "minimax-m2", "ernie4_5-moe", "hunyuan-moe",
              "qwen3next", "qwen35moe", "lfm2moe", "gemma4")
SHARING = ("gemma3n", "gemma4")  # last layers may have no keys and values of their own
NORMS_LAST = ("hunyuan-moe", "hunyuan-dense")  # after RoPE


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_erf(x):
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


class Float64:
    """Knows nothing but the file and the conventions of its architecture: which elements RoPE
    pairs, and in which layers."""

    def __init__(self, path: Path):
        reader = gguf.GGUFReader(str(path))
        self.t = {t.name: t.data.astype(np.float64) for t in reader.tensors}
        self.arch = str(reader.fields["general.architecture"].contents())
        get = lambda key: reader.fields[f"{self.arch}.{key}"].contents()
        self.layers, self.heads = get("block_count"), get("attention.head_count")
        key = f"{self.arch}.nextn_predict_layers"
        further = reader.fields[key].contents() if key in reader.fields else 0
        self.layers -= further
        kv_heads = get("attention.head_count_kv")
        self.kv_heads = max(kv_heads) if isinstance(kv_heads, list) else kv_heads
        self.d = get("attention.key_length")
        self.key = lambda key, default: (
            reader.fields[f"{self.arch}.{key}"].contents()
            if f"{self.arch}.{key}" in reader.fields else default)
        self.eps = self.key("attention.layer_norm_rms_epsilon",
                            self.key("attention.layer_norm_epsilon", None))
        self.tie = float("inf")  # between the last expert that was chosen and the next
        self.act = gelu if self.arch in GELU else gelu_erf if self.arch in GELU_ERF else silu
        if self.arch.startswith("nemotron_h") or self.arch in SQUARED_RELU:
            self.act = lambda x: np.maximum(x, 0) ** 2
        if self.arch == "bitnet" and self.kv_heads < self.heads:
            self.act = lambda x: np.maximum(x, 0) ** 2
        if self.arch == "smallthinker":
            self.act = lambda x: np.maximum(x, 0)
        if "xielu.beta" in reader.fields:
            self.xielu = [reader.fields[f"xielu.{key}"].contents() for key in ("alpha_p", "alpha_n", "beta", "eps")]
        for name in [name for name in self.t if name.endswith("ffn_gate_up_exps.weight") and self.arch == "mistral4"]:
            halves = np.split(self.t.pop(name), 2, axis=1)
            for half, kind in zip(halves, ("gate", "up")):
                self.t[name.replace("gate_up", kind)] = half
        self.alibi = self.key("attention.max_alibi_bias", 8.0 if self.arch == "bloom" else 0.0)
        self.parallel = self.arch in PARALLEL or self.key("use_parallel_residual", False)
        self.recurrence = {key: self.key(key, None) for key in
                           ("ssm.time_step_rank", "ssm.group_count", "ssm.state_size", "ssm.inner_size")}
        self.latent = self.key("attention.kv_lora_rank", 0)
        if self.latent:
            self.d = self.key("attention.key_length_mla", self.d)
        self.scale = self.key("attention.scale", 1 / math.sqrt(self.d))
        if self.arch in SHARING:
            self.scale = 1.0
        self.rot, self.context = get("rope.dimension_count"), get("context_length")
        self.base = get("rope.freq_base")
        self.freq = self.base ** (-np.arange(0, self.rot, 2) / self.rot)
        self.freq = self.freq / self.t.get("rope_freqs.weight", 1.0)
        self.rope_gain = 1.0
        self.window = self.key("attention.sliding_window", 0)  # tokens seen, one's own included
        period = PERIOD.get(self.arch, 0)
        every = [not period or (i + 1) % period != 0 for i in range(self.layers + further)]
        if self.arch == "smallthinker":
            every = [i % 4 != 0 for i in range(self.layers)]
        self.windowed = self.key("attention.sliding_window_pattern", every)
        self.stretch()
        self.local = (self.freq, self.rope_gain)
        if self.window and self.arch in LOCAL:
            base = self.key("rope.freq_base_swa", LOCAL[self.arch] or self.base)
            rot = self.key("rope.dimension_count_swa", self.rot)
            self.local = (base ** (-np.arange(0, rot, 2) / rot), 1.0)

    def stretch(self):
        """Angles and gain of a stretched context."""
        original = self.key("rope.scaling.original_context_length", self.context)
        factor = self.key("rope.scaling.factor", 1.0)
        kind = self.key("rope.scaling.type", "none")
        if "rope_factors_long.weight" in self.t:
            length = "long" if self.context > original else "short"
            self.freq = self.freq / self.t[f"rope_factors_{length}.weight"]
            self.rope_gain = self.key("rope.scaling.attn_factor", 1.0)
        elif kind == "linear":
            self.freq = self.freq / factor
        elif kind == "yarn":
            # turns within the original context: 32 and more stay, one and less are divided
            at = lambda turns: (self.rot * math.log(original / (turns * 2 * math.pi))
                                / (2 * math.log(self.base)))
            low, high = at(32), at(1)
            if self.arch != "gpt-oss":
                low, high = math.floor(low), math.ceil(high)
            low, high = max(low, 0), min(high, self.rot - 1)
            divided = np.clip((np.arange(self.rot // 2) - low) / (high - low), 0, 1)
            assert ((divided > 0) & (divided < 1)).any() and (divided == 1).any()
            self.freq = self.freq * (1 - divided + divided / factor)
            gain = lambda of: 1 + 0.1 * of * math.log(factor)
            paper = gain(1) / gain(self.key("rope.scaling.yarn_log_multiplier", 0.0))
            self.rope_gain = self.key("rope.scaling.yarn_attn_factor", paper)
            if self.latent:
                self.rope_gain = 1.0
                self.scale *= gain(10 * self.key("rope.scaling.yarn_log_multiplier", 0.0)) ** 2

    def norm(self, x, name):
        """With mean and variance if there is a bias, with the mean square otherwise, in most families."""
        if name in self.t:  # a tensor without an ending
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.t[name]
        bias = self.t.get(name + ".bias")
        if bias is not None or self.arch in CENTRED:
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.t.get(name + ".weight", 1.0)
        return x if bias is None else x + bias

    def capped(self, x, key):
        cap = self.key(key, 0.0)
        return cap * np.tanh(x / cap) if cap else x

    def norm_if(self, x, name):
        if self.arch == "olmo" and name.endswith(("attn_norm", "ffn_norm")):
            return self.norm(x, name)
        return self.norm(x, name) if name in self.t or name + ".weight" in self.t else x

    def rope(self, x, freq, gain):  # [tokens, heads, d]
        angle = np.arange(len(x))[:, None, None] * freq
        cos, sin = np.cos(angle) * gain, np.sin(angle) * gain
        out = x.copy()
        half = len(freq)
        neighbours = self.arch in PERMUTED + INTERLEAVED
        a, b = ((slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if neighbours
                else (slice(0, half), slice(half, 2 * half)))
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., a] * sin + x[..., b] * cos
        return out

    def choose(self, scores, bias):
        """Weights of all experts of a token, zeros for those not chosen."""
        count = self.key("expert_used_count", None)
        gate = self.key("expert_gating_func", GATES.get(self.arch, SOFTMAX))
        softmax = lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum()
        if gate == MIXER:
            return self.mix(scores, count)
        weights = {SOFTMAX: softmax, SIGMOID: lambda s: 1 / (1 + np.exp(-s)),
                   CHOSEN: lambda s: s}[gate](scores)
        rank = weights if bias is None else weights + bias
        if (groups := self.key("expert_group_count", 1)) > 1:
            best_of = 1 if self.arch == "deepseek2" and gate == SOFTMAX else 2
            of_groups = np.sort(rank.reshape(groups, -1), axis=1)[:, -best_of:].sum(1)
            used = self.key("expert_group_used_count", None)
            best = np.argsort(-of_groups, kind="stable")
            self.tie = min(self.tie, of_groups[best[used - 1]] - of_groups[best[used]])
            without = np.repeat(~np.isin(np.arange(groups), best[:used]), len(rank) // groups)
            rank = np.where(without, -np.inf, rank)
        order = np.argsort(-rank, kind="stable")
        near = scores if gate == SOFTMAX and bias is None else rank  # probabilities of far experts are near each other
        self.tie = min(self.tie, near[order[count - 1]] - near[order[count]])
        out = np.zeros(len(scores))
        chosen = order[:count]
        out[chosen] = softmax(weights[chosen]) if gate == CHOSEN else weights[chosen]
        if self.key("expert_weights_norm", self.arch in NORMALISED):
            out /= out.sum()
        return out * self.key("expert_weights_scale", 1.0)

    def mix(self, scores, count):
        """SparseMixer: a softmax over those near the best, which then leaves."""
        out, left = np.zeros(len(scores)), scores.copy()
        for _ in range(count):
            best = np.argmax(left)
            apart = (left[best] - left) / np.maximum(np.abs(scores), left[best])
            self.tie = min(self.tie, np.abs(apart - 0.02).min(), np.sort(apart)[1])
            out[best] = 1 / np.exp(left - left[best], where=apart <= 0.02, out=np.zeros(len(left))).sum()
            left[best] = -np.inf
        return out

    def experts(self, h, p, routed=None):
        """Every token by itself. `routed`: what the router reads, if it is something else."""
        t, out = self.t, np.zeros_like(h)
        scores = (h if routed is None else routed) @ t[p + "ffn_gate_inp.weight"].T + t.get(p + "ffn_gate_inp.bias", 0.0)
        for i, row in enumerate(h):
            for e, weight in enumerate(self.choose(scores[i], t.get(p + "exp_probs_b.bias"))):
                if weight:
                    def linear(h, m):
                        bias = t.get(p + f"ffn_{m}_exps.bias")
                        return t[p + f"ffn_{m}_exps.weight"][e] @ h + (0 if bias is None else bias[e])
                    weighted = self.arch == "llama4"  # what an expert takes
                    taken, weight = (weight * row, 1.0) if weighted else (row, weight)
                    gated = p + "ffn_gate_exps.weight" in t
                    gate, up = linear(taken, "gate") if gated else None, linear(taken, "up")
                    if not gated:
                        up = self.act(up)
                    elif self.arch == "gpt-oss":
                        gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
                        up = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
                    else:
                        up = self.act(gate) * up
                    out[i] += weight * linear(up, "down")
        if p + "ffn_up_shexp.weight" in t:
            shared = h @ t[p + "ffn_up_shexp.weight"].T
            if p + "ffn_gate_shexp.weight" in t:
                shared = self.act(h @ t[p + "ffn_gate_shexp.weight"].T) * shared
            else:
                shared = self.act(shared)
            shared = shared @ t[p + "ffn_down_shexp.weight"].T
            if p + "ffn_gate_inp_shexp.weight" in t:
                shared /= 1 + np.exp(-(h @ t[p + "ffn_gate_inp_shexp.weight"].reshape(-1)))[:, None]
            out += shared
        return out

    def of_latents(self, h, p):
        """Queries, keys and values of all heads, expanded."""
        t, n, heads, rot = self.t, len(h), self.heads, self.rot
        q = h
        if p + "attn_q_a.weight" in t:
            q = self.norm(h @ t[p + "attn_q_a.weight"].T, p + "attn_q_a_norm")
        q = q @ t[p + ("attn_q_b" if q is not h else "attn_q") + ".weight"].T
        q_nope, q_rope = np.split(q.reshape(n, heads, -1), [self.d - rot], axis=2)
        latent, k_rope = np.split(h @ t[p + "attn_kv_a_mqa.weight"].T, [self.latent], axis=1)
        latent = self.norm(latent, p + "attn_kv_a_norm")
        if p + "attn_kv_b.weight" in t:
            of_heads = (latent @ t[p + "attn_kv_b.weight"].T).reshape(n, heads, -1)
            k_nope, v = np.split(of_heads, [self.d - rot], axis=2)
        else:
            k_nope = np.einsum("nr,hrd->nhd", latent, t[p + "attn_k_b.weight"])
            v = np.einsum("nr,hvr->nhv", latent, t[p + "attn_v_b.weight"])
        place = lambda x: self.rope(x, self.freq, self.rope_gain)
        k_rope = np.repeat(place(k_rope[:, None]), heads, axis=1)
        return (np.concatenate([q_nope, place(q_rope)], 2), np.concatenate([k_nope, k_rope], 2), v)

    def lines(self, n):
        """What ALiBi adds to scores."""
        power = 2 ** math.floor(math.log2(self.heads))
        steep = [2.0 ** (-self.alibi * i / power) for i in range(1, power + 1)]
        steep += [2.0 ** (-self.alibi * i / (2 * power)) for i in range(1, 2 * power, 2)]
        distance = np.arange(n)[None, :] - np.arange(n)[:, None]
        return np.array(steep[:self.heads])[:, None, None] * distance

    def linear(self, h, name):
        return h @ self.t[name + ".weight"].T + self.t.get(name + ".bias", 0.0)

    def attend(self, h, i, p):
        """What the heads of layer `i` give."""
        t, n, linear, gate = self.t, len(h), self.linear, None
        hidden = np.triu(np.full((n, n), -np.inf), 1)
        behind = np.tril(np.full((n, n), -np.inf), -self.window) if self.window else 0.0
        if self.arch == "llama4":
            chunk = np.arange(n) // self.window
            behind = np.where(chunk[:, None] == chunk[None, :], 0.0, -np.inf)
        d = self.key("attention.key_length_swa", self.d) if self.windowed[i] else self.d
        own = self.layers - self.key("attention.shared_kv_layers", 0)
        if self.latent:
            q, k, v = self.of_latents(h, p)
        elif self.arch in SHARING:
            q = linear(h, p + "attn_q")
            k = linear(h, p + "attn_k") if i < own else np.zeros((n, d))
            v = linear(h, p + "attn_v") if p + "attn_v.weight" in t else k
        elif p + "attn_qkv.weight" in t:
            ends = np.cumsum([self.heads, self.kv_heads]) * self.d
            q, k, v = np.split(linear(h, p + "attn_qkv"), ends, axis=1)
        else:
            q, k, v = (linear(h, p + f"attn_{c}") for c in "qkv")
            if q.shape[1] == 2 * self.heads * self.d:  # of each head queries and gates
                q, gate = np.split(q.reshape(n, self.heads, -1), 2, axis=2)
                q, gate = q.reshape(n, -1), gate.reshape(n, -1)
        if clamp := self.key("attention.clamp_kqv", 0.0):
            assert all((np.abs(m) > clamp).any() for m in (q, k, v))
            q, k, v = (np.clip(m, -clamp, clamp) for m in (q, k, v))
        # norms of queries and keys go over whole rows or over heads, as long as their weights
        weight = t.get(p + "attn_q_norm.weight", np.zeros(0))
        rows = weight.size > d and weight.ndim == 1
        if rows:
            q, k = self.norm(q, p + "attn_q_norm"), self.norm(k, p + "attn_k_norm")
        if not self.latent:
            q, k, v = (m.reshape(n, -1, d) for m in (q, k, v))
        last = self.arch in NORMS_LAST
        if not rows and not last:
            q, k = self.norm_if(q, p + "attn_q_norm"), self.norm_if(k, p + "attn_k_norm")
        nope = (i + 1) % NOPE_EVERY.get(self.arch, 10**9) == 0
        if self.arch == "llama4" and not nope:
            q, k = (m / np.sqrt((m * m).mean(-1, keepdims=True) + self.eps) for m in (q, k))
        nope = nope or not self.key("rope.scaling.finetuned", True) or self.arch in UNROTATED
        nope = nope or bool(self.alibi)
        if self.arch in ("exaone4", "cohere2", "smallthinker"):
            nope = bool(self.window) and not self.windowed[i]
        if not nope and not self.latent:
            at = self.local if self.windowed[i] else (self.freq, self.rope_gain)
            q, k = self.rope(q, *at), self.rope(k, *at)
        if last:
            q, k = self.norm_if(q, p + "attn_q_norm"), self.norm_if(k, p + "attn_k_norm")
        growth = self.key("attention.temperature_scale", 0.0)
        if growth and self.arch == "llama4":
            stretches = (np.arange(n) + 1) // self.key("attention.temperature_length", None)
            q = q * (1 + growth * nope * np.log(1 + stretches))[:, None, None]
        elif growth:
            original = self.key("rope.scaling.original_context_length", None)
            stretches = np.arange(n) // original
            q = q * (1 + growth * np.log(1 + stretches))[:, None, None]
        if self.arch in SHARING:
            v = recurrent.rms(v, self.eps)
            if i >= own:
                k, v = self.kept[max(j for j in range(own) if self.windowed[j] == self.windowed[i])]
            self.kept[i] = (k, v)
        k, v = (np.repeat(m, self.heads // m.shape[1], axis=1) for m in (k, v))
        s = np.einsum("qhd,khd->hqk", q, k) * self.scale
        s = self.capped(s, "attn_logit_softcapping") + hidden
        if self.alibi:
            s = s + self.lines(n)
        s = s + behind if self.windowed[i] else s
        if p + "attn_sinks.weight" in t:
            sinks = t[p + "attn_sinks.weight"][:, None, None]
            s = np.concatenate([s, np.broadcast_to(sinks, (*s.shape[:2], 1))], -1)
        s = np.exp(s - s.max(-1, keepdims=True))
        s = (s / s.sum(-1, keepdims=True))[..., :n]
        o = np.einsum("hqk,khd->qhd", s, v).reshape(n, -1)
        if gate is not None:
            o = o / (1 + np.exp(-gate))
        return linear(self.norm_if(o, p + "attn_sub_norm"), p + "attn_output")

    def mixed(self, h, i, p):
        """What tokens of layer `i` take of others: as many summands as it has ways."""
        t = self.t
        if p + "attn_output.weight" in t:
            yield self.attend(h, i, p)
        if p + "shortconv.conv.weight" in t:
            yield recurrent.short_convolution(t, p, h)
        if p + "ssm_in.weight" in t:
            yield recurrent.mamba(t, p, h, self.recurrence, self.eps)
        if p + "attn_gate.weight" in t:
            yield recurrent.delta_net(t, p, h, self.recurrence, self.eps)

    def last_of_gemma4(self, x, h, p, own):
        """What a layer adds behind attention, and its factor."""
        t, linear = self.t, self.linear
        y = linear(self.act(linear(h, p + "ffn_gate")) * linear(h, p + "ffn_up"), p + "ffn_down")
        if p + "ffn_gate_inp.weight" in t:
            r = recurrent.rms(x, self.eps) * t[p + "ffn_gate_inp.scale"] / math.sqrt(x.shape[1])
            z, scores = self.norm(x, p + "pre_ffw_norm_2"), r @ t[p + "ffn_gate_inp.weight"].T
            of_experts = np.zeros_like(x)
            for i, row in enumerate(z):
                for e, weight in enumerate(self.choose(scores[i], None)):
                    if weight:
                        gate, up = np.split(t[p + "ffn_gate_up_exps.weight"][e] @ row, 2)
                        down = t[p + "ffn_down_exps.weight"][e] @ (self.act(gate) * up)
                        of_experts[i] += weight * t[p + "ffn_down_exps.scale"][e] * down
            y = self.norm(y, p + "post_ffw_norm_1") + self.norm(of_experts, p + "post_ffw_norm_2")
        x = x + self.norm(y, p + "post_ffw_norm")
        if own is not None:
            y = linear(self.act(linear(x, p + "inp_gate")) * own, p + "proj")
            x = x + self.norm(y, p + "post_norm")
        return x * t.get(p + "layer_output_scale.weight", 1.0)

    def modalities(self, x, p):
        """What the router of Gemma 3n says of each stream."""
        r = self.norm(x, p + "altup_router_norm") / x.shape[1]
        return np.tanh(r @ self.t[p + "altup_router.weight"].T)

    def layer_of_gemma3n(self, streams, i, p, own):  # [streams, tokens, hidden]
        t, linear, count = self.t, self.linear, len(streams)
        active = self.key("altup.active_idx", None)
        c = self.modalities(streams[active], p) @ t[p + "altup_predict_coef.weight"].T
        c = c.reshape(-1, count, count)  # a row for each stream to come
        predicted = streams + np.einsum("tij,jtd->itd", c, streams)
        x = predicted[active]
        h = self.norm(x, p + "attn_norm")
        laurel = h + self.norm(linear(linear(h, p + "laurel_l"), p + "laurel_r"), p + "laurel_post_norm")
        x = x + self.norm(self.attend(h, i, p), p + "post_attention_norm")
        x = (x + laurel) / math.sqrt(2)
        h = self.norm(x, p + "ffn_norm")
        gate, deviations = linear(h, p + "ffn_gate"), self.key("activation_sparsity_scale", None)[i]
        if np.isfinite(deviations):
            least = gate.mean(1, keepdims=True) + gate.std(1, keepdims=True) * deviations
            gate = np.maximum(gate - least, 0)
        y = linear(self.act(gate) * linear(h, p + "ffn_up"), p + "ffn_down")
        x = x + self.norm(y, p + "post_ffw_norm")
        c = 1 + self.modalities(x, p) @ t[p + "altup_correct_coef.weight"].T
        corrected = predicted + c.T[:, :, None] * (x - predicted[active])
        y = linear(corrected[active] * t[p + "altup_correct_scale.weight"], p + "inp_gate")
        corrected[1:] += self.norm(linear(self.act(y) * own, p + "proj"), p + "post_norm")
        return corrected

    def of_streams(self, x, own):
        """All layers of Gemma 3n."""
        length = lambda x: np.sqrt(np.maximum((x * x).mean(-1, keepdims=True), 1e-5))
        streams = [x]
        for w in self.t["altup_proj.weight"]:
            y = x @ w.T
            streams.append(y * length(x) / length(y))
        streams = np.stack(streams)
        for i in range(self.layers):
            streams = self.layer_of_gemma3n(streams, i, f"blk.{i}.", own[:, i])
        all_of_them = [streams[0]]
        for stream, w in zip(streams[1:], self.t["altup_unembd_proj.weight"]):
            y = stream @ w.T
            all_of_them.append(y * length(streams[0]) / length(y))
        return np.mean(all_of_them, 0)

    def hidden(self, tokens: list[int]) -> np.ndarray:
        """What the head makes logits of."""
        t = self.t
        x = t["token_embd.weight"][tokens] * self.key("embedding_scale", 12.0 if self.arch == "minicpm3" else 1.0)
        if "position_embd.weight" in t:
            x = x + t["position_embd.weight"][:len(tokens)]
        x = self.norm_if(x, "token_embd_norm") if self.arch == "bloom" else x
        if self.arch.startswith("gemma"):
            x = x * math.sqrt(x.shape[1])
        self.kept = {}
        own = None
        if "per_layer_token_embd.weight" in t:
            width = len(t["per_layer_proj_norm.weight"])
            own = (x @ t["per_layer_model_proj.weight"].T / math.sqrt(x.shape[1])).reshape(len(x), -1, width)
            own = recurrent.rms(own, self.eps) * t["per_layer_proj_norm.weight"]
            looked_up = t["per_layer_token_embd.weight"][tokens].reshape(own.shape)
            own = (own + looked_up * math.sqrt(width)) / math.sqrt(2)
        if self.arch == "gemma3n":
            x = self.of_streams(x, own)
        for i in range(0 if self.arch == "gemma3n" else self.layers):
            x = self.layer(x, i, own)
        return self.norm(x, "token_embd_norm" if self.arch.startswith("lfm2") else "output_norm")

    def layer(self, x, i, own=None):
        t, linear, add = self.t, self.linear, self.key("residual_scale", 1.0)
        if self.arch == "minicpm3":
            add = 1.4 / math.sqrt(self.layers)
        # families that call the norm before the feed-forward layer after what comes before it
        sparse_norm = self.arch in ("glm4moe", "gpt-oss", "qwen3next", "qwen35", "qwen35moe", "seed_oss")
        p = f"blk.{i}."
        parallel = self.parallel and not (self.arch == "stablelm" and p + "ffn_norm.weight" in t)
        before, h = x, self.norm_if(x, p + "attn_norm")
        if parallel:
            one = p + "ffn_norm.weight" not in t
            of_ffn = h if one else self.norm(x, p + "ffn_norm")
            h = self.norm(x, p + "attn_norm_2") if p + "attn_norm_2.weight" in t else h
        mixed = list(self.mixed(h, i, p))
        for o in mixed:
            x = x + add * (o if sparse_norm else self.norm_if(o, p + "post_attention_norm"))
        if mixed and p + "ffn_up.weight" not in t and p + "ffn_gate_inp.weight" not in t:
            return x
        if mixed:
            h = self.norm_if(x, p + ("post_attention_norm" if sparse_norm else "ffn_norm"))
        if parallel:
            h = of_ffn
        if self.arch == "gemma4":
            return self.last_of_gemma4(x, h, p, own if own is None else own[:, i])
        if p + "ffn_gate_inp.weight" in t:
            return x + add * self.experts(h, p, before if self.arch == "smallthinker" else None)
        up = linear(h, p + "ffn_up")
        if p + "ffn_gate.weight" in t:
            up = self.act(linear(h, p + "ffn_gate")) * up
        elif up.shape[1] == 2 * t[p + "ffn_down.weight"].shape[1]:
            gate, up = np.split(up, 2, axis=1)
            up = self.act(gate) * up
        elif hasattr(self, "xielu"):
            up = self.of_xielu(up, i)
        else:
            up = self.act(up)
        up = self.norm_if(up, p + "ffn_sub_norm")
        return x + add * self.norm_if(linear(up, p + "ffn_down"), p + "post_ffw_norm")

    def of_xielu(self, x, i):
        alpha_p, alpha_n, beta, eps = (numbers[i] for numbers in self.xielu)
        softplus = lambda x: math.log1p(math.exp(x))
        below = (np.expm1(np.minimum(x, eps)) - x) * (beta + softplus(alpha_n)) + beta * x
        return np.where(x > 0, softplus(alpha_p) * x * x + beta * x, below)

    def predict(self, tokens: list[int]) -> np.ndarray:
        """What the layer that predicts further tokens says, of every token and the hidden state before it."""
        p = f"blk.{self.layers}.nextn."
        hidden = self.hidden(tokens)
        before = np.concatenate([np.zeros_like(hidden[:1]), hidden[:-1]])
        embedded = self.t["token_embd.weight"][tokens]
        x = np.concatenate([self.norm(embedded, p + "enorm"), self.norm(before, p + "hnorm")], 1)
        x = self.layer(self.linear(x, p + "eh_proj"), self.layers)
        return self.norm(x, p + "shared_head_norm") @ self.head().T

    def head(self):
        return self.t.get("output.weight", self.t["token_embd.weight"])

    def __call__(self, tokens: list[int]) -> np.ndarray:
        t = self.t
        x = self.hidden(tokens)
        x = x @ self.head().T + t.get("output.bias", 0.0)
        scale = self.key("logit_scale", 1.0)
        if self.arch == "minicpm3":
            scale = len(t["output_norm.weight"]) / 256
        scale = 1 / scale if self.arch in ("command-r", "cohere2") else scale
        return self.capped(x / scale, "final_logit_softcapping")
