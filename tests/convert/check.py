"""Folders of every family, converted by `arclight` and by llama.cpp's converter, and compared byte for byte.
`run` installs what this needs.

    check.py ARCLIGHT LLAMA_CPP WORK [NAME ...]
"""

import os
import subprocess
import sys
from pathlib import Path

import bitnet
import checkpoints
import compare
import imatrix
import quantised
import seeing
import vectors
import written

HERE = Path(__file__).resolve().parent
# What is otherwise, and why. docs/converting.md lists it.
KNOWN = {
    # The exponential function of two libraries.
    "*": ["ulp:blk.0.ssm_a", "ulp:blk.1.ssm_a", "ulp:blk.2.ssm_a", "ulp:blk.3.ssm_a"],
    # Theirs is the width of dense layers over the number of KV heads, which is the same for published models.
    # It forgets to say.
    "gptneox": ["general.file_type"],
    "gptneox_serial": ["general.file_type"],
    # Theirs takes the width where the key has another name.
    "chatglm": ["chatglm.context_length"],
    "mpt": ["general.file_type"],
    # Theirs does not say that it ranks.
    "xlm_r_ranks": ["bert.pooling_type"],
    "modern_ranks": ["modern-bert.pooling_type"],
    "roberta_ranks": ["bert.pooling_type"],
    # Theirs has the key of LayerNorm alone, though the model has RMSNorm.
    "exaone3": ["exaone.attention.layer_norm_rms_epsilon"],
    # A filter of theirs drops what it is made of.
    "mmproj-pixtral": ["v.token_embd.img_break"],
    "mmproj-mistral3_images": ["v.token_embd.img_break"],
    # Theirs does not say what folders have other than published models.
    "mistral": ["llama.attention.sliding_window"],
    "starcoder2": ["starcoder2.attention.sliding_window"],
    "deepseek_v3": ["deepseek2.expert_gating_func"],
    "llama4": ["llama4.attention.sliding_window", "llama4.attention.temperature_length", "llama4.attention.temperature_scale"],
    "embedding_gemma": ["gemma-embedding.attention.scale"],
    "gemma3_images": ["gemma3.attention.scale", "gemma3.attention.sliding_window_pattern"],
    # Theirs ignores a factor that is stated.
    "phi3_long": ["phi3.rope.scaling.attn_factor"],
    "phimoe": ["phimoe.rope.scaling.attn_factor"],
    "ernie4_5_moe": ["ernie4_5-moe.expert_shared_feed_forward_length"],
}
# A type of our own, of the same file as theirs: what `quantize` makes of it.
QUANTISED = ("llama3_tied", "qwen3moe")


def run(*args: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(args, capture_output=True, text=True, env={**os.environ, **env})


def one(arclight: str, converter: str, folder: Path, pre: str, kind: str | None) -> list[str]:
    """Differences of a folder's two files."""
    theirs, ours = folder.with_suffix(".theirs.gguf"), folder.with_suffix(".gguf")
    made = run(sys.executable, str(HERE / "reference.py"), converter, str(folder), str(theirs), kind or "auto", pre)
    if made.returncode:
        return [f"the reference fails: {made.stderr[-500:]}"]
    made = run(arclight, "convert", str(folder), "-o", str(ours), *(["--type", kind] if kind else []))
    if made.returncode:
        return [f"arclight fails: {made.stderr.strip()}"]
    known = KNOWN["*"] + KNOWN.get(folder.name, [])
    return compare.unknown(compare.differences(str(theirs), str(ours)), known)


def encoder(arclight: str, converter: str, folder: Path, pre: str, kind: str | None) -> list[str]:
    """Differences of the two files of an image encoder; of the same folder `one` has made the language model's."""
    theirs, ours = folder.with_suffix(".theirs.mmproj.gguf"), folder.with_name(f"mmproj-{folder.name}.gguf")
    made = run(sys.executable, str(HERE / "reference.py"), converter, str(folder), str(theirs), kind or "auto", pre, "--mmproj")
    if made.returncode:
        return [f"the reference fails: {made.stderr[-500:]}"]
    if not ours.exists():
        return ["arclight made no file"]
    return compare.unknown(compare.differences(str(theirs), str(ours)), KNOWN.get(ours.stem, []))


def in_one_step(arclight: str, folder: Path) -> list[str]:
    """`convert --type` is `convert` and `quantize`."""
    whole, steps = folder.with_suffix(".q4.gguf"), folder.with_suffix(".steps.gguf")
    for args in (["convert", str(folder), "-o", str(whole), "--type", "q4_k_m"],
                 ["quantize", str(folder.with_suffix(".gguf")), str(steps), "--type", "q4_k_m"]):
        made = run(arclight, *args)
        if made.returncode:
            return [f"arclight {args[0]} fails: {made.stderr.strip()}"]
    return compare.differences(str(steps), str(whole))


def main() -> None:
    arclight, converter, work, *names = sys.argv[1:]
    work = Path(work)
    specs = {spec.name: spec for spec in checkpoints.models()}
    wrong, pres = [], {}

    def tell(name: str, found: list[str]) -> None:
        print(f"convert: {name}" + (f": {len(found)} differences" if found else ""), flush=True)
        for difference in found[:10]:
            print(f"    {difference}")
        if found:
            wrong.append(name)

    for name, spec in specs.items():
        needed = [of for of, (plain, *_) in quantised.FORMS.items() if plain == name]
        if names and name not in names and not set(needed) & set(names):
            continue
        pres[name] = checkpoints.build(spec, work / name)
        kind = "f32" if name in checkpoints.SINGLE else None
        tell(name, one(arclight, converter, work / name, pres[name], kind))
        if name in QUANTISED:
            tell(f"{name} in one step", in_one_step(arclight, work / name))
        for form in needed:
            quantised.build(form, work / name, work / form)
            tell(f"{form} ({name})", one(arclight, converter, work / form, pres[name], kind))
    for name in checkpoints.MORE:
        if not names or name in names:
            pre = checkpoints.build_more(name, work / name)
            tell(name, one(arclight, converter, work / name, pre, None))
            if name.startswith("t5_"):
                tell(f"{name} (vectors)", vectors.differences(arclight, run, work / name, work))
    for name in seeing.MODELS:
        if not names or name in names:
            # Some types of matrices depend on the file's.
            for kind in (None, "f16"):
                pre = seeing.build(name, work / name)
                tell(f"{name} {kind or 'as stored'}", one(arclight, converter, work / name, pre, kind))
                tell(f"{name} {kind or 'as stored'}, encoder", encoder(arclight, converter, work / name, pre, kind))
    for name in written.WRITTEN:
        if not names or name in names:
            pre = written.build(name, work / name)
            tell(name, one(arclight, converter, work / name, pre, None))
    for form in bitnet.FORMS:
        if not names or form in names:
            tell(f"{form} (transformers)", bitnet.differences(arclight, run, form, work))
    if not names or "imatrix" in names:
        tell("imatrix (gguf, transformers)", imatrix.differences(arclight, run, work))
    sys.exit(f"convert: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
