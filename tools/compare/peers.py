"""Gets the peers: llama.cpp and OpenVINO from their packages, pinned and checked; a fork that
somebody has built; and Arclight itself.

llama.cpp comes in the source package of its Python bindings, which carries it whole. pip fetches
it and refuses a file of another hash. Nothing is installed outside the work folder.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

from engines import IK, Arclight, LlamaBench, OpenVino

LLAMA_PACKAGE = "llama-cpp-python"
LLAMA_VERSION = "0.3.36"
LLAMA_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
OPENVINO_VERSION = "2026.4.1.0"
TARGETS = ["llama-bench", "llama-batched-bench"]
CMAKE_OPTIONS = [
    "CMAKE_BUILD_TYPE=Release", "GGML_NATIVE=ON", "LLAMA_BUILD_TESTS=OFF",
    "LLAMA_BUILD_EXAMPLES=OFF", "LLAMA_BUILD_SERVER=OFF", "LLAMA_BUILD_APP=OFF",
    "LLAMA_BUILD_UI=OFF", "LLAMA_USE_PREBUILT_UI=OFF", "LLAMA_OPENSSL=OFF",
]
# The last of an option counts.
HELD_TO = {"avx2": ["GGML_NATIVE=OFF", "GGML_AVX2=ON", "GGML_FMA=ON", "GGML_F16C=ON", "GGML_BMI2=ON"]}

ROOT = Path(__file__).resolve().parents[2]


class PeerError(Exception):
    """A peer cannot be had; says which and why."""


def call(command: list[str], **options) -> str:
    """Output of a command that must succeed; its errors go to the terminal."""
    try:
        done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options)
    except FileNotFoundError as e:
        raise PeerError(f"{command[0]} is not installed") from e
    except subprocess.CalledProcessError as e:
        sys.stderr.write(e.stdout or "")
        raise PeerError(f"{Path(command[0]).name} failed: {' '.join(command)}") from e
    return done.stdout


def arclight(binary: Path | None) -> Arclight:
    """The given program, or one built from this tree."""
    commit = ", a program that was given"
    if binary is None:
        call(["cargo", "build", "--release", "--package", "arclight"], cwd=ROOT)
        target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
        binary = ROOT / target / "release" / "arclight"
        commit = f", commit {git(ROOT) or 'unknown'}"
    return Arclight(executable(binary), call([str(binary), "--version"]).strip() + commit)


def git(folder: Path) -> str | None:
    """Commit and date of a folder's files, where git knows them."""
    def ask(*words: str) -> str | None:
        done = subprocess.run(["git", "--no-optional-locks", "-C", str(folder), *words],
                              text=True, capture_output=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    if ask("ls-files", "--error-unmatch", ".") is None:
        return None
    commit = ask("log", "-1", "--format=%h of %cs")
    changed = ask("status", "--porcelain", "--untracked-files=no")
    return f"{commit}{' with changes' if changed else ''}"


def executable(path: Path) -> Path:
    if not os.access(path, os.X_OK) or not path.is_file():
        raise PeerError(f"no program {path}")
    return path.resolve()


def binaries(folder: Path) -> Path:
    """Where llama-bench is in a build folder, or in a source folder with `build` in it."""
    for place in (folder, folder / "bin", folder / "build" / "bin"):
        if (place / "llama-bench").is_file():
            return executable(place / "llama-bench").parent
    raise PeerError(f"no llama-bench in {folder}, its bin or its build/bin")


def held_to(isa: str | None) -> list[str]:
    """What goes before commands of engines that choose their instruction set by themselves."""
    return ["env", f"ARCLIGHT_ISA={isa}", f"ONEDNN_MAX_CPU_ISA={isa.upper()}"] if isa else []


def llama(folder: Path | None, work: Path, jobs: int, isa: str | None) -> LlamaBench:
    """llama.cpp from a build folder, or from its package."""
    if folder is None:
        built = build_llama(work, jobs, isa)
        return LlamaBench(built, f"source in {LLAMA_PACKAGE} {LLAMA_VERSION}")
    return LlamaBench(binaries(folder), built_from(folder))


def ik(folder: Path) -> list[LlamaBench]:
    """ik_llama.cpp as it is built, with and without repacking at load."""
    place, version = binaries(folder), built_from(folder)
    if not (place / "llama-batched-bench").exists():
        print("ik_llama.cpp: no llama-batched-bench: no figures of several sequences",
              file=sys.stderr)
    return [
        LlamaBench(place, version, IK),
        LlamaBench(place, version, IK, ["-rtr", "1"], ["-rtr"]),
    ]


def built_from(folder: Path) -> str:
    """What a CMake build was made of: the package that its source came in, or its commit."""
    places = (folder, folder.parent, folder / "build")
    cache = next((p / "CMakeCache.txt" for p in places if (p / "CMakeCache.txt").is_file()), None)
    if cache is None:
        return "of unknown version"
    lines = cache.read_text(errors="replace").splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    source = Path(values.get("CMAKE_HOME_DIRECTORY:INTERNAL", "/nonexistent"))
    for part in source.parts:
        if part.startswith(("llama_cpp_python-", "llama-cpp-python-")):
            return f"source in {LLAMA_PACKAGE} {part.rsplit('-', 1)[1]}"
    return f"commit {git(source) or 'unknown'}"


def build_llama(work: Path, jobs: int, isa: str | None) -> Path:
    """Downloads, checks and builds once; the folder of the programs."""
    source = work / f"llama-cpp-python-{LLAMA_VERSION}"
    build = source / (f"build-{isa}" if isa else "build")
    if not all((build / "bin" / target).exists() for target in TARGETS):
        if not source.exists():
            unpack_llama(work, source)
        cmake, generator = cmake_command(work)
        options = [f"-D{option}" for option in CMAKE_OPTIONS + (HELD_TO[isa] if isa else [])]
        call([cmake, "-S", str(source / "llama.cpp"), "-B", str(build), *generator, *options])
        call([cmake, "--build", str(build), "-j", str(jobs), "--target", *TARGETS])
    return binaries(build)


def build_server(work: Path, jobs: int) -> None:
    """llama-server beside the programs of `build_llama`, without its page: for who measures servers."""
    source = work / f"llama-cpp-python-{LLAMA_VERSION}"
    build = source / "build"
    if not (build / "bin" / "llama-server").exists():
        cmake, _ = cmake_command(work)
        call([cmake, "-S", str(source / "llama.cpp"), "-B", str(build), "-DLLAMA_BUILD_SERVER=ON"])
        call([cmake, "--build", str(build), "-j", str(jobs), "--target", "llama-server"])


def unpack_llama(work: Path, source: Path) -> None:
    pinned = work / "llama-cpp-python.txt"
    pinned.write_text(f"{LLAMA_PACKAGE}=={LLAMA_VERSION} --hash=sha256:{LLAMA_SHA256}\n")
    call([sys.executable, "-m", "pip", "download", "--no-binary", LLAMA_PACKAGE, "--no-deps",
          "--require-hashes", "--dest", str(work), "--requirement", str(pinned)])
    name = f"llama_cpp_python-{LLAMA_VERSION}"
    inside = f"{name}/vendor/llama.cpp/"
    half = source.with_suffix(".part")
    shutil.rmtree(half, ignore_errors=True)
    with tarfile.open(work / f"{name}.tar.gz") as package:
        members = [m for m in package.getmembers() if m.name.startswith(inside)]
        if not members:
            raise PeerError(f"no llama.cpp in {name}.tar.gz")
        package.extractall(half, members, filter="data")
    (half / inside).rename(half / "llama.cpp")
    half.rename(source)


def cmake_command(work: Path) -> tuple[str, list[str]]:
    """CMake of the system, or one from its package."""
    if found := shutil.which("cmake"):
        return found, ["-G", "Ninja"] if shutil.which("ninja") else []
    python = environment(work / "cmake", ["cmake", "ninja"])
    here = python.parent
    return str(here / "cmake"), ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={here / 'ninja'}"]


def environment(folder: Path, packages: list[str]) -> Path:
    """The Python of a virtual environment with some packages."""
    python = folder / "bin" / "python"
    done = folder / "complete"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        call([str(python), "-m", "pip", "install", "--quiet", *packages])
        done.touch()
    return python


def openvino(python: Path | None, work: Path) -> list[OpenVino]:
    """OpenVINO GenAI in an environment of its own, with both of its ways to run a model."""
    if python is None:
        python = environment(work / f"openvino-{OPENVINO_VERSION}",
                             [f"openvino-genai=={OPENVINO_VERSION}"])
    version = call([str(python), "-c", "import openvino_genai as g; print(g.__version__)"])
    return [OpenVino(python, version.strip(), backend) for backend in ("PA", "SDPA")]
