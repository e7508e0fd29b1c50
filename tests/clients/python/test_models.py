"""The `ollama` package: models that are made, copied and deleted."""

import os

import ollama
import pytest
from conftest import KEY, QUESTION

OPTIONS = {"temperature": 0, "num_predict": 6}


@pytest.fixture
def client():
    url = os.environ["ARCLIGHT_MODELS_URL"]
    return ollama.Client(host=url, headers={"Authorization": f"Bearer {KEY}"})


def names(client):
    return sorted(model.model for model in client.list().models)


def test_a_model_is_made_copied_and_deleted(client):
    told = list(client.create("brief", from_="base", system="Be brief.", parameters={"top_k": 3}, stream=True))
    assert told[-1].status == "success"
    shown = client.show("brief")
    assert "FROM base" in shown.modelfile and 'SYSTEM "Be brief."' in shown.modelfile
    assert client.chat("brief", QUESTION, options=OPTIONS).message.content
    assert client.copy("brief", "other").status == "success"
    assert names(client) == ["base:latest", "brief:latest", "other:latest"]
    for name in ["brief", "other"]:
        assert client.delete(name).status == "success"
    assert names(client) == ["base:latest"]
    with pytest.raises(ollama.ResponseError) as fault:
        client.delete("other")
    assert fault.value.status_code == 404


def test_what_cannot_be_is_an_error(client):
    with pytest.raises(ollama.ResponseError) as fault:
        client.create("x", from_="base", quantize="q4_K_M")
    assert fault.value.status_code == 400 and "quantize" in str(fault.value)
    with pytest.raises(ollama.ResponseError):
        list(client.pull("nobody/nothing", stream=True))
    with pytest.raises(ollama.ResponseError):
        client.pull("nobody/nothing")
