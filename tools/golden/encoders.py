#!/usr/bin/env python3
"""Golden hidden states of encoders, for the engine's tests.

As `make.py`, for models that give a vector for each token and no logits: small random models of `transformers`
(float32, eager attention), the GGUF file's header, and the hidden states of some tokens. Weights come from the rule of
`weights.py`.

    python encoders.py            # all models into ../../tests/golden
    python encoders.py bert       # one of them
"""

import argparse
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import gguf
import numpy as np
import torch
import transformers

import weights

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden"
VOCAB, CONTEXT, HIDDEN, HEADS, FFN = 160, 512, 64, 4, 96
EXPERTS, CHOSEN = 8, 2
LENGTHS = (1, 7, 64, 300)
ALL_POSITIONS = 7  # the text whose states are kept at every position
PAIR = (64, 23)  # tokens of a pair of texts, and where the second begins
EPS = 1e-5


@dataclass(frozen=True)
class Encoder:
    name: str
    arch: str  # as in the file
    reference: str  # class prefix in transformers
    config: dict
    tensors: dict  # name in the file -> parameter, or parameters one behind the other
    keys: dict = field(default_factory=dict)  # metadata, by key without the architecture
    layers: int = 3
    change: Callable | None = None  # of the model that `transformers` makes
    mask: Callable | None = None  # what is added to scores, by the number of tokens: [heads, tokens, tokens]
    rms: bool = False
    one_more: bool = False  # is added to norm weights by the model
    pairs: bool = False  # whether the texts of a pair are told apart by types


def of_layers(layers: int, table: dict) -> dict:
    return {f"blk.{at}.{ours}": [name.format(at) for name in (theirs if isinstance(theirs, list) else [theirs])]
            for at in range(layers) for ours, theirs in table.items()}


def both(table: dict) -> dict:
    """Weights and biases."""
    end = lambda names, what: [n + what for n in (names if isinstance(names, list) else [names])]
    return {ours + what: end(theirs, what) for ours, theirs in table.items() for what in (".weight", ".bias")}


LAYER = "encoder.layer.{}."
BERT = {
    "token_embd.weight": "embeddings.word_embeddings.weight",
    "position_embd.weight": "embeddings.position_embeddings.weight",
    "token_types.weight": "embeddings.token_type_embeddings.weight",
    **both({"token_embd_norm": "embeddings.LayerNorm"}),
    **of_layers(3, both({
        **{f"attn_{m[0]}": f"{LAYER}attention.self.{m}" for m in ("query", "key", "value")},
        "attn_output": f"{LAYER}attention.output.dense",
        "attn_output_norm": f"{LAYER}attention.output.LayerNorm",
        "ffn_up": f"{LAYER}intermediate.dense", "ffn_down": f"{LAYER}output.dense",
        "layer_output_norm": f"{LAYER}output.LayerNorm"})),
}
NOMIC = {
    "token_embd.weight": "embeddings.word_embeddings.weight",
    "token_types.weight": "embeddings.token_type_embeddings.weight",
    **both({"token_embd_norm": "embeddings.LayerNorm"}),
    **of_layers(3, {
        "attn_qkv.weight": [f"layers.{{}}.self_attn.{m}_proj.weight" for m in "qkv"],
        "attn_output.weight": "layers.{}.self_attn.o_proj.weight",
        **{f"ffn_{m}.weight": f"layers.{{}}.mlp.{m}_proj.weight" for m in ("gate", "up", "down")},
        **both({"attn_output_norm": "layers.{}.post_attention_layernorm",
                "layer_output_norm": "layers.{}.post_mlp_layernorm"})}),
}
JINA_3 = {
    **{k: v for k, v in NOMIC.items() if not k.startswith("blk.")},
    **of_layers(3, both({
        "attn_qkv": [f"layers.{{}}.self_attn.{m}_proj" for m in "qkv"],
        "attn_output": "layers.{}.self_attn.o_proj",
        "ffn_up": "layers.{}.mlp.fc1", "ffn_down": "layers.{}.mlp.fc2",
        "attn_output_norm": "layers.{}.post_attention_layernorm",
        "layer_output_norm": "layers.{}.post_mlp_layernorm"})),
}
MODERN = {
    "token_embd.weight": "embeddings.tok_embeddings.weight",
    "token_embd_norm.weight": "embeddings.norm.weight",
    "output_norm.weight": "final_norm.weight",
    **{k: v for k, v in of_layers(4, {
        "attn_norm.weight": "layers.{}.attn_norm.weight", "attn_qkv.weight": "layers.{}.attn.Wqkv.weight",
        "attn_output.weight": "layers.{}.attn.Wo.weight", "ffn_norm.weight": "layers.{}.mlp_norm.weight",
        "ffn_up.weight": "layers.{}.mlp.Wi.weight", "ffn_down.weight": "layers.{}.mlp.Wo.weight"}).items()
       if k != "blk.0.attn_norm.weight"},
}
GEMMA = {
    "token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight",
    **of_layers(4, {
        "attn_norm.weight": "layers.{}.input_layernorm.weight",
        **{f"attn_{m}.weight": f"layers.{{}}.self_attn.{m}_proj.weight" for m in "qkv"},
        "attn_q_norm.weight": "layers.{}.self_attn.q_norm.weight",
        "attn_k_norm.weight": "layers.{}.self_attn.k_norm.weight",
        "attn_output.weight": "layers.{}.self_attn.o_proj.weight",
        "post_attention_norm.weight": "layers.{}.post_attention_layernorm.weight",
        "ffn_norm.weight": "layers.{}.pre_feedforward_layernorm.weight",
        **{f"ffn_{m}.weight": f"layers.{{}}.mlp.{m}_proj.weight" for m in ("gate", "up", "down")},
        "post_ffw_norm.weight": "layers.{}.post_feedforward_layernorm.weight"}),
}


