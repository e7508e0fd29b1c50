"""LLM inference for many-core CPUs.

>>> from arclight import LLM, SamplingParams
>>> with LLM() as llm:  # the demo model
...     output = llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=8))[0]
>>> len(output.outputs[0].token_ids)
8
"""

from arclight._async import AsyncLLM
from arclight._llm import LLM, Perplexity
from arclight._native import __version__
from arclight._outputs import (
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    Logprob,
    RequestMetrics,
    RequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
    ToolCall,
)
from arclight._params import SamplingParams, StructuredOutputsParams
from arclight._requests import Prompt
from arclight._tokenizer import Tokenizer

__all__ = [
    "LLM",
    "AsyncLLM",
    "CompletionOutput",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "Logprob",
    "Perplexity",
    "Prompt",
    "RequestMetrics",
    "RequestOutput",
    "SamplingParams",
    "ScoringOutput",
    "ScoringRequestOutput",
    "StructuredOutputsParams",
    "Tokenizer",
    "ToolCall",
    "__version__",
]
