"""How things come to be offered: the decorators, and what they make of a function.

Rules: a decorated function stays a plain function. What could not work is refused here, when it is
registered, in words that name the function and the parameter.
"""

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

from colonnade.errors import Fault, InvalidArgument, InvalidArgumentType
from colonnade.protocol import types as t
from colonnade.protocol.codec.downgrade import is_object_schema
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.schema.error_messages import suggestion
from colonnade.protocol.schema.validate import Types, admitted_types
from colonnade.server.handlers.content import named_meta
from colonnade.server.handlers.function import Bound, HandlerEnvironment, name_of
from colonnade.server.handlers.tools import BoundTool
from colonnade.server.registry import (
    Catalogue,
    Entry,
    PromptEntry,
    ResourceEntry,
    Shelf,
    TemplateEntry,
    ToolEntry,
)
from colonnade.signatures.signature import Parameter

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Unpack

    from colonnade.protocol.http.param_headers import ParamHeader
    from colonnade.server.handlers.completion import CompletionFunction
    from colonnade.server.options import PromptOptions, ResourceOptions, ToolOptions

log: logging.Logger = logging.getLogger("colonnade.server")

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=Entry)

# What every revision and every model provider takes; others are warned about, never refused.
GOOD_SIGNS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
GOOD_LENGTHS = range(1, 129)
# RFC 3986: a scheme, and after it what may stand as it is, or encoded.
GOOD_URI = r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
EXPRESSION = r"\{[^{}]*\}"


