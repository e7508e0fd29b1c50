"""openai-agents against both of OpenAI's APIs: a tool is called and its result goes back."""

import os

import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)
CITIES = []


@function_tool
def get_weather(city: str) -> str:
    """Tells the weather of a city."""
    CITIES.append(city)
    return "rain"


@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_a_tool_is_called_and_the_answer_comes(kind):
    CITIES.clear()
    client = AsyncOpenAI(base_url=os.environ["ARCLIGHT_URL"] + "/v1", api_key="none")
    model = kind(model="local", openai_client=client)
    agent = Agent(name="local", instructions="Be brief.", model=model, tools=[get_weather])
    result = Runner.run_sync(agent, "What is the weather in Oslo?")
    assert CITIES == ["Oslo"]
    assert result.final_output == "The script is at its end."
