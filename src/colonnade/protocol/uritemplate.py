"""URI templates (RFC 6570): parsed once, expanded in full, and matched backwards to values.

Rules: no I/O; a template that cannot be kept is refused when it is made, never when it is used.
No regular expression is built from a template: matching costs a fixed number of passes over the
URI whatever it says, so there is nothing to backtrack.

Expanding is RFC 6570 up to level 4. Matching is its inverse wherever the expansion says enough:

- `{x}` is one or more unreserved or percent-encoded characters, never `/`, `?`, `#` or another
  reserved one; `{+x}` is anything. `{/x}`, `{.x}`, `{;x}`, `{?x}`, `{&x}` and `{#x}` may be
  missing, and then the variable is too. `{x*}` gives a list, everything else a string.
- `{?a,b}` takes its parameters in any order, each at most once and none required, and no others;
  in their values it also takes what clients seldom encode (`:@/!$'()*,`). `+` is refused there,
  since half the world means a space by it. `{;a,b}` and `{&a,b}` do the same.
- If two matches are possible the earlier variable is the longer (`{a}-{b}` matches `1-2-3` as
  `1-2` and `3`), an expression that may be missing is taken if it can be, and `{/a,b}` is filled
  from the left. `{+a,b}` has no commas in its values.
- Percent signs are decoded, and what is then not UTF-8 does not match. So `%2F` in a URI becomes
  `/` in the value of a plain `{x}`, `%00` becomes NUL, and `..` is only a value: **code that opens
  a file by a matched value must check the path itself.**
- Letters outside ASCII match whether or not they are percent-encoded. Case counts, in schemes too.
- Two templates may match one URI: try them in the order of `rank`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TypeAlias, cast

from msgspec import Struct

from colonnade.errors import InvalidArgument, InvalidArgumentType, LocalProtocolError

# A URI travels in the `Mcp-Name` header too, where proxies allow some 8 KiB.
MAX_URI_CHARS = 16 * 1024
# Real templates have some 60 characters and three variables. Both limits keep the worst match in
# the milliseconds even for a template from another party, as in a gateway.
MAX_TEMPLATE_CHARS = 2048
MAX_VARIABLES = 64
# RFC 6570, section 2.4.1.
MAX_PREFIX = 9999

Value: TypeAlias = str | Sequence[str] | Mapping[str, str]
Matched: TypeAlias = str | list[str]

_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_RESERVED = ":/?#[]@!$&'()*+,;="
_SELDOM_ENCODED = ":@/!$'()*,"
# Characters that no URI has: also a lone percent sign, and surrogates, which `_fold` uses
# internally.
_FOREIGN = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}\ud800-\udfff]|%(?![0-9A-Fa-f]{2})")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_TRIPLETS = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_VARIABLE = re.compile(
    r"((?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*)"
    r"(?:(\*)|:([1-9][0-9]{0,3}))?"
)
_ENCODE = re.compile(r"[^A-Za-z0-9\-._~]+")
_ENCODE_KEEPING_RESERVED = re.compile(
    r"(?:[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]|%(?![0-9A-Fa-f]{2}))+"
)


class _Operator(Struct, frozen=True):
    """A row of the table in RFC 6570, appendix A."""

    lead: str
    separator: str
    named: bool = False
    if_empty: str = ""
    keeps_reserved: bool = False


_OPERATORS = {
    "": _Operator("", ","),
    "+": _Operator("", ",", keeps_reserved=True),
    "#": _Operator("#", ",", keeps_reserved=True),
    ".": _Operator(".", "."),
    "/": _Operator("/", "/"),
    ";": _Operator(";", ";", named=True),
    "?": _Operator("?", "&", named=True, if_empty="="),
    "&": _Operator("&", "&", named=True, if_empty="="),
}


class _Variable(Struct, frozen=True):
    name: str
    exploded: bool
    prefix: int | None


class _Expression(Struct, frozen=True):
    operator: _Operator
    variables: tuple[_Variable, ...]
    at: int


class _Literal(Struct, frozen=True):
    text: str
    at: int


class UriTemplate:
    """A template, checked when it is created; raises `LocalProtocolError` with the position and a
    fix.

    >>> template = UriTemplate("repo://{owner}/{+path}{?ref}")
    >>> template.match("repo://ann/src/a%20b.py?ref=main")
    {'owner': 'ann', 'path': 'src/a b.py', 'ref': 'main'}
    >>> template.expand({"owner": "ann", "path": "src/a b.py"})
    'repo://ann/src/a%20b.py'

    One that only ever expands, as in a client, may be `expand_only`: then all of RFC 6570 is
    accepted, also what no match could reverse, such as `{a}{b}` and `{x:3}`.
    """

    def __init__(self, text: str, *, expand_only: bool = False) -> None:
        self.text = text
        self._parts = tuple(_parse(text))
        self.variables: tuple[str, ...] = tuple(
            dict.fromkeys(v.name for e in self._expressions() for v in e.variables)
        )
        self._matcher = None if expand_only else _Matcher(text, self._parts)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    @property
    def lists(self) -> tuple[str, ...]:
        """The variables whose matched values are lists: those with `*`."""
        return tuple(v.name for e in self._expressions() for v in e.variables if v.exploded)

    @property
    def rank(self) -> tuple[int, int, int, str]:
        """A sort key: more literal text first, then fewer `{+x}`, then fewer variables."""
        literal = sum(len(part.text) for part in self._parts if isinstance(part, _Literal))
        wide = sum(expression.operator.keeps_reserved for expression in self._expressions())
        return -literal, wide, len(self.variables), self.text

    def expand(self, values: Mapping[str, Value | None]) -> str:
        """The URI for these values; a missing variable, None and an empty list expand to
        nothing."""
        return "".join(
            _encode(part.text, keeps_reserved=True)
            if isinstance(part, _Literal)
            else _expand(part, values)
            for part in self._parts
        )

    def match(self, uri: str) -> dict[str, Matched] | None:
        """The values that expand to this URI, or None. Never raises for an untrusted URI."""
        if self._matcher is None:
            raise LocalProtocolError(
                f"the template {self.text!r} is expand_only; leave out expand_only to match with it"
            )
        return self._matcher.match(uri)

    def _expressions(self) -> Iterator[_Expression]:
        return (part for part in self._parts if isinstance(part, _Expression))


# ---- parsing -------------------------------------------------------------------------------------


def _refusal(text: str, at: int, sentence: str) -> LocalProtocolError:
    return InvalidArgument(f"URI template {text!r}, position {at}: {sentence}")


def _parse(text: str) -> Iterator[_Literal | _Expression]:
    if len(text) > MAX_TEMPLATE_CHARS:
        raise InvalidArgument(
            f"a URI template of {len(text)} characters; the most is {MAX_TEMPLATE_CHARS}"
        )
    at = count = 0
    while at < len(text):
        if text[at] != "{":
            end = (text + "{").index("{", at)
            yield _literal(text, at, end)
            at = end
            continue
        if (found := _EXPRESSION.match(text, at)) is None:
            raise _refusal(text, at, "this '{' is not closed; add '}', or write it as %7B")
        expression = _expression(text, at, found[1])
        count += len(expression.variables)
        if count > MAX_VARIABLES:
            raise _refusal(text, at, f"more than {MAX_VARIABLES} variables; use fewer")
        yield expression
        at = found.end()


def _literal(text: str, at: int, end: int) -> _Literal:
    literal = text[at:end]
    if (foreign := _FOREIGN.search(literal)) is not None:
        wrong = foreign[0]
        fix = "write it percent-encoded"
        if wrong == "}":
            fix = "it closes no '{'; remove it, or write it as %7D"
        elif wrong == "%":
            fix = "two hexadecimal digits must follow it; a percent sign itself is %25"
        raise _refusal(text, at + foreign.start(), f"{wrong!a} is not allowed here: {fix}")
    if _fold(literal) is None:
        raise _refusal(text, at, "the percent-encoded bytes are not UTF-8; encode text as UTF-8")
    return _Literal(literal, at)


def _expression(text: str, at: int, inside: str) -> _Expression:
    sign = inside[:1] if inside[:1] in "+#./;?&" else ""
    if inside[:1] in tuple("=,!@|"):
        raise _refusal(text, at + 1, f"the operator {inside[0]!r} is reserved; use one of +#./;?&")
    variables: list[_Variable] = []
    start = at + 1 + len(sign)
    for written in inside[len(sign) :].split(","):
        if (found := _VARIABLE.fullmatch(written)) is None:
            raise _refusal(
                text,
                start,
                f"{written!a} is not a variable; write letters, digits and _, then perhaps * "
                f"or a prefix from :1 to :{MAX_PREFIX}",
            )
        if _fold(found[1]) is None:
            raise _refusal(text, start, f"{written!r} is not UTF-8 when decoded; encode it so")
        prefix = int(found[3]) if found[3] else None
        variables.append(_Variable(found[1], found[2] is not None, prefix))
        start += len(written) + 1
    return _Expression(_OPERATORS[sign], tuple(variables), at)


# ---- expanding -----------------------------------------------------------------------------------


def _encode(text: str, *, keeps_reserved: bool) -> str:
    unsafe = _ENCODE_KEEPING_RESERVED if keeps_reserved else _ENCODE
    try:
        return unsafe.sub(lambda run: "".join(f"%{byte:02X}" for byte in run[0].encode()), text)
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"the value {text!a} has a lone surrogate and cannot be in a URI; correct it"
        ) from None


def _expand(expression: _Expression, values: Mapping[str, Value | None]) -> str:
    operator = expression.operator
    pieces: list[str] = []
    for variable in expression.variables:
        value = values.get(variable.name)
        if value is None:
            continue
        if isinstance(value, str):
            text = _encode(value[: variable.prefix], keeps_reserved=operator.keeps_reserved)
            pieces.append(_named(operator, variable.name, text))
        elif variable.prefix is not None:
            raise InvalidArgumentType(
                f"{variable.name!r} has a prefix of {variable.prefix} in the URI template, which "
                "only a string can have; give a string"
            )
        else:
            pieces += _expand_several(operator, variable, value)
    return operator.lead + operator.separator.join(pieces) if pieces else ""


def _expand_several(operator: _Operator, variable: _Variable, value: object) -> list[str]:
    def encoded(item: object) -> str:
        if not isinstance(item, str):
            raise InvalidArgumentType(
                f"{variable.name!r} of the URI template got {item!r}; "
                "give a string, a list of strings or a mapping of strings"
            )
        return _encode(item, keeps_reserved=operator.keeps_reserved)

    if isinstance(value, Mapping):
        mapping = cast("Mapping[object, object]", value)
        pairs = [(encoded(key), encoded(item)) for key, item in mapping.items()]
        if variable.exploded and operator.named:
            return [_named(operator, key, item) for key, item in pairs]
        if variable.exploded:
            return [f"{key}={item}" for key, item in pairs]
        items = [text for pair in pairs for text in pair]
    elif isinstance(value, Sequence):
        items = [encoded(item) for item in cast("Sequence[object]", value)]
    else:
        items = [encoded(value)]
    if variable.exploded:
        return [_named(operator, variable.name, item) for item in items]
    return [_named(operator, variable.name, ",".join(items))] if items else []


def _named(operator: _Operator, name: str, text: str) -> str:
    if not operator.named:
        return text
    return f"{name}={text}" if text else f"{name}{operator.if_empty}"


# ---- matching ------------------------------------------------------------------------------------
#
# A set of places in the URI is one integer: bit n stands for the place before character n. Each
# step of a template turns the set of places where it may begin into the set where it may end, for
# all of them at once; a run of characters costs one addition, whose carry walks through it. After
# the last step the end of the URI is in the set or is not. Then the steps are walked backwards to
# choose among the readings, each from a place that is known to be reachable.


def _fold(text: str) -> str | None:
    """The string decoded, one character each, or None if it is not part of a URI.

    An encoded character that means something else when it is bare becomes a lone surrogate, so that
    `%2F` stays apart from `/` while `%41` equals `A`.
    """
    if _FOREIGN.search(text) is not None:
        return None
    if "%" not in text:
        return text
    try:
        return _TRIPLETS.sub(
            lambda run: bytes.fromhex(run[0].replace("%", "")).decode().translate(_HIDDEN), text
        )
    except UnicodeDecodeError:
        return None


_HIDDEN = {code: 0xDC00 + code for code in range(128) if chr(code) not in _UNRESERVED}
_SHOWN = {hidden: code for code, hidden in _HIDDEN.items()}


@cache  # of few constants, never of untrusted strings
def _table(members: str) -> dict[int, str]:
    return {code: "01"[chr(code) in members] for code in range(128)}


class _View:
    """A folded URI and the sets of places in it, each created when first used."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._where: dict[str, int] = {}
        self._within: dict[str, int] = {}

    def within(self, members: str) -> int:
        """The places of characters of this alphabet, or beyond ASCII: all alphabets have those."""
        if (places := self._within.get(members)) is None:
            ascii_only = _BEYOND_ASCII.sub("a", self.text)
            places = int("0" + ascii_only.translate(_table(members))[::-1], 2)
            self._within[members] = places
        return places

    def where(self, char: str) -> int:
        """The places of this one character."""
        if (places := self._where.get(char)) is None:
            others = ("0" * len(part) for part in self.text.split(char))
            places = self._where[char] = int("0" + "1".join(others)[::-1], 2)
        return places

    def marks(self, places: int) -> bytes:
        """The same set as bytes, to test single places at no cost."""
        return places.to_bytes(len(self.text) // 8 + 1, "little")


def _along(places: int, within: int) -> int:
    """These places and all that are reached from them through characters of an alphabet."""
    return (((places & within) + within) ^ within) | places


class _Text(Struct, frozen=True):
    """A step: literal text."""

    text: str
    optional: bool = False

    def begins(self) -> str:
        return self.text[0]

    def ends(self, view: _View, places: int) -> int:
        if places & (places - 1) == 0:  # one place, as nearly always
            at = places.bit_length() - 1
            return places << len(self.text) if view.text.startswith(self.text, at) else 0
        for offset, char in enumerate(self.text):
            places &= view.where(char) >> offset
            if not places:
                break
        return places << len(self.text)

    def take(self, view: _View, places: int, end: int, values: dict[str, Matched]) -> int:
        return end - len(self.text)


class _ValueList(Struct, frozen=True):
    """A step: values in a row, as in `{a,b}`, `{+path}` and `{/segments*}`."""

    lead: str
    separator: str
    names: tuple[str, ...]
    last_is_list: bool
    members: str
    optional: bool

    def begins(self) -> str:
        return self.lead

    def ends(self, view: _View, places: int) -> int:
        within = view.within(self.members)
        if self.lead:
            inside = _along((places & view.where(self.lead)) << 1, within)
            reached = inside
        else:
            inside = _along(places, within)
            reached = _along((places & within) << 1, within)
        for _ in range(0 if self.last_is_list else len(self.names) - 1):
            inside = _along((inside & view.where(self.separator)) << 1, within)
            reached |= inside
        return reached

    def take(self, view: _View, places: int, end: int, values: dict[str, Matched]) -> int:
        # The last place before the end is good if any is: what is left of a list of values after
        # cutting off its beginning is one.
        if self.lead:
            places &= view.where(self.lead)
        at = (places & ((1 << end) - 1)).bit_length() - 1
        text = view.text[at + len(self.lead) : end]
        most = -1 if self.last_is_list else len(self.names) - 1
        pieces = [piece.translate(_SHOWN) for piece in text.split(self.separator, most)]
        last = len(self.names) - 1
        for index, name in enumerate(self.names[: len(pieces)]):
            listed = self.last_is_list and index == last
            values[name] = pieces[index:] if listed else pieces[index]
        return at


class _Pairs(Struct, frozen=True):
    """A step: named values in any order, as in `{?q,limit}`. Always the whole run of pairs."""

    lead: str
    separator: str
    variables: dict[str, _Variable]
    at: int
    optional: bool = True

    @property
    def members(self) -> str:
        more = _SELDOM_ENCODED if self.separator == "&" else ""
        return _UNRESERVED + more + self.separator + "="

    def begins(self) -> str:
        return self.lead

    def ends(self, view: _View, places: int) -> int:
        marks = view.marks(places)
        ends = bytearray(len(marks))
        for starts, end in self._runs(view.text):
            if any(marks[at >> 3] >> (at & 7) & 1 for at in starts):
                ends[end >> 3] |= 1 << (end & 7)
        return int.from_bytes(ends, "little")

    def take(self, view: _View, places: int, end: int, values: dict[str, Matched]) -> int:
        marks = view.marks(places)
        starts = next(starts for starts, run_end in self._runs(view.text) if run_end == end)
        at = next(at for at in reversed(starts) if marks[at >> 3] >> (at & 7) & 1)
        for written in view.text[at + 1 : end].split(self.separator):
            name, _, folded = written.partition("=")
            variable, value = self.variables[name], folded.translate(_SHOWN)
            if variable.exploded:
                cast("list[str]", values.setdefault(variable.name, [])).append(value)
            else:
                values[variable.name] = value
        return at

    def _runs(self, text: str) -> Iterator[tuple[list[int], int]]:
        """Where pairs may begin, last first, and where they then end.

        Parsed from the right, so that one wrong pair settles all that begin before it and each pair
        is parsed once.
        """
        for run in _runs_of(self.lead, self.members).finditer(text):
            starts: list[int] = []
            seen: set[str] = set()
            at = run.end()
            for written in reversed(run[0][1:].split(self.separator)):
                at -= len(written) + 1
                name, _, value = written.partition("=")
                variable = self.variables.get(name)
                repeated = name in seen
                if variable is None or "=" in value or (repeated and not variable.exploded):
                    break
                seen.add(name)
                if text[at] == self.lead:
                    starts.append(at)
            if starts:
                yield starts, run.end()


@cache  # of few constants, never of untrusted strings
def _runs_of(lead: str, members: str) -> re.Pattern[str]:
    return re.compile(f"[{lead}][{re.escape(members)}\x80-\U0010ffff]*")


class _Matcher:
    """A template as matching steps, or an error why no match could reverse it."""

    def __init__(self, text: str, parts: Sequence[_Literal | _Expression]) -> None:
        self._steps: list[_Text | _ValueList | _Pairs] = []
        self._names: dict[str, str] = {}
        after_expression = False
        for part in parts:
            if isinstance(part, _Literal):
                self._steps.append(_Text(cast("str", _fold(part.text))))
            else:
                self._check(text, part, after_expression)
                self._add(part)
            after_expression = isinstance(part, _Expression)
        self._check_ends(text)

    def _check(self, text: str, expression: _Expression, after_expression: bool) -> None:
        operator, variables, at = expression.operator, expression.variables, expression.at
        if after_expression and not operator.lead:
            raise _refusal(
                text,
                at,
                "nothing separates this expression from the one before, so it is unknown where "
                "one value ends; put a character such as '/' between them",
            )
        for variable in variables:
            if variable.prefix is not None:
                raise _refusal(
                    text,
                    at,
                    f"'{variable.name}:{variable.prefix}' drops the rest of the value, which no "
                    f"match brings back; write {variable.name!r}",
                )
            if (folded := cast("str", _fold(variable.name))) in self._names:
                raise _refusal(text, at, f"{variable.name!r} is a duplicate; use another name")
            self._names[folded] = variable.name
        if not operator.named and any(variable.exploded for variable in variables[:-1]):
            raise _refusal(
                text, at, "a list with * takes all values that follow it; make it the last one"
            )

    def _add(self, expression: _Expression) -> None:
        operator, variables = expression.operator, expression.variables
        if operator.named:
            named = {cast("str", _fold(variable.name)): variable for variable in variables}
            self._steps.append(_Pairs(operator.lead, operator.separator, named, expression.at))
            return
        members = _UNRESERVED + _RESERVED if operator.keeps_reserved else _UNRESERVED
        listed = variables[-1].exploded
        if listed:
            members += operator.separator
        elif len(variables) > 1:
            members = members.replace(",", "")
        names = tuple(variable.name for variable in variables)
        lead = operator.lead
        self._steps.append(
            _ValueList(lead, operator.separator, names, listed, members, optional=lead != "")
        )

    def _check_ends(self, text: str) -> None:
        """A run of pairs is taken whole, so what follows must not look like more of it."""
        for index, step in enumerate(self._steps):
            if not isinstance(step, _Pairs):
                continue
            for following in self._steps[index + 1 :]:
                first = following.begins()
                if first in step.members or not first.isascii():
                    raise _refusal(
                        text,
                        step.at,
                        "what follows this expression could be part of its last value; "
                        "name all values in one expression, and at the end",
                    )
                if not following.optional:
                    break

    def match(self, uri: str) -> dict[str, Matched] | None:
        if len(uri) > MAX_URI_CHARS or (text := _fold(uri)) is None:
            return None
        view = _View(text)
        trail: list[tuple[_Text | _ValueList | _Pairs, int, int]] = []
        places = 1
        for step in self._steps:
            ends = step.ends(view, places)
            trail.append((step, places, ends))
            places = ends | places if step.optional else ends
            if not places:
                return None
        end = len(text)
        if not places >> end & 1:
            return None
        values: dict[str, Matched] = {}
        for step, places, ends in reversed(trail):
            if not step.optional or ends >> end & 1:
                end = step.take(view, places, end, values)
        return {name: values[name] for name in self._names.values() if name in values}
