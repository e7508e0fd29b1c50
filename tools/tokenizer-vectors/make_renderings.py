#!/usr/bin/env python3
"""Renders the chat templates of crates/tokenizer/tests/data as transformers does. See README.md."""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

import jinja2
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

DATA = Path(__file__).resolve().parents[2] / "crates/tokenizer/tests/data"
NOW = 1_721_997_296  # 2024-07-26 12:34:56 UTC

SYSTEM = {"role": "system", "content": "You are terse.  "}
USER = {"role": "user", "content": "What is 6 × 7?"}
ANSWER = {"role": "assistant", "content": "42"}
THOUGHT = {"role": "assistant", "content": "<think>\nSix sevens…\n</think>\n\n42"}
APART = {"role": "assistant", "content": "42", "reasoning_content": "Six sevens…\n"}
AGAIN = {"role": "user", "content": "  Are you\tsure?\n"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"type": "function", "id": "c1", "function": {
            "name": "multiply", "arguments": {"a": 6, "b": 7.0, "exact": True, "note": "<é> \"q\" \u2028"}}}
    ],
}
CALL_TEXT = {
    "role": "assistant",
    "content": "Let me see.",
    "tool_calls": [{"function": {"name": "multiply", "arguments": "{\"a\":6}"}},
                   {"name": "now", "arguments": {}}],
}
RESULT = {"role": "tool", "content": "42.0", "name": "multiply", "tool_call_id": "c1"}
RESULT_PARTS = {"role": "tool", "content": [{"type": "text", "text": "é 🙂"}, 1e20, 0.1, -1e-7, 1e16, None, [], {}]}
TOOLS = [
    {"type": "function", "function": {
        "name": "multiply",
        "description": "Multiplies & doesn't <divide>. Größe: \\ / \t \u007f 🙂",
        "parameters": {"type": "object", "properties": {
            "a": {"type": "number", "minimum": -0.5, "enum": [1, 2.5, 100.0, None, False]},
            "b": {"type": "number"}}, "required": ["a", "b"], "additionalProperties": {}}}},
    {"type": "function", "function": {"name": "now", "parameters": {}}},
]

CONVERSATIONS = {
    "one turn": [USER],
    "system and user": [SYSTEM, USER],
    "many turns": [SYSTEM, USER, ANSWER, AGAIN],
    "thinking in the content": [USER, THOUGHT, AGAIN],
    "thinking apart": [USER, APART, AGAIN, APART],
    "thinking last": [USER, THOUGHT],
    "tool call": [SYSTEM, USER, CALL, RESULT],
    "two results": [USER, CALL, RESULT, RESULT, ANSWER, AGAIN],
}
MORE = {
    "parts": [{"role": "user", "content": [{"type": "text", "text": "What is 6 × 7?"}]}],
    "parts in every turn": [
        {"role": "system", "content": [{"type": "text", "text": "Be terse."}]},
        {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Three"}]},
        AGAIN,
    ],
    "developer": [{"role": "developer", "content": "Be terse."}, USER],
    "text beside a call": [USER, {**CALL, "content": "Let me see.", "reasoning_content": "Hm."}, RESULT, ANSWER, AGAIN],
    "nine characters": [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [
            {"type": "function", "id": "abcdef123", "function": {"name": "now", "arguments": {}}}]},
        {"role": "tool", "content": "noon", "tool_call_id": "abcdef123", "name": "now"},
        ANSWER,
    ],
    "two users": [USER, AGAIN],
    "no user": [SYSTEM],
}
ONLY = {
    "qwen3.jinja": {
        "several calls": [USER, CALL_TEXT, RESULT, RESULT],
        "null content": [USER, {"role": "assistant", "content": None}],
    },
    "tools.jinja": {
        "parts and numbers": [USER, CALL, RESULT_PARTS],
        "calls last": [USER, CALL_TEXT],
        "break and continue": [USER, {"role": "comment", "content": "x"}, AGAIN,
                               {"role": "stop", "content": ""}, ANSWER],
    },
}
VARIANTS = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "extra": {"enable_thinking": False}},
    {"add_generation_prompt": True, "extra": {"enable_thinking": True, "date": "today"}},
    {"add_generation_prompt": True, "tools": TOOLS},
]


def render(template: str, bos, eos, case: dict) -> dict:
    def strftime_now(form):
        return datetime.fromtimestamp(NOW, UTC).strftime(form)

    special = {k: v for k, v in (("bos_token", bos), ("eos_token", eos)) if v}
    try:
        text = _compile_jinja_template(template).render(
            messages=case["messages"],
            tools=case.get("tools"),
            documents=None,
            add_generation_prompt=case.get("add_generation_prompt", False),
            strftime_now=strftime_now,
            **special,
            **case.get("extra", {}),
        )
        return {"rendered": text}
    except Exception as error:
        return {"refused" if type(error) is jinja2.exceptions.TemplateError else "fails": str(error)}


def renderings(name: str, template: str, bos, eos) -> list[dict]:
    out = []
    extra = ONLY.get(name, MORE)
    for title, messages in (CONVERSATIONS | extra).items():
        for variant in VARIANTS:
            result = render(template, bos, eos, {"messages": messages, **variant})
            # The test has the tools from elsewhere.
            flags = {k: True if k == "tools" else v for k, v in variant.items()}
            out.append({"title": title, **flags, **result})
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--templates", type=Path, metavar="DIR",
                        help="directory of other templates, for a check by hand")
    args = parser.parse_args()
    directory = args.templates or DATA / "templates"
    jobs = [(path.name, path, "<s>", "</s>", path.with_suffix(".json"))
            for path in sorted(directory.glob("*.jinja"))]
    conversations = CONVERSATIONS | MORE
    for more in ONLY.values():
        assert not conversations.keys() & more.keys(), "two conversations of one name"
        conversations |= more
    shared = json.dumps({"tools": TOOLS, "conversations": conversations}, indent=1)
    (directory / "conversations.json").write_text(shared + "\n")
    for name, source, bos, eos, out in jobs:
        cases = renderings(name, source.read_text(), bos, eos)
        lines = ",\n".join("  " + json.dumps(c, separators=(",", ":")) for c in cases)
        head = {"source": f"transformers {transformers.__version__}, Jinja2 {jinja2.__version__}",
                "now": NOW, "bos": bos, "eos": eos}
        out.write_text(json.dumps(head)[:-1] + f',\n "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
