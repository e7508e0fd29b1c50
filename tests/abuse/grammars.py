"""A stream beside clients whose grammars are costly: how long it waits between two tokens."""

import asyncio
import statistics
import time

from client import CHAT, ask, chat, send

CLIENTS = 4
TOKENS = 300
# The largest gap beside grammars, over that beside the same clients without: the machine's own noise is in both.
WORSE = 10


def costly():
    """A schema whose masks have to follow many patterns at once."""
    name = lambda i: f"field_{i:03}_" + "x" * (i % 7)
    text = {"type": "string", "pattern": "^([a-z]{1,40}[0-9]?){1,20}$"}
    properties = {name(i): {"anyOf": [text, {"type": "number"}, {"type": "array", "items": text}]} for i in range(200)}
    return {"type": "object", "properties": properties, "additionalProperties": False}


async def gaps(server):
    """Times between the tokens of a stream, in seconds."""
    body = chat("A long story.", stream=True, max_tokens=TOKENS, ignore_eos=True)
    reader, writer = await send(server.port, CHAT, body)
    times = []
    while line := await reader.readline():
        if line.startswith(b"data: {"):
            times.append(time.monotonic())
    writer.close()
    assert len(times) > TOKENS // 2, f"{len(times)} tokens"
    # The first come with the prompt.
    return [after - before for before, after in zip(times[2:], times[3:])]


async def beside(server, **more):
    """The same while others ask for answers in this form, as long as the stream lasts."""
    stream = asyncio.create_task(gaps(server))

    async def client(i):
        statuses = []
        while not stream.done():
            body = chat(f"Fields {i}.", max_tokens=60, ignore_eos=not more, **more)
            statuses.append((await ask(server.port, CHAT, body))[0])
        return statuses

    others = await asyncio.gather(*(client(i) for i in range(CLIENTS)))
    statuses = {status for one in others for status in one}
    assert statuses <= {200}, statuses
    return await stream


async def grammars(server):
    """A stream beside costly grammars waits hardly longer for a token than beside other answers."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": costly()}}
    plain, guided = await beside(server), await beside(server, response_format=form)
    # What a step takes with so many answers.
    step = statistics.median(plain)
    worst = [max(times) / step for times in (plain, guided)]
    middle = statistics.median(guided) / step
    said = (
        f"largest gap {worst[1]:.1f} steps of {step * 1000:.1f} ms beside grammars, {worst[0]:.1f} beside other answers; "
        f"median gap {middle:.2f} steps"
    )
    assert worst[1] < WORSE * max(worst[0], 2), said
    return said
