"""Bodies of many shapes: each is refused or answered, and what it took is given back."""

import json

from client import CHAT


def some(part, length):
    """A list of one part, again and again."""
    return "[" + ",".join([part] * max(1, length // (len(part) + 1))) + "]"


def fields(value, length):
    """An object with fields whose values are all one."""
    return "{" + ",".join(f'"{at:06x}":{value}' for at in range(max(1, length // (len(value) + 10)))) + "}"


SHAPES = {
    "objects of one field": lambda n: some('{"a":0}', n),
    "empty objects": lambda n: some("{}", n),
    "lists of one element": lambda n: some("[0]", n),
    "numbers": lambda n: some("0", n),
    "short strings": lambda n: some('"a"', n),
    "deep lists": lambda n: some("[" * 100 + "]" * 100, n),
    "deep objects": lambda n: some('{"a":' * 60 + "0" + "}" * 60, n),
    "too deep": lambda n: "[" * (n // 2) + "]" * (n // 2),
    "many fields": lambda n: fields("0", n),
    "many fields of objects": lambda n: fields('{"type":"string"}', n),
    "long strings": lambda n: some(json.dumps("word " * 2000), n),
    "one string": lambda n: json.dumps("word " * (n // 5)),
}

USER = [{"role": "user", "content": "Hi"}]
HERE = "<here>"


def tool(parameters):
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


# Where the value stands: HERE.
PLACES = [
    (CHAT, {"messages": USER, "max_tokens": 1, "tools": [tool(HERE)]}),
    (CHAT, {"messages": USER, "max_tokens": 1, "tools": [tool({"type": "object", "properties": {"a": HERE}})]}),
    (CHAT, {"messages": [{"role": "user", "content": HERE}], "max_tokens": 1}),
    (CHAT, {"messages": USER, "max_tokens": 1, "response_format": {"type": "json_schema", "json_schema": {"schema": HERE}}}),
    (CHAT, {"messages": USER, "max_tokens": 1, "chat_template_kwargs": {"x": HERE}}),
    (CHAT, {"messages": USER, "max_tokens": 1, "unknown": HERE}),
    ("/v1/responses", {"input": HERE, "max_output_tokens": 1, "store": False}),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 1, "store": False, "metadata": {"x": HERE}}),
    ("/v1/messages", {"messages": [{"role": "user", "content": HERE}], "max_tokens": 1}),
    ("/v1/messages", {"messages": USER, "max_tokens": 1, "tools": [{"name": "f", "input_schema": {"properties": HERE}}]}),
    ("/api/chat", {"messages": USER, "options": {"num_predict": 1, "x": HERE}, "stream": False}),
    ("/v1/completions", {"prompt": HERE, "max_tokens": 1}),
    ("/tokenize", {"prompt": HERE}),
    ("/detokenize", {"tokens": HERE}),
]


def body(numbers, most=4 << 20):
    """A path, the bytes of a body, and its name."""
    path, place = numbers.choice(PLACES)
    shape = numbers.choice(sorted(SHAPES))
    value = SHAPES[shape](int(most ** numbers.uniform(0.5, 1)))
    return path, json.dumps(place).replace(json.dumps(HERE), value, 1).encode(), f"{path}: {shape}"
