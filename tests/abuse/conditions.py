"""Rounds under conditions that a server of its own is started for."""

import asyncio
import contextlib
import glob
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from client import CHAT, Server, ask, ask_apart, chat, get, idle, push


async def load(server, count, **more):
    """So many answers, some at once; their statuses."""
    room = asyncio.Semaphore(8)

    async def one(i):
        async with room:
            return (await ask(server.port, CHAT, chat(f"Story {i} " + "and so on " * (i % 40), ignore_eos=True, **more)))[0]

    return Counter(await asyncio.gather(*(one(i) for i in range(count))))


def well(server):
    assert server.alive(), f"the server has ended: {server.text()[-500:]}"
    assert "panicked" not in server.text(), f"the server has panicked ({server.log.name})"


@contextlib.asynccontextmanager
async def served(program, *options, **more):
    server = Server(program, *options, **more)
    try:
        yield await server.ready()
        await idle(server)
        well(server)
    finally:
        server.kill()


async def crowded(program):
    """10,000 connections that ask nothing."""
    wanted, spare = 10_000, 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted + spare:
        wanted = hard - spare
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted + spare), hard))
    options = ["--max-connections", str(wanted + 50), "--read-timeout", "600"]
    async with served(program, *options, name="abuse-crowded") as server:
        await load(server, 20)
        before, begin = server.rss(), time.monotonic()
        writers = []
        for _ in range(wanted // 100):
            made = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", server.port) for _ in range(100)))
            writers += [writer for _, writer in made]
        opened = time.monotonic() - begin
        begin = time.monotonic()
        seen = await load(server, 40)
        answered = time.monotonic() - begin
        grown = server.rss() - before
        assert set(seen) == {200}, seen
        assert server.fds() >= wanted, server.fds()
        each = grown * 1024 / wanted
        assert each < 32, f"a connection takes {each:.1f} KiB"
        for writer in writers:
            writer.transport.abort()
        for _ in range(100):
            if server.fds() < 200:
                break
            await asyncio.sleep(0.1)
        assert server.fds() < 200, f"{server.fds()} files are open after the connections' end"
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return (
            f"ok      {wanted} idle connections in {opened:.1f} s, {each:.1f} KiB each; 40 answers beside them in "
            f"{answered:.1f} s"
        )


async def silent(program):
    """20,000 connections that send nothing, single bytes, or half of a request, beside an answer that goes on."""
    wanted, spare = 20_000, 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wave = min(4000, hard - spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wave + spare), hard))
    most = 512
    options = ["--max-connections", str(most), "--read-timeout", "5"]
    request = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
    seen, opened, health = Counter(), 0, []

    async def one(server, number, ends):
        """A connection of one of the kinds, from one of 200 addresses; it is closed by the server, or in the end."""
        nonlocal opened
        writer = None
        try:
            source = (f"127.0.0.{2 + number % 200}", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=source)
            opened += 1
            kind = number % 4
            if kind == 1:
                for byte in request:
                    if time.monotonic() > ends:
                        break
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.5)
            elif kind == 2:
                writer.write(request[:20])
                writer.write_eof()
            elif kind == 3:
                writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + max(0, ends - time.monotonic())):
                await reader.read()
                seen["closed by the server"] += 1
        except TimeoutError:
            seen["left open"] += 1
        except OSError:
            seen["reset"] += 1
        finally:
            if writer:
                writer.transport.abort()

    async def live(server, stop):
        """Answers one after the other; how many there were."""
        answers = 0
        while not stop.is_set():
            body = chat(f"Live {answers}", stream=True, ignore_eos=True, max_tokens=1000)
            status, text = await asyncio.to_thread(ask_apart, server.port, CHAT, body)
            assert status == 200 and "[DONE]" in text, (status, text[-300:])
            answers += 1
        return answers

    async with served(program, *options, name="abuse-silent") as server:
        stop = asyncio.Event()
        answers = asyncio.create_task(live(server, stop))
        async with asyncio.timeout(600):
            while opened < wanted:
                ends = time.monotonic() + 8
                attack = [asyncio.create_task(one(server, i, ends)) for i in range(min(wave, wanted - opened))]
                while not all(task.done() for task in attack):
                    begin = time.monotonic()
                    status, _ = await asyncio.to_thread(ask_apart, server.port, "/health", limit=20)
                    assert status == 200, f"/health is {status}"
                    health.append(time.monotonic() - begin)
                    assert server.fds() < 2 * most + 200, f"{server.fds()} files are open"
                    assert not answers.done(), answers.result()
                    await asyncio.sleep(0.2)
                await asyncio.gather(*attack)
            stop.set()
            answered = await answers
        assert answered > 0
        for _ in range(100):
            if server.fds() < 200:
                break
            await asyncio.sleep(0.1)
        assert server.fds() < 200, f"{server.fds()} files are open after the connections' end"
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return (
            f"ok      {opened} connections in waves of {wave}, {dict(seen)}; {answered} answers beside them, /health "
            f"{len(health)} times within {max(health):.2f} s"
        )


