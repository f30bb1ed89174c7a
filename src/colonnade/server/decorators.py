"""The decorators of a server: `@server.tool`, `@server.resource`, `@server.prompt`.

Rules: a decorated function stays a plain function. A function that could not work is refused when
it is registered, with an error that names the function and the parameter.
"""

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

from msgspec import UNSET
from msgspec.structs import replace

from colonnade.errors import Fault, InvalidArgument, InvalidArgumentType
from colonnade.protocol import types as t
from colonnade.protocol.codec.downgrade import is_object_schema
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.schema.error_messages import suggestion
from colonnade.protocol.schema.validate import Types, admitted_types
from colonnade.server.handlers.content import check_meta
from colonnade.server.handlers.function import Bound, HandlerEnvironment, name_of
from colonnade.server.handlers.tools import BoundTool
from colonnade.server.registry import (
    Entry,
    PromptEntry,
    Registry,
    ResourceEntry,
    RunTool,
    ServerRegistry,
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
    from colonnade.server.tasks.options import TaskTool

log: logging.Logger = logging.getLogger("colonnade.server")

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=Entry)

# Names that every revision and model provider accepts; others are logged, never refused.
GOOD_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
GOOD_LENGTHS = range(1, 129)
# RFC 3986: a scheme, then reserved, unreserved and percent-encoded characters.
GOOD_URI = r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
EXPRESSION = r"\{[^{}]*\}"


