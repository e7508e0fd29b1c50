"""The coroutines."""

import asyncio
import time

import pytest
from conftest import DEMO, HELLO
from test_generate import GREEDY, LONG, STORY, running

from arclight import AsyncLLM, SamplingParams


def test_tasks_share_the_engine_and_say_what_calls_say(llm):
    async def ask():
        engine = AsyncLLM(llm)
        prompts = [f"{STORY} number {n}" for n in range(20)]
        answers = await asyncio.gather(*(engine.generate(prompt, GREEDY) for prompt in prompts))
        texts = [answer[0].outputs[0].text for answer in answers]
        assert texts == [output.outputs[0].text for output in await engine.generate(prompts, GREEDY)]
        return prompts, texts

    prompts, texts = asyncio.run(ask())
    assert texts == [output.outputs[0].text for output in llm.generate(prompts, GREEDY)]


def test_streams_and_the_rest(llm):
    async def ask():
        engine = AsyncLLM(llm)
        said = ""
        async for output in engine.generate_stream(STORY, GREEDY):
            said += output.outputs[0].delta
        assert said == (await engine.generate(STORY, GREEDY))[0].outputs[0].text
        async for output in engine.chat_stream(HELLO, GREEDY):
            pass
        assert output.outputs[0].text == (await engine.chat(HELLO, GREEDY))[0].outputs[0].text
        assert (await engine.embed("a"))[0].outputs.embedding.shape == (256,)
        assert (await engine.logits("a b")).shape == (await engine.hidden_states("a b")).shape[:1] + (2048,)
        assert (await engine.perplexity([5] * 64, context=32)).chunks == 2
        assert (await engine.request("GET", "/v1/models"))["data"]
        with pytest.raises(ValueError):
            await engine.score("a", "b")
        with pytest.raises(ValueError, match="token 99999"):
            await engine.generate([99999])
        assert await engine.generate([]) == []
        return engine.get_tokenizer().encode("a")

    assert asyncio.run(ask()) == llm.tokenizer.encode("a")


def test_a_cancelled_task_frees_its_place(llm):
    async def ask():
        engine = AsyncLLM(llm)
        tasks = [asyncio.create_task(engine.generate([STORY] * 5, LONG)) for _ in range(8)]
        while running(llm) < 5:
            await asyncio.sleep(0.01)
        [task.cancel() for task in tasks]
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        # One that leaves its loop early.
        async for _ in engine.generate_stream(STORY, LONG):
            break
        end = time.monotonic() + 20
        while running(llm):
            assert time.monotonic() < end
            await asyncio.sleep(0.01)

    asyncio.run(ask())


def test_the_loop_goes_on_while_the_engine_computes(llm):
    async def ask():
        engine = AsyncLLM(llm)
        task = asyncio.create_task(engine.generate([STORY] * 32, LONG.clone(max_tokens=400)))
        turns = 0
        while not task.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert turns > 10 and len(await task) == 32

    asyncio.run(ask())


def test_a_model_is_loaded_and_closed_beside_the_loop():
    async def ask():
        async with await AsyncLLM.load(DEMO, max_num_seqs=2) as engine:
            assert (await engine.generate(STORY, SamplingParams(max_tokens=2)))[0].finished
        with pytest.raises(RuntimeError, match="closed"):
            await engine.generate(STORY)

    asyncio.run(ask())


def test_closing_ends_what_a_loop_waits_for():
    async def ask():
        engine = await AsyncLLM.load(DEMO, max_num_seqs=2)
        task = asyncio.create_task(engine.generate([STORY] * 200, LONG))
        while not running(engine.llm):
            await asyncio.sleep(0.01)
        await engine.close()
        with pytest.raises(RuntimeError, match="closed"):
            await asyncio.wait_for(task, 20)

    asyncio.run(ask())