def t5(gated: bool, biases: int) -> dict:
    """T5's encoder; `biases`: layers with biases of distances of their own."""
    block = "encoder.block.{}.layer."
    wi = {"gate": "wi_0", "up": "wi_1"} if gated else {"up": "wi"}
    table = of_layers(3, {
        "attn_norm.weight": f"{block}0.layer_norm.weight",
        **{f"attn_{m}.weight": f"{block}0.SelfAttention.{m}.weight" for m in "qkvo"},
        "ffn_norm.weight": f"{block}1.layer_norm.weight",
        **{f"ffn_{m}.weight": f"{block}1.DenseReluDense.{name}.weight" for m, name in {**wi, "down": "wo"}.items()}})
    table |= of_layers(biases, {"attn_rel_b.weight": f"{block}0.SelfAttention.relative_attention_bias.weight"})
    return {"token_embd.weight": "shared.weight", "enc.output_norm.weight": "encoder.final_layer_norm.weight",
            **{f"enc.{ours}": theirs for ours, theirs in table.items()}}


class Gate(torch.nn.Module):
    """GELU of the first half of a product times the second, in the place of BERT's first dense layer."""

    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(HIDDEN, 2 * FFN, bias=False)

    def forward(self, x):
        gate, up = self.dense(x).chunk(2, -1)
        return torch.nn.functional.gelu(gate) * up


def with_gates(model) -> None:
    for layer in model.encoder.layer:
        layer.intermediate = Gate()


def alibi(tokens: int) -> torch.Tensor:
    slopes = torch.tensor([2.0 ** (-8 * (head + 1) / HEADS) for head in range(HEADS)])
    at = torch.arange(tokens)
    return -(at[None, :] - at[:, None]).abs() * slopes[:, None, None]


class Experts(torch.nn.Module):
    """Of each token the best `CHOSEN` by a softmax over all, whose weights stay as they are."""

    def __init__(self):
        super().__init__()
        self.router = torch.nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.up = torch.nn.Parameter(torch.zeros(EXPERTS, FFN, HIDDEN))
        self.down = torch.nn.Parameter(torch.zeros(EXPERTS, HIDDEN, FFN))

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(CHOSEN, -1)
        up = torch.einsum("btkfh,bth->btkf", self.up[chosen], x)
        down = torch.einsum("btkhf,btkf->btkh", self.down[chosen], torch.nn.functional.gelu(up))
        return (down * weights[..., None]).sum(2)


def with_experts(model) -> None:
    for layer in model.layers[1::2]:
        layer.mlp = Experts()