class Decorators:
    """The registries of a server, and the decorators that add to them."""

    def __init__(self, registry: ServerRegistry, environment: HandlerEnvironment) -> None:
        self._registry = registry
        self._environment = environment
        self._registered: dict[Any, list[tuple[str, Entry]]] = {}

    @property
    def tools(self) -> Registry[ToolEntry]:
        """The tools by name."""
        return self._registry.tools

    @property
    def resources(self) -> Registry[ResourceEntry]:
        """The resources by URI."""
        return self._registry.resources

    @property
    def templates(self) -> Registry[TemplateEntry]:
        """The resource templates by URI template."""
        return self._registry.templates

    @property
    def prompts(self) -> Registry[PromptEntry]:
        """The prompts by name."""
        return self._registry.prompts

    # ------------------------------------------------------------ tools

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, /, **options: "Unpack[ToolOptions]") -> Callable[[F], F]: ...
    def tool(self, function: Any = None, /, **options: "Unpack[ToolOptions]") -> Any:
        """Register a function as a tool: `@server.tool`, or with keywords.

        Listed: `name`, `title`, `description`, `icons`, `input_schema`, `output_schema`, `meta`,
        and the annotations `read_only`, `destructive`, `idempotent`, `open_world`. Execution:
        `timeout_s`, `inline` (not in a thread), `single_use`, `structured_only`. Access: `scopes`;
        `tags` are for `enable` and `disable`. Tasks: `task=True` runs it as a task for clients that
        support that, `task="required"` for no others; `max_run_s` limits a run, `keep_s` is how
        long its result is kept.
        """

        def decorate(function: F) -> F:
            self._add_tool(function, options)
            return function

        _check_keywords("@server.tool", options, "ToolOptions")
        return _apply(function, decorate, "tool")

    def _add_tool(self, function: Callable[..., Any], options: "ToolOptions") -> None:
        name = name_of(function, options.get("name"))
        bound = BoundTool(
            function,
            name,
            self._environment,
            inline=options.get("inline", False),
            timeout_s=options.get("timeout_s"),
            text=not options.get("structured_only", False),
            single_use=options.get("single_use", False),
            input_schema=options.get("input_schema"),
            output_schema=options.get("output_schema", UNSET),
        )
        output = bound.output_schema
        hints = t.ToolAnnotations(
            read_only_hint=options.get("read_only"),
            destructive_hint=options.get("destructive"),
            idempotent_hint=options.get("idempotent"),
            open_world_hint=options.get("open_world"),
        )
        definition = t.Tool(
            name=name,
            title=options.get("title"),
            description=options.get("description") or bound.signature.docs.text or None,
            input_schema=options.get("input_schema") or bound.signature.schema,
            output_schema=output,
            annotations=hints if hints != t.ToolAnnotations() else None,
            icons=options.get("icons"),
            meta=check_meta(options.get("meta"), name),
        )
        entry = ToolEntry(
            definition=definition,
            run=bound.run,
            headers=_find_param_headers(definition.input_schema, bound.signature.schema),
            wraps=None if output is None else not is_object_schema(output),
            tags=frozenset(options.get("tags", ())),
            scopes=frozenset(options.get("scopes", ())),
            logs=bound.uses_context,
        )
        if options.get("task") or "keep_s" in options or "max_run_s" in options:
            self._make_task_tool(entry, bound, options)
        self._add(self.tools, name, entry, function, "tool")

    def _make_task_tool(self, entry: ToolEntry, bound: BoundTool, options: "ToolOptions") -> None:
        from colonnade.server.tasks.options import task_tool

        tool = task_tool(bound, options)
        execution = t.ToolExecution(task_support=tool.support)
        entry.definition = replace(entry.definition, execution=execution)
        entry.task = tool
        entry.run = self._run_task_tool(tool)

    def _run_task_tool(self, tool: "TaskTool") -> RunTool:
        """The handler of a tool that can run as a task of this server."""
        raise NotImplementedError

    # ------------------------------------------------------------ resources

    def resource(self, uri: str, /, **options: "Unpack[ResourceOptions]") -> Callable[[F], F]:
        """Register a function as a resource, or as a template if the URI has variables.

        Keywords: `name`, `title`, `description`, `mime_type`, `size`, `icons`, `annotations`,
        `meta`, `ttl_s`, `cache_scope`, `inline`, `scopes`, `tags`.
        """
        if not isinstance(uri, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentType(
                "a resource needs its URI: @server.resource('notes://a')", argument="uri"
            )
        _check_keywords("@server.resource", options, "ResourceOptions")

        def decorate(function: F) -> F:
            _check_uri(uri)
            name = options.get("name") or getattr(function, "__name__", "") or uri
            bound = Bound(function, name, self._environment, inline=options.get("inline", False))
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
                f"{{{names[0]}}} in the URI",
                argument="uri",
            )
        definition = t.Resource(
            uri=uri,
            name=bound.name,
            title=options.get("title"),
            description=options.get("description") or bound.signature.docs.text or None,
            mime_type=options.get("mime_type"),
            size=options.get("size"),
            icons=options.get("icons"),
            annotations=_annotations(options, bound.name),
            meta=check_meta(options.get("meta"), bound.name),
        )
        entry = ResourceEntry(
            definition=definition, run=_make_reader(bound, options), logs=bound.uses_context
        )
        _set_tags_and_scopes(entry, options.get("tags"), options.get("scopes"))
        self._add(self.resources, uri, entry, bound.function, "resource")

    def _add_template(self, uri: str, bound: Bound, options: "ResourceOptions") -> None:
        from colonnade.protocol.uritemplate import UriTemplate

        template = UriTemplate(uri)
        parameters = {parameter.wire_name: parameter for parameter in bound.signature.parameters}
        unknown = [name for name in template.variables if name not in parameters]
        missing_names = [p.name for p in parameters.values() if p.required]
        missing_names = [name for name in missing_names if name not in template.variables]
        if unknown:
            raise InvalidArgument(
                f"{bound.name}: {uri} has {unknown}, which the function does not take; it takes "
                f"{list(parameters)}: add a parameter, or remove the variable from the URI",
                argument="uri",
            )
        for name in template.lists:
            if "array" not in _json_types(parameters[name]):
                raise InvalidArgument(
                    f"{bound.name}: {{{name}*}} in {uri} is a list, and {name!r} is not a list, so "
                    f"no URI would match; write {{+{name}}} for a path with slashes, or declare "
                    f"{name}: list[str]",
                    argument="uri",
                )
        if missing_names:
            raise InvalidArgument(
                f"{bound.name}: the function needs {missing_names}, which {uri} does not have; add "
                f"{{{missing_names[0]}}} to the URI, or give the parameter a default",
                argument="uri",
            )
        definition = t.ResourceTemplate(
            uri_template=uri,
            name=bound.name,
            title=options.get("title"),
            description=options.get("description") or bound.signature.docs.text or None,
            mime_type=options.get("mime_type"),
            icons=options.get("icons"),
            annotations=_annotations(options, bound.name),
            meta=check_meta(options.get("meta"), bound.name),
        )
        entry = TemplateEntry(
            definition=definition,
            template=template,
            run=_make_reader(bound, options),
            logs=bound.uses_context,
            completers=_completers(bound),
        )
        _set_tags_and_scopes(entry, options.get("tags"), options.get("scopes"))
        self._add(self.templates, uri, entry, bound.function, "template")

    def files(
        self,
        uri: str,
        folder: "str | Path",
        *,
        hidden: bool = False,
        **options: "Unpack[ResourceOptions]",
    ) -> None:
        """Register the files of a directory: `server.files("docs://", "./docs")`. Links and `..`
        that lead out of it are refused."""
        from pathlib import Path

        from colonnade.server.handlers.resources import DIRECTORY_TYPE, Folder, make_reader

        prefix = uri if uri.endswith("/") else f"{uri}/"
        root = Folder(folder, hidden=hidden)
        options.setdefault("name", Path(folder).name or "files")
        options.setdefault("description", f"The files of {Path(folder).name}, by their path.")
        self.resource(prefix + "{+path}", **options)(make_reader(root, prefix))
        # The template does not match the directory itself, whose listing names its files.
        whole: ResourceOptions = {**options, "mime_type": DIRECTORY_TYPE}
        self.resource(prefix, **whole)(lambda: root.read("", prefix))

    # ------------------------------------------------------------ prompts

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, /, **options: "Unpack[PromptOptions]") -> Callable[[F], F]: ...
    def prompt(self, function: Any = None, /, **options: "Unpack[PromptOptions]") -> Any:
        """Register a function as a prompt: `@server.prompt`, or with keywords.

        Keywords: `name`, `title`, `description`, `icons`, `meta`, `inline`, `scopes`, `tags`.
        """

        def decorate(function: F) -> F:
            self._add_prompt(function, options)
            return function

        _check_keywords("@server.prompt", options, "PromptOptions")
        return _apply(function, decorate, "prompt")

    def _add_prompt(self, function: Callable[..., Any], options: "PromptOptions") -> None:
        from colonnade.server.handlers.resources import (
            make_prompt_handler,  # on use, as `ResourceReader` below
        )

        name = name_of(function, options.get("name"))
        bound = Bound(function, name, self._environment, inline=options.get("inline", False))
        arguments = [
            t.PromptArgument(
                name=parameter.wire_name,
                title=parameter.schema.get("title"),
                description=parameter.schema.get("description"),
                required=parameter.required,
            )
            for parameter in bound.signature.parameters
        ]
        definition = t.Prompt(
            name=name,
            title=options.get("title"),
            description=options.get("description") or bound.signature.docs.text or None,
            arguments=arguments or None,
            icons=options.get("icons"),
            meta=check_meta(options.get("meta"), name),
        )
        entry = PromptEntry(
            definition=definition,
            run=make_prompt_handler(bound, definition.description),
            logs=bound.uses_context,
            completers=_completers(bound),
        )
        _set_tags_and_scopes(entry, options.get("tags"), options.get("scopes"))
        self._add(self.prompts, name, entry, function, "prompt")

    # ------------------------------------------------------------ completions

    def completion(self, of: Callable[..., Any] | str, argument: str, /) -> Callable[[F], F]:
        """Complete an argument of a prompt or template, given by function, name or URI template."""
        entries = self._completable(of)
        name = of if isinstance(of, str) else getattr(of, "__name__", repr(of))
        if not entries:
            raise InvalidArgument(
                f"{name!r} is not a registered prompt or template; register it first",
                argument="name",
            )
        for entry in entries:
            known = _argument_names(entry)
            if argument not in known:
                raise InvalidArgument(
                    f"{name!r} has no argument {argument!r} to complete; it has {known}",
                    argument="argument",
                )

        def decorate(function: F) -> F:
            name = getattr(function, "__name__", argument)
            from colonnade.server.handlers.completion import from_function

            completer = from_function(Bound(function, name, self._environment))
            for entry in entries:
                entry.completers = {**entry.completers, argument: completer}
            self._registry.notify_observers()
            return function

        return decorate

    def _completable(self, of: Callable[..., Any] | str) -> list[Entry]:
        if isinstance(of, str):
            found: list[Entry | None] = [self.prompts.get(of), self.templates.get(of)]
            return [entry for entry in found if entry is not None]
        return [
            entry for kind, entry in self._registered.get(of, ()) if kind in ("prompt", "template")
        ]

    # ------------------------------------------------------------ all of them

    def _add(self, registry: Registry[E], name: str, entry: E, function: Any, kind: str) -> None:
        is_good = len(name) in GOOD_LENGTHS and GOOD_CHARACTERS.issuperset(name)
        if kind in ("tool", "prompt") and not is_good:
            log.warning(
                "the %s %r: some clients hide names that are not 1 to 128 of A-Z a-z 0-9 _ . -; "
                "rename it to %r",
                kind,
                name,
                re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:128],
            )
        if name in registry:
            log.warning(
                "the %s %r is registered twice; the later one replaces the first: rename one",
                kind,
                name,
            )
        registry.add(name, entry)
        self._registered.setdefault(function, []).append((kind, entry))


