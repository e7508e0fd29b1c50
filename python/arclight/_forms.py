"""Types as JSON schemas, and functions as tools."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal


def schema_of(form: Any) -> Any:
    """The JSON schema of a form: a schema itself, as ``dict`` or text, or a type.

    Raises:
        TypeError: It is none of these, or a type that takes Pydantic, which is not installed.
    """
    if isinstance(form, (str, bool)):
        return form
    if isinstance(form, Mapping):
        return dict(form)
    if hasattr(form, "model_json_schema"):
        return form.model_json_schema()
    try:
        import pydantic
    except ModuleNotFoundError as e:
        raise TypeError(
            f"{form!r} is no JSON schema; with Pydantic (pip install arclight[pydantic]) it may be a type"
        ) from e
    try:
        return pydantic.TypeAdapter(form).json_schema()
    except pydantic.PydanticUserError as e:
        raise TypeError(f"{form!r} has no JSON schema: {e}") from e


def parse_as(form: Any, text: str) -> Any:
    """A JSON text as the value of a form: an object of its type, or what ``json.loads`` gives."""
    if hasattr(form, "model_validate_json"):
        return form.model_validate_json(text)
    if isinstance(form, (str, bool, Mapping)) or form is None:
        return json.loads(text)
    import pydantic

    return pydantic.TypeAdapter(form).validate_json(text)


def tool_of(tool: Any) -> dict[str, Any]:
    """A tool in OpenAI's form: one that is so already, or a function, of whose name, signature and docstring it is
    made.

    The first paragraph of the docstring is the description; lines of its section ``Args:`` (Google) or ``:param name:``
    (Sphinx) describe parameters. Those with a default may be left out by the model.

    Raises:
        TypeError: A parameter has no annotation, or one that has no schema, or takes any number of arguments.
    """
    if isinstance(tool, Mapping):
        return dict(tool)
    if not callable(tool):
        raise TypeError(f"a tool must be a function or a dict in OpenAI's form, and not {type(tool).__name__}")
    name = getattr(tool, "__name__", type(tool).__name__)
    described, of_parameters = _docstring(inspect.getdoc(tool) or "")
    hints = typing.get_type_hints(tool, include_extras=True)
    properties: dict[str, Any] = {}
    required = []
    for parameter in inspect.signature(tool).parameters.values():
        at = f"the parameter {parameter.name!r} of the tool {name}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{at} cannot be named in a call: a tool's parameters must have names")
        if parameter.name not in hints:
            raise TypeError(f"{at} has no annotation, so its schema is not known")
        schema = _schema(hints[parameter.name], at)
        if parameter.name in of_parameters:
            schema = {**schema, "description": of_parameters[parameter.name]}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        properties[parameter.name] = schema
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    function: dict[str, Any] = {"name": name, "parameters": parameters}
    if described:
        function["description"] = described
    return {"type": "function", "function": function}


_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    dict: {"type": "object"},
    list: {"type": "array"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
}


def _schema(hint: Any, at: str) -> dict[str, Any]:
    """The schema of a type: of plain ones without Pydantic."""
    if hint in _SIMPLE:
        return dict(_SIMPLE[hint])
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        schema = _schema(args[0], at)
        texts = [extra for extra in args[1:] if isinstance(extra, str)]
        return {**schema, "description": texts[0]} if texts else schema
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (list, Sequence, set, frozenset) and len(args) == 1:
        return {"type": "array", "items": _schema(args[0], at)}
    if origin is dict and args[0] is str:
        return {"type": "object", "additionalProperties": _schema(args[1], at)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(arg, at) for arg in args]}
    try:
        schema = schema_of(hint)
    except TypeError as e:
        raise TypeError(f"{at}: {e}") from e
    if not isinstance(schema, dict):
        raise TypeError(f"{at}: {hint!r} is no type")
    return schema


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and what is said of parameters."""
    first = " ".join(text.split("\n\n")[0].split())
    if re.match(r"(Args|Arguments|Parameters):|:param ", first):
        first = ""
    described = {name: " ".join(said.split()) for name, said in re.findall(r":param (?:\S+ )?(\w+): *(.+)", text)}
    section = re.search(r"^(?:Args|Arguments|Parameters):\n((?:[ \t]+.*\n?|\n)+)", text, re.MULTILINE)
    if section:
        lines = section.group(1).rstrip().splitlines()
        indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        name = ""
        for line in lines:
            entry = re.match(r"(\w+)(?: *\([^)]*\))? *: *(.*)", line[indent:])
            if entry:
                name = entry.group(1)
                described[name] = entry.group(2).strip()
            elif name and line.strip():
                described[name] = f"{described[name]} {line.strip()}".strip()
    return first, described


Tool = Callable[..., Any] | Mapping[str, Any]