class Offering:
    """What a server offers, and the decorators that add to it."""

    def __init__(self, catalogue: Catalogue, surroundings: HandlerEnvironment) -> None:
        self._catalogue = catalogue
        self._surroundings = surroundings
        self._offered: dict[Any, list[tuple[str, Entry]]] = {}

    @property
    def tools(self) -> Shelf[ToolEntry]:
        """The tools by name."""
        return self._catalogue.tools

    @property
    def resources(self) -> Shelf[ResourceEntry]:
        """The resources by address."""
        return self._catalogue.resources

    @property
    def templates(self) -> Shelf[TemplateEntry]:
        """The templates by their text."""
        return self._catalogue.templates

    @property
    def prompts(self) -> Shelf[PromptEntry]:
        """The prompts by name."""
        return self._catalogue.prompts

    # ------------------------------------------------------------ tools

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, /, **options: "Unpack[ToolOptions]") -> Callable[[F], F]: ...
    def tool(self, function: Any = None, /, **options: "Unpack[ToolOptions]") -> Any:
        """Offer a function as a tool: `@server.tool`, or with keywords.

        What is listed: `name`, `title`, `description`, `icons`, `input_schema`, `output_schema`,
        `meta`, and the hints `read_only`, `destructive`, `idempotent`, `open_world`. How it runs:
        `timeout_s`, `inline` (in no thread), `single_use`, `structured_only`. For whom: `scopes`;
        `tags` are for `enable` and `disable`.
        """

        def decorate(function: F) -> F:
            self._add_tool(function, options)
            return function

        _check_keywords("@server.tool", options, "ToolOptions")
        return _decorated(function, decorate, "tool")

    def _add_tool(self, function: Callable[..., Any], options: "ToolOptions") -> None:
        name = name_of(function, options.get("name"))
        bound = BoundTool(
            function,
            name,
            self._surroundings,
            inline=options.get("inline", False),
            timeout_s=options.get("timeout_s"),
            text=not options.get("structured_only", False),
            single_use=options.get("single_use", False),
            input_schema=options.get("input_schema"),
            output_schema=options.get("output_schema"),
        )
        output = bound.output_schema
        hints = t.ToolAnnotations(
            read_only_hint=options.get("read_only"),
            destructive_hint=options.get("destructive"),
            idempotent_hint=options.get("idempotent"),
            open_world_hint=options.get("open_world"),
        )
        noun = t.Tool(
            name=name,
            title=options.get("title"),
            description=options.get("description") or bound.signature.docs.text or None,
            input_schema=options.get("input_schema") or bound.signature.schema,
            output_schema=output,
            annotations=hints if hints != t.ToolAnnotations() else None,
            icons=options.get("icons"),
            meta=named_meta(options.get("meta"), name),
        )
        entry = ToolEntry(
            noun=noun,
            run=bound.run,
            headers=_mirrored(noun.input_schema, bound.signature.schema),
            wraps=None if output is None else not is_object_schema(output),
            tags=frozenset(options.get("tags", ())),
            scopes=frozenset(options.get("scopes", ())),
            logs=bound.knows_context,
        )
        self._add(self.tools, name, entry, function, "tool")

    # ------------------------------------------------------------ resources

    def resource(self, uri: str, /, **options: "Unpack[ResourceOptions]") -> Callable[[F], F]:
        """Offer a function as a resource, or as many where the address is a template.

        Keywords: `name`, `title`, `description`, `mime_type`, `size`, `icons`, `annotations`,
        `meta`, `ttl_s`, `cache_scope`, `inline`, `scopes`, `tags`.
        """
        if not isinstance(uri, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentType(
                "a resource needs its address: @server.resource('notes://a')", argument="uri"
            )
        _check_keywords("@server.resource", options, "ResourceOptions")

        def decorate(function: F) -> F:
            _check_uri(uri)
            name = options.get("name") or getattr(function, "__name__", "") or uri
            bound = Bound(function, name, self._surroundings, inline=options.get("inline", False))
            if "{" in uri:
                self._add_template(uri, bound, options)
            else:
                self._add_resource(uri, bound, options)
            return function

        return decorate

    def _add_resource(self, uri: str, bound: Bound, options: "ResourceOptions") -> None:
        if bound.signature.parameters:
            names = [parameter.name for parameter in bound.signature.parameters]
            raise InvalidArgument(
                f"{bound.name}: {uri} has no variables, but the function takes {names}; write "
                f"{{{names[0]}}} where it belongs in the address",
                argument="uri",
            )
        noun = t.Resource(
            uri=uri,
            name=bound.name,
            title=options.get("title"),
            description=options.get("description") or bound.signature.docs.text or None,
            mime_type=options.get("mime_type"),
            size=options.get("size"),
            icons=options.get("icons"),
            annotations=_annotations(options, bound.name),
            meta=named_meta(options.get("meta"), bound.name),
        )
        entry = ResourceEntry(noun=noun, run=_reader(bound, options), logs=bound.knows_context)
        _label(entry, options.get("tags"), options.get("scopes"))
        self._add(self.resources, uri, entry, bound.function, "resource")

    def _add_template(self, uri: str, bound: Bound, options: "ResourceOptions") -> None:
        from colonnade.protocol.uritemplate import UriTemplate

        template = UriTemplate(uri)
        parameters = {parameter.wire_name: parameter for parameter in bound.signature.parameters}
        strangers = [name for name in template.variables if name not in parameters]
        lacking = [p.name for p in parameters.values() if p.required]
        lacking = [name for name in lacking if name not in template.variables]
        if strangers:
            raise InvalidArgument(
                f"{bound.name}: {uri} has {strangers}, which the function does not take; it takes "
                f"{list(parameters)}: add a parameter, or take it out of the address",
                argument="uri",
            )
        for name in template.lists:
            if "array" not in _kinds(parameters[name]):
                raise InvalidArgument(
                    f"{bound.name}: {{{name}*}} in {uri} gives a list, and {name!r} takes none, so "
                    f"nothing would ever match; write {{+{name}}} for a path with slashes in it, "
                    f"or take {name}: list[str]",
                    argument="uri",
                )
        if lacking:
            raise InvalidArgument(
                f"{bound.name}: the function needs {lacking}, which {uri} does not have; write "
                f"{{{lacking[0]}}} where it belongs, or give it a default",
                argument="uri",
            )
        noun = t.ResourceTemplate(
            uri_template=uri,
            name=bound.name,
            title=options.get("title"),
            description=options.get("description") or bound.signature.docs.text or None,
            mime_type=options.get("mime_type"),
            icons=options.get("icons"),
            annotations=_annotations(options, bound.name),
            meta=named_meta(options.get("meta"), bound.name),
        )
        entry = TemplateEntry(
            noun=noun,
            template=template,
            run=_reader(bound, options),
            logs=bound.knows_context,
            completers=_listed(bound),
        )
        _label(entry, options.get("tags"), options.get("scopes"))
        self._add(self.templates, uri, entry, bound.function, "template")

    def files(
        self,
        uri: str,
        folder: "str | Path",
        *,
        hidden: bool = False,
        **options: "Unpack[ResourceOptions]",
    ) -> None:
        """Offer the files of a folder: `server.files("docs://", "./docs")`. Nothing leads out."""
        from pathlib import Path

        from colonnade.server.handlers.resources import DIRECTORY_TYPE, Folder, reading

        prefix = uri if uri.endswith("/") else f"{uri}/"
        root = Folder(folder, hidden=hidden)
        options.setdefault("name", Path(folder).name or "files")
        options.setdefault("description", f"The files of {Path(folder).name}, by their path.")
        self.resource(prefix + "{+path}", **options)(reading(root, prefix))
        # A template has no name for the folder itself, and without one nobody finds its files.
        whole: ResourceOptions = {**options, "mime_type": DIRECTORY_TYPE}
        self.resource(prefix, **whole)(lambda: root.read("", prefix))

    # ------------------------------------------------------------ prompts

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, /, **options: "Unpack[PromptOptions]") -> Callable[[F], F]: ...
    def prompt(self, function: Any = None, /, **options: "Unpack[PromptOptions]") -> Any:
        """Offer a function as a prompt: `@server.prompt`, or with keywords.

        Keywords: `name`, `title`, `description`, `icons`, `meta`, `inline`, `scopes`, `tags`.
        """

        def decorate(function: F) -> F:
            self._add_prompt(function, options)
            return function

        _check_keywords("@server.prompt", options, "PromptOptions")
        return _decorated(function, decorate, "prompt")

    def _add_prompt(self, function: Callable[..., Any], options: "PromptOptions") -> None:
        from colonnade.server.handlers.resources import (
            prompter,  # on use, as `ResourceReader` below
        )

        name = name_of(function, options.get("name"))
        bound = Bound(function, name, self._surroundings, inline=options.get("inline", False))
        arguments = [
            t.PromptArgument(
                name=parameter.wire_name,
                title=parameter.schema.get("title"),
                description=parameter.schema.get("description"),
                required=parameter.required,
            )
            for parameter in bound.signature.parameters
        ]
        noun = t.Prompt(
            name=name,
            title=options.get("title"),
            description=options.get("description") or bound.signature.docs.text or None,
            arguments=arguments or None,
            icons=options.get("icons"),
            meta=named_meta(options.get("meta"), name),
        )
        entry = PromptEntry(
            noun=noun,
            run=prompter(bound, noun.description),
            logs=bound.knows_context,
            completers=_listed(bound),
        )
        _label(entry, options.get("tags"), options.get("scopes"))
        self._add(self.prompts, name, entry, function, "prompt")

    # ------------------------------------------------------------ completions

    def completion(self, of: Callable[..., Any] | str, argument: str, /) -> Callable[[F], F]:
        """Complete an argument of a prompt or a template: the function, its name or address."""
        entries = self._completable(of)
        name = of if isinstance(of, str) else getattr(of, "__name__", repr(of))
        if not entries:
            raise InvalidArgument(
                f"{name!r} is no prompt and no template here; register it before its completion",
                argument="name",
            )
        for entry in entries:
            known = _arguments(entry)
            if argument not in known:
                raise InvalidArgument(
                    f"{name!r} has no argument {argument!r} to complete; it has {known}",
                    argument="argument",
                )

        def decorate(function: F) -> F:
            name = getattr(function, "__name__", argument)
            from colonnade.server.handlers.completion import from_function

            completer = from_function(Bound(function, name, self._surroundings))
            for entry in entries:
                entry.completers = {**entry.completers, argument: completer}
            self._catalogue.touched()
            return function

        return decorate

    def _completable(self, of: Callable[..., Any] | str) -> list[Entry]:
        if isinstance(of, str):
            found: list[Entry | None] = [self.prompts.get(of), self.templates.get(of)]
            return [entry for entry in found if entry is not None]
        return [
            entry for kind, entry in self._offered.get(of, ()) if kind in ("prompt", "template")
        ]

    # ------------------------------------------------------------ all of them

    def _add(self, shelf: Shelf[E], name: str, entry: E, function: Any, kind: str) -> None:
        good = len(name) in GOOD_LENGTHS and GOOD_SIGNS.issuperset(name)
        if kind in ("tool", "prompt") and not good:
            log.warning(
                "the %s %r: some clients hide names that are not 1 to 128 of A-Z a-z 0-9 _ . -; "
                "call it %r",
                kind,
                name,
                re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:128],
            )
        if name in shelf:
            log.warning(
                "the %s %r is offered twice; the later one counts: give one of them another name",
                kind,
                name,
            )
        shelf.add(name, entry)
        self._offered.setdefault(function, []).append((kind, entry))


