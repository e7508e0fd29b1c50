"""A full disk, a read-only disk, and no file descriptors: for everything that writes."""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import threading
import time
from pathlib import Path

from kills import LINES, PROMPTS, Batch, answer, completion, lines
from writers import DEMO, FILES, MODEL, Impossible, ask, ready, tree, until

FULL = "No space left on device"
READ_ONLY = "Read-only file system"
NO_FILES = "Too many open files"
SERVED = [DEMO, "--ctx", "512", "--threads", "1"]


class Disk:
    """A small file system, which those see alone that are started behind `inside`."""

    def __init__(self, bench, mebibytes):
        self.folder = bench.folder / "disk"
        self.folder.mkdir(exist_ok=True)
        line = 'mount -t tmpfs -o size="$1"m tmpfs "$0" && echo mounted && exec sleep 100000'
        own = [] if os.geteuid() == 0 else ["-Ur"]
        command = ["unshare", *own, "-m", "sh", "-c", line, self.folder, str(mebibytes)]
        try:
            self.holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except FileNotFoundError as error:
            raise Impossible("there is no unshare") from error
        if self.holder.stdout.readline() != b"mounted\n":
            raise Impossible(f"no file systems of its own: {self.holder.stderr.read().decode().strip()}")
        user = ["-U", "--preserve-credentials"] if own else []
        self.inside = ["nsenter", *user, "-m", "-t", str(self.holder.pid)]
        # The same folder, seen from here.
        self.seen = Path(f"/proc/{self.holder.pid}/root{self.folder}")

    def free(self):
        about = os.statvfs(self.seen)
        return about.f_bavail * about.f_frsize

    def fill(self, left=0):
        """Takes all room but so many bytes, at once."""
        with open(self.seen / "filler", "ab", buffering=0) as filler:
            room = self.free() - left
            # Others may take some of it meanwhile.
            with contextlib.suppress(OSError):
                os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, room)
            for piece in () if left else (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while filler.write(bytes(piece)) == piece:
                        pass

    def empty(self):
        (self.seen / "filler").unlink(missing_ok=True)

    @contextlib.contextmanager
    def filled_when(self, there):
        """Fills it at the moment when something is there."""
        over = threading.Event()

        def wait():
            while not over.is_set():
                if there():
                    return self.fill()

        waiting = threading.Thread(target=wait)
        waiting.start()
        try:
            yield
        finally:
            over.set()
            waiting.join()

    def read_only(self):
        line = [*self.inside, "mount", "-o", "remount,ro", self.folder]
        subprocess.run(line, check=True, capture_output=True)

    def end(self):
        self.holder.kill()
        self.holder.wait()


@contextlib.contextmanager
def disk(bench, mebibytes):
    made = Disk(bench, mebibytes)
    try:
        yield made
    finally:
        made.end()


@contextlib.contextmanager
def served(bench, *options, before=(), name="crash-disk"):
    server = bench.serve(*SERVED, *options, before=before, name=name)
    try:
        assert ready(server), server.text()
        yield server
        assert server.alive(), f"the server has ended: {server.text()[-500:]}"
        assert "panicked" not in server.text(), f"the server has panicked ({server.log.name})"
    finally:
        server.kill()


def message(text):
    return json.loads(text)["error"]["message"]


def upload(port, tag="a", count=LINES):
    return ask(port, "/v1/files", form={"purpose": b"batch", "file": lines(tag, count)})


def save(port, name):
    return ask(port, "/slots/0?action=save", {"filename": name})


def full_commands(bench):
    """Programs that find the disk full, at once and in the middle."""
    env = bench.hub_environment(bench.folder / "disk" / "cache")
    output = bench.folder / "disk" / "model.gguf"
    calls = {
        "convert": (["convert", bench.checkpoint(), "-o", output], bench.environment()),
        "quantize": (["quantize", bench.floats(), output, "--type", "q8_0"], bench.environment()),
        "synth": (["synth", "qwen3-0.6b:q4_0", "-o", output], bench.environment()),
    }
    with disk(bench, 2) as small:
        bench.refused(["pull", MODEL], ["free", "needed", "cache"], env, small.inside)
        for name in ("convert", "quantize"):
            bench.refused(calls[name][0], ["model.gguf", "left"], calls[name][1], small.inside)
        bench.refused(calls["synth"][0], ["model.gguf", FULL], calls["synth"][1], small.inside)
        assert not list(small.seen.glob("model*")), "a file is left"
    with disk(bench, 60) as large:
        cache = large.seen / "cache"
        large.fill(left=sum(FILES.values()) + (1 << 20))
        with large.filled_when(lambda: list(cache.glob("models--*/blobs/*.arclight.incomplete"))):
            bench.refused(["pull", MODEL], ["cannot write", "cache", FULL], env, large.inside)
        assert not list(cache.glob("models--*/snapshots/*/*-00002-of-00002.gguf")), "half a model is there"
        large.empty()
        bench.succeeds(["pull", MODEL], env, large.inside)
        other = bench.folder / "other"
        bench.succeeds(["pull", MODEL], bench.hub_environment(other))
        assert tree(cache) == tree(other), "another cache after a full disk"
        shutil.rmtree(cache)
        shutil.rmtree(other)
        seen = large.seen / "model.gguf"
        for name in ("convert", "quantize"):
            command, env = calls[name]
            bench.succeeds(command, env, large.inside)
            want = seen.read_bytes()
            seen.write_bytes(b"old")
            large.fill(left=len(want) + (1 << 20))
            with large.filled_when((large.seen / "model.gguf.part").exists):
                bench.refused(command, ["model.gguf", FULL], env, large.inside)
            assert seen.read_bytes() == b"old" and not (large.seen / "model.gguf.part").exists()
            large.empty()
            bench.succeeds(command, env, large.inside)
            assert seen.read_bytes() == want, f"{name}: another file after a full disk"
            seen.unlink()
    return "pull, convert, quantize and synth say so and lose nothing"


def full_server(bench):
    """A server whose disk becomes full: prefixes, slots, files, batches."""
    with disk(bench, 8) as small:
        place = bench.folder / "disk"
        options = ["--cache-dir", place / "cache", "--slot-save-path", place / "slots", "--files-dir", place / "files"]
        with served(bench, *options, before=small.inside) as server:
            want = {prompt: answer(server.port, prompt) for prompt in PROMPTS}
            assert save(server.port, "kept.bin")[0] == 200
            kept = (small.seen / "slots/kept.bin").read_bytes()
            # So many lines that it takes a while.
            status, text = upload(server.port, count=16 * LINES)
            assert status == 200, text
            body = {"input_file_id": json.loads(text)["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
            small.fill()
            status, text = ask(server.port, "/v1/batches", body)
            assert status == 507 and FULL in message(text) and "--files-dir" in message(text), (status, text)
            status, text = upload(server.port, "b")
            assert status == 507 and FULL in message(text) and "--files-dir" in message(text), (status, text)
            status, text = save(server.port, "kept.bin")
            assert status == 507 and FULL in message(text) and "kept.bin" in message(text), (status, text)
            assert (small.seen / "slots/kept.bin").read_bytes() == kept, "the old slot is lost"
            left = [path.name for path in small.seen.rglob("*") if path.suffix in (".tmp", ".part")]
            assert not left, f"{left} are left"
            # New prompts have pages that find no room; answers are what they were.
            for at in range(4):
                assert ask(server.port, "/v1/completions", completion(f"{at} bears. " * 20))[0] == 200
            assert {prompt: answer(server.port, prompt) for prompt in PROMPTS} == want
            line = lambda: [one for one in server.text().splitlines() if "the prefix cache in" in one]
            assert FULL in until(line, "the log names the full disk")[0]
            # A batch begins with little room, and finds none in the middle.
            small.empty()
            status, text = ask(server.port, "/v1/batches", body)
            assert status == 200, text
            own = json.loads(text)["id"]
            state = lambda: json.loads(ask(server.port, f"/v1/batches/{own}")[1])
            until(lambda: state()["request_counts"]["completed"] > 2, "some lines are answered")
            small.fill()
            until(lambda: "the batch has failed" in server.text(), "the batch finds no room")
            assert ask(server.port, "/health")[0] == 200
            small.empty()
            ended = until(lambda: state() if state()["status"] == "failed" else None, "the batch has ended")
            assert ended["errors"]["data"][0]["code"] == "storage_failed", ended
            count = ended["request_counts"]["completed"]
            text = ask(server.port, f"/v1/files/{ended['output_file_id']}/content")[1]
            assert len(text.splitlines()) == count > 2, "what was answered is lost"
            again = Batch("c")
            assert again.go_on(server.port), server.text()
            assert save(server.port, "kept.bin")[0] == 200
    return f"507 for slots, files and batches; a batch ends with {count} answers"


def full(bench):
    return f"{full_commands(bench)}; {full_server(bench)}"


def readonly(bench):
    place = bench.folder / "disk"
    output = place / "model.gguf"
    env = bench.hub_environment(place / "cache")
    with disk(bench, 24) as small:
        (small.seen / "model.gguf").write_bytes(b"old")
        (small.seen / "slots").mkdir()
        with served(bench, "--slot-save-path", place / "slots", before=small.inside) as server:
            answer(server.port, PROMPTS[0])
            assert save(server.port, "kept.bin")[0] == 200
            small.read_only()
            status, text = save(server.port, "other.bin")
            assert status == 500 and READ_ONLY in message(text) and "other.bin" in message(text), (status, text)
            status, text = ask(server.port, "/slots/0?action=restore", {"filename": "kept.bin"})
            assert status == 200, text
        bench.refused(["pull", MODEL], ["cache", READ_ONLY], env, small.inside)
        for command in (
            ["convert", bench.checkpoint(), "-o", output],
            ["quantize", bench.floats(), output, "--type", "q8_0"],
            ["synth", "qwen3-0.6b:q4_0", "-o", output],
        ):
            bench.refused(command, ["model.gguf", READ_ONLY], bench.environment(), small.inside)
        for option in ("--cache-dir", "--files-dir"):
            folder = place / option.strip("-")
            bench.refused(["serve", *SERVED, option, folder], [str(folder), READ_ONLY], None, small.inside)
        names = {path.name for path in small.seen.iterdir()}
        assert names == {"model.gguf", "slots"} and (small.seen / "model.gguf").read_bytes() == b"old", names
    return "each writer names the file and the reason"


def descriptors(bench):
    output = bench.folder / "model.gguf"
    cache = bench.folder / "cache"
    env = bench.hub_environment(cache)
    want = {}
    calls = {
        "pull": (["pull", MODEL], env),
        "convert": (["convert", bench.checkpoint(), "-o", output], bench.environment()),
        "quantize": (["quantize", bench.floats(), output, "--type", "q8_0"], bench.environment()),
    }
    counts = []
    for name, (command, env) in calls.items():
        refused = 0
        for most in range(4, 40):
            code, text = bench.run(command, env, ["prlimit", f"--nofile={most}:{most}"])
            # With very few the program cannot begin at all.
            assert code in (0, 1, 127), f"{name} with {most} descriptors: exit code {code}: {text[-500:]}"
            if code == 0:
                break
            assert "panicked" not in text, text
            if code == 1:
                assert NO_FILES in text, f"{name} with {most} descriptors: {text[-500:]}"
                refused += 1
            assert not output.exists() and not list(bench.folder.glob("*.part")), f"{name} leaves something"
        assert code == 0, f"{name} never works: {text[-500:]}"
        counts.append(f"{name} needs {most} (refused {refused} times)")
        want[name] = tree(cache) if name == "pull" else output.read_bytes()
        shutil.rmtree(cache, ignore_errors=True)
        output.unlink(missing_ok=True)
        bench.succeeds(command, env)
        have = tree(cache) if name == "pull" else output.read_bytes()
        assert have == want[name], f"{name}: another result with few descriptors"
        output.unlink(missing_ok=True)
    options = ["--slot-save-path", bench.folder / "slots", "--files-dir", bench.folder / "files"]
    options += ["--cache-dir", bench.folder / "prefixes"]
    with served(bench, *options, name="crash-descriptors") as server:
        before = answer(server.port, PROMPTS[0])
        usual = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        asked = {"--files-dir": lambda: upload(server.port), "a.bin": lambda: save(server.port, "a.bin")}
        for named, ask_for in asked.items():
            seen = set()
            for spare in range(1, 12):
                resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (highest(server) + 1 + spare, usual[1]))
                status, text = ask_for()
                seen.add(status)
                if status == 200:
                    break
                # Without one for a connection more, the door says so.
                told = "too_many_connections" in text or NO_FILES in message(text) and named in message(text)
                assert status == 503 and told, (status, text)
            assert seen == {200, 503}, f"{named}: {seen}"
        # No descriptor at all: connections wait, and nothing ends.
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (highest(server) + 1, usual[1]))
        assert ask(server.port, "/health", timeout=1)[0] in (0, 200)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, usual)
        until(lambda: ask(server.port, "/health", timeout=5)[0] == 200, "connections are accepted again")
        assert answer(server.port, PROMPTS[0]) == before
        assert upload(server.port)[0] == 200 and save(server.port, "b.bin")[0] == 200
        left = [path.name for path in bench.folder.rglob("*") if path.suffix in (".tmp", ".part")]
        assert not left, f"{left} are left"
    return f"{', '.join(counts)}; a server answers 503 and goes on"


def highest(server):
    """The largest descriptor in use below which none is free, so that a limit above it leaves as many as it adds."""
    used = {int(name) for name in os.listdir(f"/proc/{server.pid}/fd")}
    at = 0
    while at in used:
        at += 1
    return at - 1
