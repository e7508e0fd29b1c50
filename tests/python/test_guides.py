"""The guide's examples and the notebook run."""

import re
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest
from conftest import DEMO, ROOT, peft


def blocks() -> list[tuple[int, str]]:
    text = (ROOT / "docs/python.md").read_text()
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start()].count("\n") + 1, match.group(1)) for match in found]


def test_the_guides_examples_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    shutil.copy(DEMO, tmp_path / "model.gguf")
    shutil.copy(ROOT / "demo/heldout.txt", tmp_path / "text.txt")
    peft(tmp_path / "sql", 1)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "guide"}
    assert len(blocks()) > 8
    for line, code in blocks():
        try:
            exec(compile(code, f"docs/python.md:{line}", "exec"), names)
        except Exception as e:
            raise AssertionError(f"docs/python.md:{line}: {type(e).__name__}: {e}\n{code}") from e
    assert capsys.readouterr().out


def test_the_notebook_runs_and_draws_the_machine() -> None:
    notebook = nbformat.read(ROOT / "python/examples/tour.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    said = "".join(output.get("text", "") for output in outputs)
    assert "tokens/s together" in said and "Once upon a time there were 2 ducks" in said