def _check_uri(uri: str) -> None:
    """R0372: a URI of RFC 3986 has no spaces and no characters beyond ASCII."""
    if "{" not in (plain := re.sub(EXPRESSION, "", uri)) and not re.fullmatch(GOOD_URI, plain):
        from urllib.parse import quote

        better = quote(uri, safe=":/?#[]@!$&'()*+,;=%~{}")
        hint = better if re.fullmatch(GOOD_URI, re.sub(EXPRESSION, "", better)) else "notes://today"
        raise InvalidArgument(
            f"{uri!r} is not a valid URI; write one like {hint!r}", argument="uri"
        )


def _apply(function: Any, decorate: Callable[[Any], Any], kind: str) -> Any:
    if function is None:
        return decorate
    if isinstance(function, str):
        raise InvalidArgumentType(
            f"@server.{kind} takes only keywords: write @server.{kind}(name={function!r})"
        )
    return decorate(function)


def _check_keywords(owner: str, options: Any, table: str) -> None:
    if not options:
        return
    from colonnade.server import options as tables

    known: frozenset[str] = vars(tables)[table].__optional_keys__
    # An ignored keyword may be one that restricts access: `scope` for `scopes`.
    for name in options:
        if name not in known:
            hint_text = tables.KEYWORDS.get(owner, {}).get(name)
            if owner == "@server.tool" and name == "annotations":
                hint_text = tables.annotation_hint(options[name]) or hint_text
            hint = f"; {hint_text}" if hint_text else suggestion(name, sorted(known))
            hint = hint or f"; there are {', '.join(sorted(known))}"
            raise InvalidArgumentType(f"{owner} has no keyword {name!r}{hint}", argument=name)


