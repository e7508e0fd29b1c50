#!/usr/bin/env python3
"""Makes the tokenizer fixtures of crates/tokenizer/tests/data. See README.md."""

import argparse
import io
import json
from pathlib import Path

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import texts
from reference import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from reference import Reference, case, write_cases, write_gguf

DATA = Path(__file__).resolve().parents[2] / "crates/tokenizer/tests/data"

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
HF = f"tokenizers {tokenizers.__version__} (Python)"
SP = f"sentencepiece {sentencepiece.__version__} (Python)"


def byte_level_cases(ref: Reference, strings: list[str]) -> list[dict]:
    cases = []
    for text in strings:
        parsed = ref.encode(text, True)
        cases.append(case(text, ref.encode(text, False), parsed, ref.decode(parsed)))
    return cases


def qwen3(path: Path, out: Path):
    """The real tokenizer, cut down to what the vectors need."""
    full = Reference.load(path)
    user = [t for t in full.added(special=False) if "think" in t]
    strings = texts.TEXTS + texts.specials(["<|im_start|>", "<|im_end|>"], user)
    ref, renumber = full.pruned(strings)
    for text in strings:
        for parse in (False, True):
            assert ref.encode(text, parse) == [renumber[i] for i in full.encode(text, parse)], text
    ids = {t: i for i, (t, _) in enumerate(ref.tokens())}
    ref.write_gguf(
        out / "qwen3.gguf",
        "qwen2",
        eos_token_id=ids["<|im_end|>"],
        padding_token_id=ids["<|endoftext|>"],
        bos_token_id=ids["<|endoftext|>"],
        add_bos_token=False,
        chat_template=(out / "qwen3.jinja").read_text(),
    )
    source = f"{HF}; Qwen3 tokenizer cut down to the tokens that these texts pass through"
    write_cases(out / "qwen3.json", source, byte_level_cases(ref, strings))


def llama_bpe(out: Path):
    """A small vocabulary of our own with Llama 3's rules."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts.TRAINING * 2 + texts.TEXTS, trainer)
    data = json.loads(tokenizer.to_str())
    # Whole words that no merge leads to: they are found only if the word is looked up first.
    for word in ["Ġquixotic", "!!!!!!!", "zyx"]:
        assert word not in data["model"]["vocab"]
        data["model"]["vocab"][word] = len(data["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(data))
    control = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
               "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("<tool>", "</tool>")])
    ref = Reference(json.loads(tokenizer.to_str()))
    ids = {t: i for i, (t, _) in enumerate(ref.tokens())}
    strings = texts.TEXTS + texts.specials(["<|start_header_id|>", "<|eot_id|>"], ref.added(False))
    strings += ["so quixotic", "quixotic quixotics", "!!!!!!! !!!!!!!!", "zyx zyxw"]
    ref.write_gguf(
        out / "llama-bpe.gguf",
        "llama-bpe",
        bos_token_id=ids["<|begin_of_text|>"],
        eos_token_id=ids["<|eot_id|>"],
        chat_template=(out / "tools.jinja").read_text(),
    )
    source = f"{HF}; a vocabulary trained on the texts of tools/tokenizer-vectors"
    write_cases(out / "llama-bpe.json", source, byte_level_cases(ref, strings))


def spm(out: Path):
    """A small SentencePiece BPE model of our own with Llama 2's rules."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for t in texts.TRAINING + texts.TEXTS for line in t.split("\n")),
        model_writer=model,
        model_type="bpe",
        vocab_size=2300,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        add_dummy_prefix=True,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        user_defined_symbols=["<tool>", "</tool>", "▁▁▁▁"],
        num_threads=1,
        minloglevel=2,
    )
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    kinds = [
        UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else BYTE if sp.is_byte(i)
        else USER_DEFINED if sp.id_to_piece(i) in ("<tool>", "</tool>", "▁▁▁▁") else NORMAL
        for i in range(len(sp))
    ]
    tokens = [(sp.id_to_piece(i), kinds[i]) for i in range(len(sp))]
    scores = [sp.get_score(i) for i in range(len(sp))]
    write_gguf(out / "spm.gguf", "llama", tokens, scores=scores, bos_token_id=1, eos_token_id=2,
               unknown_token_id=0, add_bos_token=True, add_eos_token=False)
    strings = texts.TEXTS + ["<0x41> <0x0A>", "▁ escaped ▁▁ already"]
    strings += texts.specials(["<s>", "</s>"], ["<tool>", "</tool>"])

    def parsed(text: str) -> list[int]:
        # SentencePiece does not parse control tokens: every piece between them is a text.
        for token in ("<unk>", "<s>", "</s>"):
            before, found, after = text.partition(token)
            if found:
                return parsed(before) + [sp.piece_to_id(token)] + parsed(after)
        return sp.encode(text) if text else []

    cases = []
    for text in strings:
        ids = parsed(text)
        cases.append(case(text, sp.encode(text), ids, sp.decode(ids)))
    source = f"{SP}; a model trained on the texts of tools/tokenizer-vectors"
    write_cases(out / "spm.json", source, cases)


