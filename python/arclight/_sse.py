"""Streams of the HTTP API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def events(body: Any) -> Iterator[dict[str, Any]]:
    """The objects of a stream of server-sent events.

    Raises:
        RuntimeError: The answer has failed.
    """
    rest = b""
    try:
        for piece in body:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if not line.startswith(b"data: ") or line == b"data: [DONE]":
                    continue
                event = json.loads(line[len(b"data: ") :])
                if "error" in event:
                    raise RuntimeError(event["error"].get("message", str(event["error"])))
                yield event
    finally:
        body.close()
