"""What lists tell of a server's tools: what they take and give, and what goes into headers.

Rules: a tool that no list has told of is called all the same. A schema that cannot be used is said
once, and checks nothing. A tool whose headers nobody can make is left out, with a warning.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from colonnade.client.offered import Tool
from colonnade.errors import Fault, ProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.httprules_params import ParamHeader, headers_for_call, param_headers
from colonnade.protocol.schema import Validator
from colonnade.protocol.shape_schema import WRAPPED, is_object_schema

log: logging.Logger = logging.getLogger("colonnade.client")


class Tools:
    """What the lists of one server told of its tools."""

    def __init__(self, server: str) -> None:
        self._server = server
        # What each tool takes, by its name; what it gives, and which of its arguments go into
        # headers, too, for those of which this is known.
        self.inputs: dict[str, dict[str, Any]] = {}
        self.outputs: dict[str, dict[str, Any]] = {}
        self.mirrored: dict[str, tuple[ParamHeader, ...]] = {}
        # Whether they were listed, or that was tried for what they give.
        self.asked: bool = False
        self._validators: dict[str, Validator | None] = {}

    def clear(self) -> None:
        """Nothing is known any more: they have changed, or the server is another one."""
        self.inputs.clear()
        self.asked = False
        self.outputs.clear()
        self._validators.clear()
        self.mirrored.clear()

    def learn(self, tools: Iterable[t.Tool], *, mirrors: bool, stale: bool = False) -> list[Tool]:
        """Remember what the whole list tells; those in it that can be used, nearly always all.

        `mirrors` is whether arguments go into headers here. Of a list that is `stale`, because
        news came while it was on its way, no promise is remembered: it may have been changed, and
        nobody is to be accused of that. Headers are: those that are wrong are asked for again.
        """
        self.clear()
        self.asked = True
        usable: list[Tool] = []
        for tool in tools:
            if mirrors and not self._mirror(tool):
                continue
            usable.append(Tool.of(tool))
            self.inputs[tool.name] = tool.input_schema
            if tool.output_schema is not None and not stale:
                self.outputs[tool.name] = tool.output_schema
        return usable

    def _mirror(self, tool: t.Tool) -> bool:
        try:
            headers = param_headers(tool.input_schema)
        except ProtocolError as error:  # R0884, R0885, R0992, R0993
            words = "server %r: the tool %.80r is left out: %s"
            log.warning(words, self._server, tool.name, error)
            return False
        if headers:
            self.mirrored[tool.name] = headers
        return True

    def headers(self, call: t.CallToolRequestParams) -> tuple[tuple[str, str], ...]:
        """The headers that mirror the arguments of a call, as far as a list has told of any."""
        params = self.mirrored.get(call.name)
        if params is None:
            return ()
        return tuple(headers_for_call(params, msgspec.json.decode(call.arguments or b"{}")))

    def wraps(self, tool: str, meta: Mapping[str, Any], *, bare: bool) -> bool:
        """Whether `{"result": value}` is the value of this tool in a wrapper, as far as is known.
        `bare` is where values need no wrapper, so that only some servers use one.
        """
        fastmcp: object = meta.get("fastmcp")
        if isinstance(fastmcp, dict) and cast("dict[str, Any]", fastmcp).get("wrap_result") is True:
            return True
        schema = self.outputs.get(tool)
        if schema is not None:
            return _is_wrapper(schema, bare=bare)
        return not bare

    def output(self, tool: str) -> Validator | None:
        """What the structured content of a tool must fit, where a list has told of it."""
        if tool not in self.outputs:
            return None
        if tool not in self._validators:
            self._validators[tool] = self._compiled(tool, self.outputs[tool])
        return self._validators[tool]

    def _compiled(self, tool: str, schema: dict[str, Any]) -> Validator | None:
        try:
            validator = Validator(schema)
            validator.compile()
        except Fault as fault:
            words = "server %r: what %.80r gives is not checked: %s"
            log.warning(words, self._server, tool, fault.message)
            return None
        return validator


def _is_wrapper(schema: Mapping[str, Any], *, bare: bool) -> bool:
    """Whether an output schema is that of a value in a wrapper.

    FastMCP marks its own; the official SDK gives them a title of its own making, where those of
    other objects are named after their class. Without either it is a wrapper where one is needed.
    """
    if schema.get("x-fastmcp-wrap-result") is True:
        return True
    properties: object = schema.get("properties")
    members = list(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else []
    if not is_object_schema(dict(schema)) or members != [WRAPPED]:
        return False
    if schema.get("required") != [WRAPPED]:
        return False
    title: object = schema.get("title")
    return title.endswith("Output") if isinstance(title, str) else not bare