def _check_uri(uri: str) -> None:
    """R0372: RFC 3986 has no spaces and no letters beyond ASCII."""
    if "{" not in (plain := re.sub(EXPRESSION, "", uri)) and not re.fullmatch(GOOD_URI, plain):
        from urllib.parse import quote

        better = quote(uri, safe=":/?#[]@!$&'()*+,;=%~{}")
        hint = better if re.fullmatch(GOOD_URI, re.sub(EXPRESSION, "", better)) else "notes://today"
        raise InvalidArgument(
            f"{uri!r} is not the address of a resource; write one like {hint!r}", argument="uri"
        )


def _decorated(function: Any, decorate: Callable[[Any], Any], kind: str) -> Any:
    if function is None:
        return decorate
    if isinstance(function, str):
        raise InvalidArgumentType(
            f"@server.{kind} takes nothing but keywords: write @server.{kind}(name={function!r})"
        )
    return decorate(function)


def _check_keywords(whose: str, options: Any, table: str) -> None:
    if not options:
        return
    from colonnade.server import options as tables

    known: frozenset[str] = vars(tables)[table].__optional_keys__
    """A keyword that is ignored may be the one that kept others out: `scope` for `scopes`."""
    for name in options:
        if name not in known:
            written = tables.KEYWORDS.get(whose, {}).get(name)
            if whose == "@server.tool" and name == "annotations":
                written = tables.spelled_annotations(options[name]) or written
            hint = f"; {written}" if written else suggestion(name, sorted(known))
            hint = hint or f"; there are {', '.join(sorted(known))}"
            raise InvalidArgumentType(f"{whose} has no keyword {name!r}{hint}", argument=name)


