"""The `openai` package: files and batches."""

import json
import time

import openai
import pytest
from conftest import KEY, MODEL, QUESTION, URL


@pytest.fixture
def client():
    return openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


def lines(count, tokens=8):
    for n in range(count):
        body = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": tokens}
        yield {"custom_id": f"c{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}


def send(client, requests, **more):
    text = "\n".join(json.dumps(one) for one in requests)
    return client.files.create(file=("requests.jsonl", text.encode()), purpose="batch", **more)


def ended(client, batch):
    for _ in range(600):
        batch = client.batches.retrieve(batch.id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        time.sleep(0.1)
    raise AssertionError(batch)


def read(client, file_id):
    text = client.files.content(file_id).text
    return [json.loads(line) for line in text.splitlines()]


def test_a_batch_from_file_to_answers(client):
    file = send(client, lines(5), expires_after={"anchor": "created_at", "seconds": 3600})
    assert file.purpose == "batch" and file.expires_at == file.created_at + 3600
    assert file.filename == "requests.jsonl" and file.status == "processed"
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"of": "a test"},
        output_expires_after={"anchor": "created_at", "seconds": 7200},
    )
    assert batch.status == "validating" and batch.metadata == {"of": "a test"}
    batch = ended(client, batch)
    assert batch.status == "completed" and batch.error_file_id is None
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (5, 5, 0)
    assert batch.usage.output_tokens > 0
    live = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0, max_tokens=8)
    answers = read(client, batch.output_file_id)
    assert {one["custom_id"] for one in answers} == {f"c{n}" for n in range(5)}
    for one in answers:
        said = one["response"]["body"]["choices"][0]["message"]["content"]
        assert one["response"]["status_code"] == 200 and said == live.choices[0].message.content
    output = client.files.retrieve(batch.output_file_id)
    assert output.purpose == "batch_output" and output.expires_at == output.created_at + 7200
    assert batch.id in [one.id for one in client.batches.list(limit=1)]
    assert output.id in [one.id for one in client.files.list(purpose="batch_output", limit=1)]
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


def test_a_batch_is_cancelled(client):
    file = send(client, lines(400, 64))
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    assert client.batches.cancel(batch.id).status == "cancelling"
    batch = ended(client, batch)
    assert batch.status == "cancelled" and batch.request_counts.completed < 400


def test_wrong_lines_are_told(client):
    file = send(client, [{"custom_id": "a"}])
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h"
    )
    batch = ended(client, batch)
    assert batch.status == "failed"
    fault = batch.errors.data[0]
    assert (fault.code, fault.line, fault.param) == ("missing_required_parameter", 1, "method")
    with pytest.raises(openai.BadRequestError):
        client.files.create(file=b"{}", purpose="vision")
