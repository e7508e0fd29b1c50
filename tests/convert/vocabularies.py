"""Small vocabularies of every kind, in the files that folders on the Hub have."""

import io
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = Path(__file__).resolve().parents[2] / "demo" / "heldout.txt"
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    "qwen2": (CONTRACTIONS + WORDS % "", dict(nfc=True)),
    "llama-bpe": (CONTRACTIONS + WORDS % "{1,3}", dict(whole=True, bos=True)),
    "glm4": (CONTRACTIONS + WORDS % "{1,3}", dict(whole=True)),
    "gpt-2": (None, {}),
}
GLM = ["<|endoftext|>", "[gMASK]", "<|user|>", "<|observation|>"]


def lines() -> list[str]:
    return TEXT.read_text(encoding="utf-8").splitlines()[:400]


def write(folder: Path, name: str, value) -> None:
    (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=2), encoding="utf-8")


def config(folder: Path, **more) -> None:
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "unk_token": "<unk>", "pad_token": {
            "__type": "AddedToken", "content": "<pad>", "lstrip": False, "normalized": False,
            "rstrip": False, "single_word": False, "special": True},
        "chat_template": TEMPLATE, "model_max_length": 1024, **more})


def byte_level(folder: Path, scheme: str) -> str:
    """BPE over bytes; gives the name of its way to cut text."""
    pattern, rules = SPLITS[scheme]
    tokenizer = Tokenizer(models.BPE(ignore_merges=rules.get("whole", False)))
    if rules.get("nfc"):
        tokenizer.normalizer = normalizers.NFC()
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    tokenizer.pre_tokenizer = level if pattern is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), level])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<unk>", "<s>", "</s>", "<pad>", *GLM]
    tokenizer.train_from_iterator(lines(), trainers.BpeTrainer(
        vocab_size=440, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("<|tool|>", normalized=False),
                          AddedToken("two words", normalized=True), AddedToken(" ▁x", normalized=False)])
    if rules.get("bos"):
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    tokenizer.save(str(folder / "tokenizer.json"))
    config(folder)
    return scheme


def sentencepiece(folder: Path, json_too: bool = True, **more) -> str:
    """`tokenizer.model` as Llama 2 has it, with added tokens in the two places where they are told."""
    import sentencepiece as spm

    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()), model_writer=model, vocab_size=400, model_type="bpe",
        byte_fallback=True, user_defined_symbols=["  ", "<mask>"], control_symbols=["<ctl>"],
        minloglevel=2, pad_id=3, num_threads=1)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    write(folder, "added_tokens.json", {"<extra>": 400, "<|over|>": 9999})
    config(folder, **{"tokenizer_class": "LlamaTokenizer", **more}, added_tokens_decoder={
        "1": {"content": "<s>", "special": True},
        "401": {"content": "<|turn|>", "special": False},
        "402": {"content": "a▁b", "special": False},
        "403": {"content": "<image>", "special": True}})
    return "default"


def merges_with_bytes(folder: Path) -> str:
    """`tokenizer.json` alone with the rules of SentencePiece, as Gemma 4 has it."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<pad>", "</s>", "<s>", "<unk>", *[f"<0x{b:02X}>" for b in range(256)]]
    tokenizer.train_from_iterator(lines(), trainers.BpeTrainer(
        vocab_size=510, special_tokens=special, show_progress=False))
    saved = json.loads(tokenizer.to_str())
    saved["added_tokens"] = [t for t in saved["added_tokens"] if not t["content"].startswith("<0x")]
    (folder / "tokenizer.json").write_text(json.dumps(saved, ensure_ascii=False), encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("<|channel>", normalized=False), AddedToken("<turn>", normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config(folder)
    return "default"
