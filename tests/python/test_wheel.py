"""What the wheel has: the command line, types, no more than it says."""

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import DEMO, ROOT, arclight

import arclight as package


def test_versions_agree():
    version = importlib.metadata.version("arclight")
    assert arclight("--version").split() == ["arclight", version] and package.__version__ == version
    text = (ROOT / "Cargo.toml").read_text()
    assert f'\nversion = "{version}"' in text


def test_the_command_line_has_its_exit_codes():
    program = [sys.executable, "-m", "arclight"]
    wrong = subprocess.run([*program, "run", "--nonsense"], capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr.startswith("error:")
    gone = subprocess.run([*program, "run", "/nowhere.gguf", "-p", "a"], capture_output=True, text=True)
    assert gone.returncode == 1 and "no such file" in gone.stderr
    # A reader that goes away ends it quietly.
    closed = subprocess.run(f"{sys.executable} -m arclight --help | true", shell=True, capture_output=True, text=True)
    assert closed.returncode == 0 and closed.stderr == ""


@pytest.mark.parametrize("args", [("serve", DEMO, "--port", "0"), ("run", DEMO, "-n", "2000", "--ignore-eos", "-p", "a", "-c", "2048")])
def test_ctrl_c_ends_the_command_line(args):
    program = [Path(sys.executable).parent / "arclight", *args]
    with subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as child:
        for line in child.stderr:
            if line.startswith(("serving", "loaded")):
                break
        time.sleep(0.05)
        os.kill(child.pid, signal.SIGINT)
        child.stderr.read()
        assert child.wait(20) in (0, 130)


def test_it_needs_nothing_of_the_environment():
    code = "import arclight; print(len(arclight.LLM().generate('a')[0].outputs))"
    done = subprocess.run([sys.executable, "-I", "-c", code], env={}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_types_are_told():
    folder = Path(package.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_native.pyi").exists()
    from arclight import _native

    stub = (folder / "_native.pyi").read_text()
    for kind in (_native.Engine, _native.Answers, _native.Response):
        for name in vars(kind):
            assert name.startswith("__") or f"def {name}(" in stub, name


def test_docstrings_have_examples_that_run():
    import doctest

    import arclight.compat.llama_cpp

    for module in (package, arclight.compat.llama_cpp):
        result = doctest.testmod(module)
        assert result.attempted > 0 and result.failed == 0
    for name in package.__all__:
        assert name == "__version__" or getattr(package, name).__doc__, name