def full(directory: Path, out: Path):
    """Vectors over whole vocabularies, for a check by hand."""
    out.mkdir(parents=True, exist_ok=True)
    everything = ["".join(f"x{chr(c)}" for c in range(start, start + 64))
                  for start in [*range(0, 0xD800, 64), *range(0xE000, 0x33480, 64),
                                *range(0xE0000, 0xE0200, 64)]]
    for name, pre, special in [
        ("qwen3", "qwen2", ["<|im_start|>", "<|im_end|>"]),
        ("llama3_2", "llama-bpe", ["<|start_header_id|>", "<|eot_id|>"]),
    ]:
        ref = Reference.load(directory / name / "package/models/tokenizer.json")
        user = (ref.added(False) or ref.added(True))[-2:]
        strings = texts.TEXTS + texts.specials(special, user) + everything
        ids = {t: i for i, (t, _) in enumerate(ref.tokens())}
        bos = ids.get("<|begin_of_text|>", ids.get("<|endoftext|>"))
        ref.write_gguf(out / f"{name}.gguf", pre, bos_token_id=bos, eos_token_id=ids[special[1]])
        write_cases(out / f"{name}.json", HF, byte_level_cases(ref, strings))
    llama2 = json.loads((directory / "llama2/package/models/tokenizer.json").read_text())
    # The reference adds a space to every piece between special tokens, as its Rust twin does.
    ref = Tokenizer.from_str(json.dumps(llama2))
    vocab = sorted((i, t) for t, i in llama2["model"]["vocab"].items())
    kinds = {0: UNKNOWN, 1: CONTROL, 2: CONTROL} | {i: BYTE for i in range(3, 259)}
    # The file has no scores, but its merges are in their order.
    ranks = {}
    for merge in llama2["model"]["merges"]:
        ranks.setdefault(merge.replace(" ", ""), -float(len(ranks)))
    scores = [ranks.get(t, -1e9) for _, t in vocab]
    write_gguf(out / "llama2.gguf", "llama", [(t, kinds.get(i, NORMAL)) for i, t in vocab],
               scores=scores, bos_token_id=1, eos_token_id=2, unknown_token_id=0)
    cases = []
    for text in texts.TEXTS + everything:
        ids = ref.encode(text, add_special_tokens=False).ids if text else []
        cases.append(case(text, ids, ids, ref.decode(ids, skip_special_tokens=True)))
    write_cases(out / "llama2.json", HF, cases)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qwen3", type=Path, help="tokenizer.json of Qwen3: makes qwen3.gguf too")
    parser.add_argument("--full", type=Path, nargs=2, metavar=("PACKAGES", "OUT"),
                        help="make vectors over whole vocabularies instead")
    args = parser.parse_args()
    if args.full:
        return full(*args.full)
    DATA.mkdir(parents=True, exist_ok=True)
    if args.qwen3:
        qwen3(args.qwen3, DATA)
    llama_bpe(DATA)
    spm(DATA)


if __name__ == "__main__":
    main()