# The lists that can have their own `ttl_s`.
LISTS = ("tools", "prompts", "resources", "resource_templates")


def check_ttls(
    ttl_s: float | Mapping[str, float] | None, scope: str | None, owner: str
) -> dict[str, int]:
    """The `ttlMs` of each list that has one."""
    given = ttl_s if isinstance(ttl_s, Mapping) else dict.fromkeys(LISTS, ttl_s)
    for kind in given:
        if kind not in LISTS:
            hint = suggestion(kind, LISTS) or f"; there are {', '.join(LISTS)}"
            raise InvalidArgument(f"{owner}: ttl_s has no list {kind!r}{hint}", argument="ttl_s")
    checked = {kind: check_ttl(seconds, scope, owner) for kind, seconds in given.items()}
    check_ttl(None, scope, owner)
    return {kind: ttl_ms for kind, ttl_ms in checked.items() if ttl_ms is not None}


def check_ttl(ttl_s: float | None, scope: str | None, owner: str) -> int | None:
    """A `ttlMs`. Raises for values that R1011 does not allow."""
    if ttl_s is not None and not (math.isfinite(ttl_s) and ttl_s >= 0):
        raise InvalidArgument(
            f"{owner}: ttl_s is {ttl_s}; give seconds, 0 or more", argument="ttl_s"
        )
    if scope is not None and scope not in get_args(t.CacheScope):
        raise InvalidArgument(
            f"{owner}: cache_scope is 'public' or 'private', not {scope!r}", argument="cache_scope"
        )
    return round(ttl_s * 1000) if ttl_s is not None else None


def _make_reader(bound: Bound, options: "ResourceOptions") -> Any:
    from colonnade.server.handlers.resources import ResourceReader

    scope = options.get("cache_scope")
    ttl_ms = check_ttl(options.get("ttl_s"), scope, bound.name)
    return ResourceReader(bound, options.get("mime_type"), ttl_ms, scope).run


def _annotations(options: "ResourceOptions", name: str) -> t.Annotations | None:
    """The annotations of a resource, also from a dict with the names of the protocol."""
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


def _json_types(parameter: Parameter) -> Types:
    """The JSON types in the schema of a parameter; empty if it has no constraint."""
    schema = parameter.schema
    constraints = schema.keys() & {"type", "anyOf", "oneOf", "$ref", "enum", "const"}
    return admitted_types(schema, schema) if constraints else frozenset()


def _set_tags_and_scopes(
    entry: Entry, tags: Iterable[str] | None, scopes: Iterable[str] | None
) -> None:
    entry.tags = frozenset(tags or ())
    entry.scopes = frozenset(scopes or ())


def _find_param_headers(schema: dict[str, Any], own: dict[str, Any]) -> "tuple[ParamHeader, ...]":
    """The arguments that are mirrored in HTTP headers; the module is imported if there are any."""
    if schema is own and b'"x-mcp-header"' not in encode(schema):
        return ()
    from colonnade.protocol.http.param_headers import param_headers

    return param_headers(schema)


def _completers(bound: Bound) -> "dict[str, CompletionFunction]":
    from colonnade.server.handlers.completion import completer_for

    found = {
        parameter.wire_name: completer_for(parameter) for parameter in bound.signature.parameters
    }
    return {name: completer for name, completer in found.items() if completer is not None}


def _argument_names(entry: Entry) -> list[str]:
    if isinstance(entry, PromptEntry):
        return [argument.name for argument in entry.definition.arguments or ()]
    return list(entry.template.variables) if isinstance(entry, TemplateEntry) else []