async def full(program):
    """A disk that is full: the prefix cache and saved slots on a small file system."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
        line = 'mount -t tmpfs -o size=1m tmpfs "$0" && mkdir "$0/cache" "$0/slots" && exec "$@"'
        if subprocess.run([*mount, "sh", "-c", line, folder, "true"], capture_output=True).returncode != 0:
            return "left out: no file systems of its own (unshare -m)"
        before = [*mount, "sh", "-c", line, folder]
        options = ["--cache-dir", f"{folder}/cache", "--cache-bytes", "1G", "--slot-save-path", f"{folder}/slots"]
        async with served(program, *options, before=before, name="abuse-full") as server:
            inside = Path(f"/proc/{server.pid}/root{folder}")
            seen = await load(server, 150)
            assert set(seen) == {200}, seen
            for _ in range(100):
                free = os.statvfs(inside)
                if free.f_bavail * free.f_frsize < 65536:
                    break
                await load(server, 20, max_tokens=60)
            assert free.f_bavail * free.f_frsize < 65536, f"the disk is not full: {free.f_bavail * free.f_frsize} bytes"
            seen += await load(server, 40)
            assert set(seen) == {200}, seen
            status, text = await ask(server.port, "/slots/0?action=save", {"filename": "a.bin"})
            assert status == 507, (status, text)
            assert (await get(server, "/health"))[0] == 200
            return f"ok      {seen[200]} answers with a full disk; a slot that cannot be saved is {status}"


async def clock(program):
    """The clock jumps a day forth and two back."""
    library = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not library and shutil.which("apt-get") and os.geteuid() == 0:
        install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "libfaketime"]
        subprocess.run(install, capture_output=True)
        library = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not library:
        return "left out: libfaketime is not installed"
    with tempfile.TemporaryDirectory() as folder:
        offset = Path(folder) / "offset"
        offset.write_text("+0\n")
        env = {
            "LD_PRELOAD": library[0],
            "FAKETIME_TIMESTAMP_FILE": str(offset),
            "FAKETIME_NO_CACHE": "1",
            # As the system does it: only the time of day jumps.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        async with served(program, env=env, name="abuse-clock") as server:
            seen, days = Counter(), []
            for jump in ("+0", "+1d", "-1d", "+3650d", "+0"):
                # In the middle of answers.
                task = asyncio.create_task(load(server, 60))
                await asyncio.sleep(0.05)
                offset.write_text(jump + "\n")
                seen += await task
                created = (await ask(server.port, CHAT, chat(max_tokens=1)))[1]
                days.append(round((int(created.split('"created":')[1].split(",")[0]) - time.time()) / 86400))
            assert set(seen) == {200}, seen
            assert days == [0, 1, -1, 3650, 0], days
            return f"ok      {seen[200]} answers while the clock went to days {days}"


async def limit(program):
    """Memory at the limit of the control group."""
    group = Path("/sys/fs/cgroup/memory/arclight-abuse")
    second = Path("/sys/fs/cgroup/arclight-abuse")
    mib = 160
    try:
        if group.parent.is_dir():
            group.mkdir(exist_ok=True)
            (group / "memory.limit_in_bytes").write_text(str(mib << 20))
        elif (second.parent / "cgroup.controllers").is_file():
            group = second
            group.mkdir(exist_ok=True)
            (group / "memory.max").write_text(str(mib << 20))
        else:
            return "left out: there are no control groups"
    except OSError as error:
        return f"left out: control groups cannot be written ({error.strerror})"
    try:
        before = ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh"]
        async with served(program, before=before, name="abuse-limit") as server:
            seen = await load(server, 200, max_tokens=40)
            big = b'{"prompt": "' + b"a" * 15_000_000 + b'"}'
            bodies = (asyncio.to_thread(push, server.port, "/v1/completions", big) for _ in range(12))
            refused = Counter(await asyncio.gather(*bodies))
            seen += await load(server, 50)
            assert set(seen) == {200}, seen
            assert set(refused) <= {0, 400, 413, 429, 503}, refused
            events = group / ("memory.events" if group == second else "memory.oom_control")
            kills = [line for line in events.read_text().splitlines() if line.startswith("oom_kill ")]
            assert kills in ([], ["oom_kill 0"]), kills
            most = group / ("memory.peak" if group == second else "memory.max_usage_in_bytes")
            most = f"{int(most.read_text()) >> 20} MiB at most, " if most.exists() else ""
            return f"ok      {seen[200]} answers within {mib} MiB; {most}large bodies: {dict(refused)}"
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            await asyncio.sleep(0.1)


async def core(program):
    """A core is taken away while it computes, and given back."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        return "left out: there is one core"
    async with served(program, "--threads", "2", name="abuse-core") as server:
        before = {thread: os.sched_getaffinity(thread) for thread in server.threads()}

        def put(cpus):
            for thread in server.threads():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread, cpus(thread))

        task = asyncio.create_task(load(server, 60, max_tokens=200))
        await asyncio.sleep(0.1)
        put(lambda _: {usable[0]})
        seen, begin = await task, time.monotonic()
        seen += await load(server, 20, max_tokens=200)
        on_one = time.monotonic() - begin
        put(lambda thread: before.get(thread, set(usable)))
        begin = time.monotonic()
        seen += await load(server, 20, max_tokens=200)
        on_two = time.monotonic() - begin
        assert set(seen) == {200}, seen
        return f"ok      {seen[200]} answers; 20 of them took {on_one:.1f} s on one core and {on_two:.1f} s on both"
