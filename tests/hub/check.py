"""What one program has put into the cache, the other finds. `run` starts the fake hub and this."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from huggingface_hub import hf_hub_download, scan_cache_dir

REPO = "Qwen/Qwen3-0.6B-GGUF"
FILE = "Qwen3-0.6B-Q8_0.gguf"
WANT = Path("demo/arclight-demo.gguf").read_bytes()


def arclight(cache, *args):
    ran = subprocess.run(
        [os.environ["ARCLIGHT"], *args],
        env={**os.environ, "HF_HUB_CACHE": str(cache)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, (args, ran.stderr)
    return ran


def python_first(cache):
    path = hf_hub_download(REPO, FILE, cache_dir=cache)
    hf_hub_download(REPO, "config.json", cache_dir=cache)
    assert Path(path).read_bytes() == WANT
    ran = arclight(cache, "run", "qwen3:0.6b", "-p", "Once", "-n", "3", "--offline")
    assert "fetch" not in ran.stderr, ran.stderr
    pulled = arclight(cache, "pull", REPO)
    assert pulled.stdout.strip() == path, (pulled.stdout, path)
    assert "are here" in pulled.stderr, pulled.stderr
    listed = arclight(cache, "list").stdout
    assert f"{REPO}:Q8_0" in listed, listed
    # What others have put there stays.
    arclight(cache, "rm", "qwen3:0.6b", "--yes")
    assert not Path(path).exists()
    [repo] = scan_cache_dir(cache).repos
    [revision] = repo.revisions
    assert [file.file_name for file in revision.files] == ["config.json"]


def arclight_first(cache):
    path = arclight(cache, "pull", "qwen3:0.6b").stdout.strip()
    assert hf_hub_download(REPO, FILE, cache_dir=cache, local_files_only=True) == path
    before = os.stat(path)
    # Asked of the site, it is still not fetched again.
    assert hf_hub_download(REPO, FILE, cache_dir=cache) == path
    assert os.stat(path) == before or os.stat(path).st_mtime == before.st_mtime
    info = scan_cache_dir(cache)
    assert not info.warnings, info.warnings
    [repo] = info.repos
    [revision] = repo.revisions
    assert repo.repo_id == REPO and revision.refs == {"main"}
    [file] = revision.files
    assert file.file_name == FILE and file.size_on_disk == len(WANT)


def unfinished(cache):
    """Another's tools take what is half here for what it is, and an older one's beginning is gone on with."""
    path = Path(arclight(cache, "pull", REPO).stdout.strip())
    blob = path.resolve()
    path.unlink()
    blob.unlink()
    half = blob.with_name(blob.name + ".incomplete")
    half.write_bytes(WANT[: 2 << 20])
    ran = arclight(cache, "pull", REPO)
    assert "going on with" in ran.stderr, ran.stderr
    assert path.read_bytes() == WANT and not half.exists()
    for end in (".arclight.incomplete", ".blockmap.incomplete"):
        blob.with_name(blob.name + end).write_bytes(b"x")
    info = scan_cache_dir(cache)
    assert not info.warnings and len(info.incomplete_files) == 2, info


for check in (python_first, arclight_first, unfinished):
    cache = Path(tempfile.mkdtemp(dir=os.environ["HOME"]))
    check(cache)
    shutil.rmtree(cache)
    print(f"hub: {check.__name__}")
