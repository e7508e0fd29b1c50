"""Arclight behind Ray Serve: a server of its own on every machine of a Ray cluster, and one address for all of them.

    pip install -r requirements.txt
    ray start --head                        # on the first machine
    ray start --address=FIRST:6379          # on the others
    serve deploy arclight.yaml              # on one of them

Each replica starts `arclight serve` on its machine, which takes all of its cores and memory nodes, and hands requests
to it over a socket of the file system; answers that are streams stay streams. A server that has ended is started
anew while requests wait for it; a replica whose machine is gone, by Ray. All paths are those of `arclight serve`: /v1/chat/completions, /metrics, ...
"""

import asyncio
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import httpx
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

# Fields of one connection, which the next one has of its own (RFC 9110, section 7.6.1), and the length of a body,
# which is sent as it comes.
OF_A_CONNECTION = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"}


@serve.deployment(max_ongoing_requests=1000)
class Arclight:
    def __init__(self, program: str, options: list[str], start_seconds: float):
        self.folder = tempfile.mkdtemp(prefix="arclight-ray-")
        self.socket = Path(self.folder) / "socket"
        # However this process ends, the server ends too, and its cores are free for the next one.
        self.command = ["setpriv", "--pdeathsig", "TERM", program, "serve", *options, "--host", f"unix:{self.socket}"]
        self.start_seconds = start_seconds
        self.started = asyncio.Lock()
        self.process = None
        # A connection for each request: one that is kept may be that of a server that has ended.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket), limits=limits)
        # A stream may say nothing for long; the server has deadlines of its own.
        self.client = httpx.AsyncClient(transport=transport, base_url="http://arclight", timeout=None)

    async def ready(self):
        """Starts the server if it does not run, and waits until its model is loaded."""
        async with self.started:
            if self.process is not None and self.process.returncode is None:
                return
            process = await asyncio.create_subprocess_exec(*self.command)
            try:
                async with asyncio.timeout(self.start_seconds):
                    while not await self.is_ready():
                        if process.returncode is not None:
                            raise RuntimeError(f"{' '.join(self.command)} ended with status {process.returncode}")
                        await asyncio.sleep(0.1)
            except BaseException:
                with suppress(ProcessLookupError):
                    process.kill()
                raise
            self.process = process

    async def is_ready(self):
        try:
            return (await self.client.get("/health")).status_code == 200
        except httpx.TransportError:
            return False

    async def check_health(self):
        """Ray calls this every few seconds, and before the first request; a replica that fails is started anew."""
        await self.ready()

    async def send(self, request: httpx.Request):
        """Sends a request, once more where nobody was there to take it."""
        for attempt in range(50):
            await self.ready()
            try:
                return await self.client.send(request, stream=True)
            except httpx.ConnectError:
                if attempt == 49:
                    raise
                # The server has ended a moment ago.
                await asyncio.sleep(0.1)

    async def __call__(self, request: Request):
        headers = [(k, v) for k, v in request.headers.raw if k.decode().lower() not in OF_A_CONNECTION]
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        sent = self.client.build_request(request.method, path, headers=headers, content=await request.body())
        try:
            answer = await self.send(sent)
        except (httpx.TransportError, RuntimeError) as fault:
            error = {"message": f"the server of this replica does not answer: {fault!r}", "type": "unavailable_error"}
            return JSONResponse({"error": error}, status_code=503)
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in OF_A_CONNECTION}

        async def parts():
            # When the client goes away, Ray closes this, and the server ends the request.
            try:
                async for part in answer.aiter_raw():
                    yield part
            finally:
                await answer.aclose()

        return StreamingResponse(parts(), status_code=answer.status_code, headers=headers)

    async def __del__(self):
        if self.process is not None and self.process.returncode is None:
            # It ends what it has begun; see `arclight serve --help` on --drain-timeout.
            self.process.terminate()
            await self.process.wait()
        await self.client.aclose()
        shutil.rmtree(self.folder, ignore_errors=True)


def app(args: dict):
    """The application of arclight.yaml: `program`, `options` of `arclight serve`, `start_seconds`."""
    return Arclight.bind(
        args.get("program", "arclight"), [str(option) for option in args.get("options", [])], float(args.get("start_seconds", 600))
    )