# The kinds of lists that may be kept for a time of their own.
LISTS = ("tools", "prompts", "resources", "resource_templates")


def checked_ttls(
    ttl_s: float | Mapping[str, float] | None, scope: str | None, whose: str
) -> dict[str, int]:
    """For how many milliseconds each kind of list keeps, of those for which that was said."""
    given = ttl_s if isinstance(ttl_s, Mapping) else dict.fromkeys(LISTS, ttl_s)
    for kind in given:
        if kind not in LISTS:
            hint = suggestion(kind, LISTS) or f"; there are {', '.join(LISTS)}"
            raise InvalidArgument(f"{whose}: ttl_s has no list {kind!r}{hint}", argument="ttl_s")
    checked = {kind: checked_ttl(seconds, scope, whose) for kind, seconds in given.items()}
    checked_ttl(None, scope, whose)
    return {kind: ttl_ms for kind, ttl_ms in checked.items() if ttl_ms is not None}


def checked_ttl(ttl_s: float | None, scope: str | None, whose: str) -> int | None:
    """For how many milliseconds something keeps. Raises for what R1011 does not allow."""
    if ttl_s is not None and not (math.isfinite(ttl_s) and ttl_s >= 0):
        raise InvalidArgument(
            f"{whose}: ttl_s is {ttl_s}; give seconds, 0 or more", argument="ttl_s"
        )
    if scope is not None and scope not in get_args(t.CacheScope):
        raise InvalidArgument(
            f"{whose}: cache_scope is 'public' or 'private', not {scope!r}", argument="cache_scope"
        )
    return round(ttl_s * 1000) if ttl_s is not None else None


def _reader(bound: Bound, options: "ResourceOptions") -> Any:
    from colonnade.server.handlers.resources import ResourceReader

    scope = options.get("cache_scope")
    ttl_ms = checked_ttl(options.get("ttl_s"), scope, bound.name)
    return ResourceReader(bound, options.get("mime_type"), ttl_ms, scope).run


def _annotations(options: "ResourceOptions", name: str) -> t.Annotations | None:
    """For whom a resource is, and how much it matters; a dict as the protocol has it, too."""
    given: Any = options.get("annotations")
    if given is None or isinstance(given, t.Annotations):
        return given
    from colonnade.protocol.codec.decode import convert_to

    try:
        return convert_to(t.Annotations, given)
    except Fault as fault:
        raise InvalidArgument(
            f"{name}: annotations: {fault.message}", argument="annotations"
        ) from None


def _kinds(parameter: Parameter) -> Types:
    """The JSON types that a parameter says it takes; none where it says nothing."""
    schema = parameter.schema
    said = schema.keys() & {"type", "anyOf", "oneOf", "$ref", "enum", "const"}
    return admitted_types(schema, schema) if said else frozenset()


def _label(entry: Entry, tags: Iterable[str] | None, scopes: Iterable[str] | None) -> None:
    entry.tags = frozenset(tags or ())
    entry.scopes = frozenset(scopes or ())


def _mirrored(schema: dict[str, Any], own: dict[str, Any]) -> "tuple[ParamHeader, ...]":
    """The arguments that are mirrored in headers; what looks for them is loaded where some are."""
    if schema is own and b'"x-mcp-header"' not in encode(schema):
        return ()
    from colonnade.protocol.http.param_headers import param_headers

    return param_headers(schema)


def _listed(bound: Bound) -> "dict[str, CompletionFunction]":
    from colonnade.server.handlers.completion import listed

    found = {parameter.wire_name: listed(parameter) for parameter in bound.signature.parameters}
    return {name: completer for name, completer in found.items() if completer is not None}


def _arguments(entry: Entry) -> list[str]:
    if isinstance(entry, PromptEntry):
        return [argument.name for argument in entry.noun.arguments or ()]
    return list(entry.template.variables) if isinstance(entry, TemplateEntry) else []
