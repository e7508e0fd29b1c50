"""kill -9 at random moments of everything that writes."""

import json
import shutil
import threading
import time

from writers import DEMO, FILES, MODEL, Doomed, ask, digest, ready, tree

PROMPTS = [f"{begin} {middle} " * 12 for begin in ("Once", "The bear", "A small") for middle in ("upon a time", "read")]


def moments(bench, seconds):
    """Moments of a run that takes so long, some of them after its end."""
    return [bench.numbers.uniform(0, 1.1 * seconds) for _ in range(bench.count)]


def taken(what):
    begin = time.monotonic()
    what()
    return time.monotonic() - begin


def pull(bench):
    """`arclight pull` of a model in two parts."""
    cache = bench.folder / "cache"
    env = bench.hub_environment(cache)
    command = ["pull", MODEL]
    seconds = taken(lambda: bench.succeeds(command, env))
    want = tree(cache)
    whole = {name: digest(bench.root / name) for name in FILES}
    killed = 0
    for moment in moments(bench, seconds):
        shutil.rmtree(cache)
        # One kill in three hits a run that goes on with what another one has left.
        for again in range(bench.numbers.choice((1, 1, 2))):
            killed += bench.killed(command, moment / (1 + again), env)
            for path in cache.glob("models--*/snapshots/*/*"):
                assert digest(path) == whole[path.name], f"{path} is not whole after {moment:.3f} s"
        bench.succeeds(command, env)
        have = tree(cache)
        assert have == want, f"another cache after a kill at {moment:.3f} s: {set(have.items()) ^ set(want.items())}"
    return f"{killed} kills within {seconds:.2f} s"


def made(bench, command, output):
    """A command that makes one file, in the place of an older one or of none."""
    seconds = taken(lambda: bench.succeeds(command))
    want = output.read_bytes()
    bench.succeeds(command)
    assert output.read_bytes() == want, "two undisturbed runs differ"
    killed = 0
    for moment in moments(bench, seconds):
        old = bench.numbers.choice((None, b"old"))
        output.unlink()
        if old:
            output.write_bytes(old)
        killed += bench.killed(command, moment)
        have = output.read_bytes() if output.exists() else None
        assert have in (old, want), f"half a file after {moment:.3f} s"
        bench.succeeds(command)
        assert output.read_bytes() == want, f"another file after a kill at {moment:.3f} s"
        left = {path.name for path in output.parent.iterdir()}
        assert left == {output.name}, f"{left} are left"
    return f"{killed} kills within {seconds:.2f} s"


def convert(bench):
    output = bench.folder / "out" / "model.gguf"
    output.parent.mkdir()
    return made(bench, ["convert", bench.checkpoint(), "-o", output], output)


def quantize(bench):
    output = bench.folder / "out" / "model.gguf"
    output.parent.mkdir()
    return made(bench, ["quantize", bench.floats(), output, "--type", "q8_0"], output)


def completion(prompt, tokens=12):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def answer(port, prompt):
    """The text of an answer; none where the server has ended."""
    status, text = ask(port, "/v1/completions", completion(prompt))
    assert status in (0, 200, 503), (status, text)
    return json.loads(text)["choices"][0]["text"] if status == 200 else None


def cache(bench):
    """A server with a prefix cache on disk, under load."""
    folder = bench.folder / "cache"
    common = [DEMO, "--ctx", "512", "--threads", "1"]
    server = bench.serve(*common, "--no-prefix-cache", name="crash-cache")
    assert ready(server), server.text()
    want = {prompt: answer(server.port, prompt) for prompt in PROMPTS}
    server.kill()
    # In little memory pages go to the disk and come back.
    options = [*common, "--cache-dir", folder, "--cache-bytes", "2M", "--kv-tokens", "1024"]
    begin = time.monotonic()
    server = bench.serve(*options, name="crash-cache")
    assert ready(server), server.text()
    seconds = time.monotonic() - begin + 1.5
    server.kill()
    answers, wrong = [], []

    def load(port, own):
        while True:
            prompt = own.choice(PROMPTS)
            # Another end each time: other pages are written, and those of the beginning are read.
            if own.random() < 0.5:
                ask(port, "/v1/completions", completion(f"{prompt} {own.random()} " * 2, 4))
            got = answer(port, prompt)
            if got is None:
                return
            answers.append(got)
            if got != want[prompt]:
                wrong.append((prompt, got))

    sizes = {}
    for moment in moments(bench, seconds):
        try:
            server = Doomed(bench.program, *options, moment=moment, env=bench.environment(), name="crash-cache")
        except SystemExit:
            continue
        if ready(server):
            left = [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]
            own = [bench.numbers.__class__(bench.numbers.random()) for _ in range(4)]
            threads = [threading.Thread(target=load, args=(server.port, one)) for one in own]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            # The writer has its own by then, if any.
            assert len(left) <= 1, f"{left} were not removed at the start"
        server.die()
        assert not wrong, f"another answer: {wrong[0]}"
        assert "panicked" not in server.text(), "the server has panicked (target/crash-cache.log)"
        for path in folder.glob("*.kv"):
            kind = path.name.split(".")[1]
            assert sizes.setdefault(kind, path.stat().st_size) == path.stat().st_size, f"{path.name} is half"
    # What all kills have left gives the same answers.
    server = bench.serve(*options, name="crash-cache")
    assert ready(server)
    assert {prompt: answer(server.port, prompt) for prompt in PROMPTS} == want
    log = server.text()
    server.kill()
    pages = len(list(folder.glob("*.kv")))
    assert answers and pages, "nothing was written"
    assert "panicked" not in log
    return f"{bench.count} kills within {seconds:.1f} s, {len(answers)} answers alike, {pages} files"