JINA_2 = {
    **{k: v for k, v in BERT.items() if not k.startswith(("position_embd", "blk.")) or "ffn_up" not in k and "blk." in k},
    **of_layers(3, {"ffn_up.weight": f"{LAYER}intermediate.dense.weight"}),
}
NOMIC_2 = {
    **{k: v for k, v in JINA_3.items() if not k.startswith("blk.1.ffn_")},
    "blk.1.ffn_gate_inp.weight": "layers.1.mlp.router.weight",
    "blk.1.ffn_up_exps.weight": "layers.1.mlp.up", "blk.1.ffn_down_exps.weight": "layers.1.mlp.down",
}
COMMON = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_attention_heads=HEADS,
              max_position_embeddings=CONTEXT, pad_token_id=0, attn_implementation="eager")
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
ENCODERS = (
    Encoder("bert", "bert", "Bert", dict(layer_norm_eps=EPS, **NO_DROPOUT), BERT, {"pooling_type": 2}, pairs=True),
    Encoder("nomic_bert", "nomic-bert", "NomicBert",
            dict(layer_norm_eps=EPS, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}),
            NOMIC, {"rope.freq_base": 1000.0}, pairs=True),
    Encoder("jina_bert_v3", "jina-bert-v3", "JinaEmbeddingsV3",
            dict(layer_norm_eps=EPS, type_vocab_size=1, **NO_DROPOUT,
                 rope_parameters={"rope_type": "default", "rope_theta": 20000.0}),
            JINA_3, {"rope.freq_base": 20000.0}),
    Encoder("jina_bert_v2", "jina-bert-v2", "Bert", dict(layer_norm_eps=EPS, **NO_DROPOUT), JINA_2,
            change=with_gates, mask=alibi),
    Encoder("nomic_bert_moe", "nomic-bert-moe", "JinaEmbeddingsV3",
            dict(layer_norm_eps=EPS, type_vocab_size=1, **NO_DROPOUT,
                 rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
            NOMIC_2, {"rope.freq_base": 10000.0, "moe_every_n_layers": 2, "expert_count": EXPERTS,
                      "expert_used_count": CHOSEN}, change=with_experts),
    # Layers 0 and 3 see everything, 1 and 2 the eight tokens on either side.
    Encoder("modern_bert", "modern-bert", "ModernBert",
            dict(norm_eps=EPS, local_attention=16, rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
            MODERN, {"rope.freq_base": 160000.0, "rope.freq_base_swa": 10000.0,
                     "attention.sliding_window": 16}, layers=4),
    # All but the last layer see the eight tokens on either side.
    Encoder("gemma_embedding", "gemma-embedding", "Gemma3Text",
            dict(rms_norm_eps=EPS, num_key_value_heads=1, head_dim=32, query_pre_attn_scalar=32,
                 use_bidirectional_attention=True, sliding_window=16,
                 layer_types=["sliding_attention"] * 3 + ["full_attention"],
                 rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                  "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
            GEMMA, {"rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "attention.sliding_window": 16,
                    "attention.sliding_window_pattern": 4, "attention.head_count_kv": 1,
                    "attention.key_length": 32, "attention.value_length": 32},
            layers=4, rms=True, one_more=True),
    # Heads are narrower together than the stream. Layers share the biases of the first one.
    Encoder("t5_encoder", "t5encoder", "T5Encoder",
            dict(d_model=HIDDEN, d_kv=8, d_ff=FFN, num_layers=3, num_heads=HEADS, layer_norm_epsilon=EPS,
                 relative_attention_num_buckets=32, relative_attention_max_distance=128, feed_forward_proj="relu",
                 dropout_rate=0.0),
            t5(False, 1), {"attention.relative_buckets_count": 32, "attention.key_length": 8,
                           "attention.value_length": 8}, rms=True),
    # Layers have their own, of other buckets.
    Encoder("umt5_encoder", "t5encoder", "UMT5Encoder",
            dict(d_model=HIDDEN, d_kv=16, d_ff=FFN, num_layers=3, num_heads=HEADS, layer_norm_epsilon=EPS,
                 relative_attention_num_buckets=12, relative_attention_max_distance=128,
                 feed_forward_proj="gated-gelu", dropout_rate=0.0),
            t5(True, 3), {"attention.relative_buckets_count": 12, "attention.key_length": 16,
                          "attention.value_length": 16}, rms=True),
)


def build(spec: Encoder):
    config = getattr(transformers, spec.reference.removesuffix("Encoder") + "Config")(**{**COMMON, "num_hidden_layers": spec.layers, **spec.config})
    model_class = getattr(transformers, spec.reference + "Model")
    more = {"add_pooling_layer": False} if spec.reference in ("Bert", "NomicBert", "JinaEmbeddingsV3") else {}
    model = model_class(config, **more)
    if spec.change:
        spec.change(model)
    return model.float().eval()


def fill(spec: Encoder, model, seed: int) -> dict:
    """The file's tensors, with amplitude and offset, given to the model as well."""
    parameters, file = dict(model.named_parameters()), {}
    left = set(parameters)
    if spec.arch == "jina-bert-v2":
        left.remove("embeddings.position_embeddings.weight")
        parameters["embeddings.position_embeddings.weight"].data.zero_()
    for ours, theirs in spec.tensors.items():
        theirs = [theirs] if isinstance(theirs, str) else theirs
        shapes = [tuple(parameters[name].shape) for name in theirs]
        shape = (sum(s[0] for s in shapes), *shapes[0][1:])
        # Scores are not scaled, and biases of distances are as large as they.
        gains = {"attn_q": 1.0, "attn_k": 1.0, "attn_o": 3.0} if spec.arch == "t5encoder" else {}
        gains |= {"position_embd": 1.0, "token_types": 1.0, "bias": 0.2, "attn_rel_b": 2.0 * HEADS**0.5}
        spread = weights.spread(ours, shape, gains)
        data = weights.values(seed, ours, shape, *spread)
        file[ours] = (data, *spread)
        first = 0
        for name, s in zip(theirs, shapes):
            own = data[first:first + s[0]]
            first += s[0]
            minus = 1.0 if spec.one_more and ours.endswith("norm.weight") else 0.0
            parameters[name].data.copy_(torch.from_numpy(own - np.float32(minus)))
            left.discard(name)
    if left:
        raise SystemExit(f"{spec.name}: nobody fills {sorted(left)}")
    return file


def write(spec: Encoder, seed: int, file: dict, path: Path) -> None:
    w = gguf.GGUFWriter(str(path), spec.arch)
    w.add_name(f"golden {spec.name}")
    w.add_file_type(int(gguf.LlamaFileType.ALL_F32))
    w.add_vocab_size(VOCAB)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(HIDDEN)
    w.add_block_count(spec.layers)
    w.add_feed_forward_length(FFN)
    w.add_head_count(HEADS)
    if spec.arch != "t5encoder":  # whose files do not say it
        w.add_causal_attention(False)
    (w.add_layer_norm_rms_eps if spec.rms else w.add_layer_norm_eps)(EPS)
    for key, value in spec.keys.items():
        (w.add_float32 if isinstance(value, float) else w.add_uint32)(f"{spec.arch}.{key}", value)
    if "token_types.weight" in file:
        w.add_token_type_count(file["token_types.weight"][0].shape[0])
    w.add_tokenizer_model("no_vocab")
    w.add_uint64(weights.SEED, seed)
    w.add_array(weights.AMPLITUDE, [float(f[1]) for f in file.values()])
    w.add_array(weights.OFFSET, [float(f[2]) for f in file.values()])
    for name, (data, *_) in file.items():
        w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@torch.no_grad()
def make(spec: Encoder) -> None:
    folder = OUT / spec.name
    folder.mkdir(parents=True, exist_ok=True)
    model = build(spec)
    file = fill(spec, model, 1)
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "model.gguf"
        write(spec, 1, file, whole)
        header = whole.read_bytes()[: gguf.GGUFReader(str(whole)).data_offset]
    rng = np.random.default_rng(20240229)
    entries = []
    for n, second in [*((n, n) for n in LENGTHS), *([PAIR] if spec.pairs else [])]:
        tokens = rng.integers(0, VOCAB, n).tolist()
        more = {"attention_mask": spec.mask(n)[None]} if spec.mask else {}
        if second < n:
            more["token_type_ids"] = torch.tensor([[int(at >= second) for at in range(n)]])
        states = model(torch.tensor([tokens]), **more).last_hidden_state[0].numpy()
        # The same in float64: what single precision loses.
        more = {name: v.double() if v.is_floating_point() else v for name, v in more.items()}
        exact = model.double()(torch.tensor([tokens]), **more).last_hidden_state[0].numpy()
        model.float()
        error = float(np.abs(states - exact).max() / np.abs(exact).max())
        if error > 2e-5:
            raise SystemExit(f"{spec.name}: float32 and float64 disagree (error {error:.2e})")
        kept = list(range(n)) if n == ALL_POSITIONS else sorted({0, n // 3, n - 1})
        rows = [[float(str(v)) for v in states[at]] for at in kept]
        # Tokens of the second type are numbered behind the vocabulary.
        tokens = [token + VOCAB * (at >= second) for at, token in enumerate(tokens)]
        entries.append({"tokens": tokens, "positions": kept, "hidden": rows})
    (folder / "header.gguf").write_bytes(header)
    body = ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries)
    (folder / "expected.json").write_text(f'{{"texts":[\n{body}\n]}}\n')
    print(f"{spec.name}: {len(file)} tensors, float32 error {error:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to make (default: all)")
    names = parser.parse_args().names
    unknown = set(names) - {s.name for s in ENCODERS}
    if unknown:
        parser.error(f"unknown model {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for spec in ENCODERS:
        if not names or spec.name in names:
            make(spec)


if __name__ == "__main__":
    main()
