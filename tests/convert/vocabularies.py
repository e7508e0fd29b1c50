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
    "olmo": (None, dict(nfc=True)),
    "chatglm-bpe": (CONTRACTIONS + WORDS % "{1,3}", {}),
    "digits": (None, dict(digits=True)),
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


def byte_level(folder: Path, scheme: str, pairs: bool = False) -> str:
    """BPE over bytes; gives the name of its way to cut text."""
    pattern, rules = SPLITS[scheme]
    tokenizer = Tokenizer(models.BPE(ignore_merges=rules.get("whole", False)))
    if rules.get("nfc"):
        tokenizer.normalizer = normalizers.NFC()
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    tokenizer.pre_tokenizer = level if pattern is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), level])
    if rules.get("digits"):
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level])
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
    if pairs:
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), add_prefix_space=False)
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


def chatglm3(folder: Path) -> str:
    """`tokenizer.model` as ChatGLM 3 has it, whose code gives further tokens their texts; fewer than the model's."""
    import sentencepiece as spm

    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()), model_writer=model, vocab_size=400, model_type="bpe", byte_fallback=True,
        minloglevel=2, num_threads=1)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    write(folder, "tokenizer_config.json", {"tokenizer_class": "ChatGLMTokenizer", "remove_space": False, "do_lower_case": False})
    return "chatglm-spm"


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


def internlm(folder: Path) -> str:
    """`tokenizer.model` with added tokens over some of its own."""
    import sentencepiece as spm

    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()), model_writer=model, vocab_size=400, model_type="bpe", byte_fallback=True,
        user_defined_symbols=["[UNUSED_TOKEN_1]", "[UNUSED_TOKEN_2]"], add_dummy_prefix=False, minloglevel=2,
        pad_id=-1, num_threads=1)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    config(folder, tokenizer_class="InternLM2Tokenizer", added_tokens_decoder={
        "1": {"content": "<s>", "special": True}, "2": {"content": "</s>", "special": True},
        "3": {"content": "<|im_end|>", "special": True}, "4": {"content": "a▁b", "special": False}})
    return "default"


def words(folder: Path, **more) -> str:
    """WordPiece, as BERT has it."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(lines(), trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))])
    tokenizer.save(str(folder / "tokenizer.json"))
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "BertTokenizer", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]",
        "pad_token": "[PAD]", "mask_token": "[MASK]", "do_lower_case": True, **more})
    return "default"


def t5(folder: Path) -> str:
    """Unigram as T5 has it: `spiece.model`, whose tokens are fewer than the model's."""
    import sentencepiece as spm

    file = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()), model_writer=file, vocab_size=490, model_type="unigram", pad_id=0, eos_id=1,
        unk_id=2, bos_id=-1, minloglevel=2, num_threads=1, normalization_rule_name="nmt_nfkc")
    (folder / "spiece.model").write_bytes(file.getvalue())
    write(folder, "added_tokens.json", {"<extra>": 491, "<|over|>": 9999})
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
        "extra_ids": 20, "model_max_length": 512})
    return "default"


def unigram(folder: Path, model: bool = True) -> str:
    """Unigram as XLM-R has it: `tokenizer.json`, and `sentencepiece.bpe.model` if asked for."""
    import base64

    import sentencepiece as spm
    from sentencepiece import sentencepiece_model_pb2 as pb

    file = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()), model_writer=file, vocab_size=490, model_type="unigram",
        minloglevel=2, num_threads=1, normalization_rule_name="nmt_nfkc")
    if model:
        (folder / "sentencepiece.bpe.model").write_bytes(file.getvalue())
    proto = pb.ModelProto()
    proto.ParseFromString(file.getvalue())
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocab += [(piece.piece, piece.score) for piece in proto.pieces[3:]] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=3))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<s>", "<pad>", "</s>", "<unk>")]
                                 + [AddedToken("<mask>", lstrip=True, normalized=False, special=True)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    whole = json.loads(tokenizer.to_str())
    table = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    whole["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": table}
    (folder / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "XLMRobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "mask_token": {
            "__type": "AddedToken", "content": "<mask>", "lstrip": True, "normalized": False, "rstrip": False,
            "single_word": False, "special": True},
        "clean_up_tokenization_spaces": True, "model_max_length": 128})
    return "default"
