"""Follows a server's cache events as a gateway does, rebuilds its prefix cache from them, and compares that with what
the server says itself: how many tokens of a prompt it found, by the usage of its answers.

events.py BASE EVENTS REPLAY MODEL: the server's URL, its endpoints, and the model's name.
"""

import json
import random
import sys
import time
import urllib.request

import msgspec
import zmq

BLOCK = 32


class Cache:
    """The blocks of one server, by its events."""

    def __init__(self):
        self.children = {}  # (parent, tokens): block
        self.blocks = {}  # block: (parent, tokens)
        self.next = 0

    def apply(self, number, payload):
        assert number == self.next, f"message {number} came where {self.next} was due"
        self.next += 1
        stamp, events, rank = msgspec.msgpack.decode(payload)
        assert isinstance(stamp, float) and abs(time.time() - stamp) < 600, stamp
        assert rank == 0, rank
        for event in events:
            match event["type"]:
                case "BlockStored":
                    assert event["block_size"] == BLOCK and len(event["block_hashes"]) == 1
                    tokens = tuple(event["token_ids"])
                    assert len(tokens) == BLOCK and event["lora_id"] is None
                    (block,) = event["block_hashes"]
                    parent = event["parent_block_hash"]
                    assert parent is None or parent in self.blocks, "a parent that is not there"
                    assert block not in self.blocks, "stored twice"
                    self.blocks[block] = (parent, tokens)
                    self.children[parent, tokens] = block
                case "BlockRemoved":
                    for block in event["block_hashes"]:
                        del self.children[self.blocks.pop(block)]
                case "AllBlocksCleared":
                    self.blocks.clear()
                    self.children.clear()
                case other:
                    raise AssertionError(other)

    def found(self, tokens):
        """How many tokens at the beginning are in whole blocks that are there."""
        at, length = None, 0
        while (block := self.children.get((at, tuple(tokens[length : length + BLOCK])))) is not None:
            at, length = block, length + BLOCK
        return length


def post(base, path, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def drain(subscriber, cache):
    """What comes until nothing has come for a while."""
    while subscriber.poll(300):
        topic, number, payload = subscriber.recv_multipart()
        assert topic.startswith(b"kv@pod-1@"), topic
        cache.apply(int.from_bytes(number, "big"), payload)


def main(base, events, replay, model):
    context = zmq.Context()
    subscriber = context.socket(zmq.SUB)
    subscriber.connect(events)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"kv@pod-1@" + model.encode())
    time.sleep(1)
    cache = Cache()
    seed = random.Random(7)
    words = ["river", "stone", "bear", "lamp", "seven", "green", "slow", "bread", "winter", "song"]
    text = lambda count: " ".join(seed.choice(words) for _ in range(count))
    stems = [text(60) for _ in range(4)]
    hits = checked = 0
    # More than the cache holds, so that blocks go as well as come.
    for turn in range(60):
        prompt = seed.choice(stems) + " " + text(seed.randrange(1, 60))
        body = {"model": model, "prompt": prompt, "max_tokens": 4, "temperature": 0}
        (rendered,) = post(base, "/v1/completions/render", body)
        tokens = rendered["token_ids"]
        drain(subscriber, cache)
        # The last token is always computed.
        expected = min(cache.found(tokens), (len(tokens) - 1) // BLOCK * BLOCK)
        usage = post(base, "/v1/completions", body)["usage"]
        assert usage["prompt_tokens"] == len(tokens), (usage, len(tokens))
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        # Of a block that agrees in part the server uses that part.
        assert expected <= cached < expected + BLOCK, (turn, expected, cached)
        hits += expected > 0
        checked += 1
    drain(subscriber, cache)
    assert hits > 10, hits
    chat = {"model": model, "messages": [{"role": "user", "content": "Tell me of a bear."}], "max_tokens": 1}
    rendered = post(base, "/v1/chat/completions/render", chat)
    used = post(base, "/v1/chat/completions", chat)["usage"]["prompt_tokens"]
    assert len(rendered["token_ids"]) == used, (rendered, used)
    drain(subscriber, cache)
    # Who comes late asks for what it has missed, and has the same cache.
    late = Cache()
    asker = context.socket(zmq.DEALER)
    asker.connect(replay)
    asker.send_multipart([b"", (0).to_bytes(8, "big")])
    while True:
        assert asker.poll(10_000), "no answer"
        _, number, payload = asker.recv_multipart()
        number = int.from_bytes(number, "big", signed=True)
        if number == -1:
            assert payload == b""
            break
        late.apply(number, payload)
    assert late.blocks == cache.blocks and late.next == cache.next
    removed = late.next  # some messages were about blocks that went
    print(f"events: {checked} prompts, {hits} with whole blocks; {len(cache.blocks)} blocks after {removed} messages")


main(*sys.argv[1:])
