"""Passes connections on and holds all bytes back for some time: a long way, for kernels without netem.

    relay.py MILLISECONDS PORT=HOST:PORT...
"""

import asyncio
import sys

DELAY = float(sys.argv[1]) / 1e3


async def pump(reader, writer):
    """Bytes leave as long after they came as the way is; those that come meanwhile need not wait for them."""
    loop, under_way = asyncio.get_running_loop(), asyncio.Queue(256)

    async def deliver():
        while (item := await under_way.get()) is not None:
            when, data = item
            await asyncio.sleep(max(0, when - loop.time()))
            writer.write(data)
            await writer.drain()
        writer.close()

    delivering = asyncio.create_task(deliver())
    try:
        while data := await reader.read(65536):
            await under_way.put((loop.time() + DELAY, data))
    except OSError:
        pass
    await under_way.put(None)
    try:
        await delivering
    except OSError:
        pass


async def relay(host, port, reader, writer):
    try:
        onward = await asyncio.open_connection(host, port)
    except OSError:
        writer.transport.abort()
        return
    await asyncio.gather(pump(reader, onward[1]), pump(onward[0], writer))


async def main():
    for pair in sys.argv[2:]:
        port, _, to = pair.partition("=")
        host, _, at = to.partition(":")
        handle = lambda r, w, host=host, at=int(at): relay(host, at, r, w)  # noqa: E731
        await asyncio.start_server(handle, "10.77.0.254", int(port))
    await asyncio.Event().wait()


asyncio.run(main())
