"""Where the server is, and what several clients ask it."""

import os

import pytest

URL = os.environ["ARCLIGHT_URL"]
KEY = os.environ["ARCLIGHT_CLIENT_KEY"]
MODEL = "demo"
QUESTION = [{"role": "user", "content": "What is your name?"}]

# A schema that leaves a small model no way out.
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.fixture
def url():
    return URL