LINES = 60


def lines(tag, count=LINES):
    def one(at):
        body = completion(PROMPTS[at % len(PROMPTS)] + str(at), 16 + at % 5)
        return {"custom_id": f"{tag}-{at}", "method": "POST", "url": "/v1/completions", "body": body}

    return "".join(json.dumps(one(at)) + "\n" for at in range(count)).encode()


def answered(text, tag):
    """The texts of a batch's answers, each of which is there once."""
    found = {}
    for line in text.splitlines():
        line = json.loads(line)
        own = line["custom_id"]
        assert own not in found, f"{own} is answered twice"
        assert line["response"]["status_code"] == 200, line
        found[own.removeprefix(f"{tag}-")] = line["response"]["body"]["choices"][0]["text"]
    assert len(found) == LINES, f"{len(found)} of {LINES} lines are answered"
    return found


class Batch:
    """A batch that goes on over servers, from its file to its answers."""

    def __init__(self, tag):
        self.tag, self.file, self.id = tag, None, None

    def go_on(self, port):
        """The answers, or nothing where the server has ended before."""
        if self.file is None:
            status, text = ask(port, "/v1/files", form={"purpose": b"batch", "file": lines(self.tag)})
            if status != 200:
                return None
            self.file = json.loads(text)["id"]
        status, text = ask(port, f"/v1/files/{self.file}/content")
        if status == 0:
            return None
        assert status == 200 and text.encode() == lines(self.tag), f"the file is {status} after a kill"
        if self.id is None:
            body = {"input_file_id": self.file, "endpoint": "/v1/completions", "completion_window": "24h"}
            status, text = ask(port, "/v1/batches", body)
            if status != 200:
                return None
            self.id = json.loads(text)["id"]
        while True:
            status, text = ask(port, f"/v1/batches/{self.id}")
            if status == 0:
                return None
            assert status == 200, f"the batch is {status} after a kill: {text}"
            batch = json.loads(text)
            assert batch["status"] in ("validating", "in_progress", "finalizing", "completed"), text
            if batch["status"] == "completed":
                assert batch["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}, text
                status, text = ask(port, f"/v1/files/{batch['output_file_id']}/content")
                return answered(text, self.tag) if status == 200 else None
            time.sleep(0.02)


def batches(bench):
    """A server that works on batches."""
    folder = bench.folder / "files"
    options = [DEMO, "--ctx", "512", "--threads", "1", "--files-dir", folder]
    begin = time.monotonic()
    server = bench.serve(*options, name="crash-batches")
    assert ready(server), server.text()
    want = Batch("undisturbed").go_on(server.port)
    seconds = time.monotonic() - begin
    server.kill()
    assert want, server.text()
    killed, done, batch = 0, 0, Batch("0")
    for moment in moments(bench, seconds):
        try:
            server = Doomed(bench.program, *options, moment=moment, env=bench.environment(), name="crash-batches")
        except SystemExit:
            killed += 1
            continue
        while ready(server):
            have = batch.go_on(server.port)
            if have is None:
                break
            assert have == want, f"other answers after a kill at {moment:.3f} s"
            done += 1
            batch = Batch(str(done))
        server.die()
        killed += 1
        assert "panicked" not in server.text(), "the server has panicked (target/crash-batches.log)"
    server = bench.serve(*options, name="crash-batches")
    assert ready(server), server.text()
    assert batch.go_on(server.port) == want
    left = [path.name for path in folder.rglob("*") if path.suffix in (".tmp", ".part")]
    server.kill()
    assert not left, f"{left} are left"
    return f"{killed} kills within {seconds:.1f} s, {done + 1} batches of {LINES} lines alike"
