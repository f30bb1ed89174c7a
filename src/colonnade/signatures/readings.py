"""Readings of JSON values: everything that a server may take a value for, in one table for our
coercion and for the rules of hosts.

A client sends `"5"`, `"yes"` or `'{"name": "ann"}'`, and a server reads 5, true or an object:

    sent                      our coercion        pydantic (lax), and others in their languages
    a string with JSON        object, array       every JSON value, and NaN in Python's JSON
    a string with a number    `NUMBER`            spaces, `1_000`, `１`, `inf`, `1/2`, `0x10`
    a string with a word      `true`, `false`     `WORDS`: `yes`, `on`, `1` …
    true and false            as they are         1 and 0
    1 and 0, 1.0 and 0.0      as they are         true and false
    a number                  as it is            its text, a date, an address
    a date, an id             `FORMATS`           a date from a number, an id without hyphens

Coercion takes the second column, if the schema of a parameter allows no other reading. A rule does
not know what a server does. So it takes all columns: `numbers_of`, `boolean_of`, `texts_of` and
`structure_in` return everything that a value may become.

Rules: pure, in linear time, and nothing here raises, whatever the value is. Coercion reads nothing
that is not in this table: a reading that is missing here gets around the rules of a host.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, time
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import UNSET

from colonnade.errors import Fault, FaultKind
from colonnade.protocol.json_checks import decode_unique, depth, may_be_deep
from colonnade.protocol.jsonrpc import MAX_DEPTH

if TYPE_CHECKING:
    from decimal import Decimal
    from fractions import Fraction

# Maximum length of a number in a string; Python itself stops parsing integers at 4,300 digits.
MAX_NUMBER: Final = 400
# Maximum length of JSON in a string that rules look into; decoding this much takes a millisecond.
MAX_STRUCTURE: Final = 65_536
# Maximum length of a date, an id or an address.
MAX_FORM: Final = 64
# Integers beyond these become another number in a language whose numbers are floats.
_EXACT: Final = 2**53


class Unreadable(Enum):
    """Stands for a value that two servers may read differently: an object with a repeated member,
    JSON that is too deep or too long, or a number that is too long."""

    UNREADABLE = "unreadable"


UNREADABLE: Final = Unreadable.UNREADABLE
Number: TypeAlias = "int | float | Decimal | Fraction"
Numbers: TypeAlias = tuple[Number, ...] | Literal[Unreadable.UNREADABLE]

# Compiled on use: most arguments are valid.
NUMBER: Final = r"(?a)[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_DATE_TIME = (
    r"(?a)(\d{4}-\d\d-\d\d)(?:[Tt _](\d\d:\d\d)(:\d\d)?(?:[.,](\d{1,9}))?([Zz]|[+-]\d\d:?\d\d)?)?"
)
# Every spelling of a moment and of a time of day that pydantic takes.
_ANY_TIME = r"(?a)(\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?([Zz]|[+-]\d\d:?\d\d)?"
_ANY_MOMENT = rf"(?a)(\d{{4}}-\d\d-\d\d)[Tt _]{_ANY_TIME.removeprefix('(?a)')}"
_MIDNIGHT = r"(?a)(\d{4}-\d\d-\d\d)[T ]00:00(?::00(?:\.0+)?)?(?:Z|\+00:00)?"
_CLOCK = r"(?a)(\d\d:\d\d)(Z|[+-]\d\d:\d\d)?"
_WEEKS = r"(?a)(-?)P(\d{1,6})W"
_SPAN = r"(?a)(-?)(\d{1,9}):(\d\d):(\d\d(?:\.\d{1,6})?)"
_HEX = r"(?a)[\da-fA-F]{32}"
# The beginning of a number in any spelling; and a text that may be a number too long to parse.
_NUMERAL = r"(?i)[+-]{0,2}(?:[\d._]|inf|nan)"
_LONG_NUMERAL = r"[+-]?(?:0[xX][\da-fA-F_]+|[\d_.]+(?:[eE][+-]?[\d_]+)?)"
_PREFIXED = r"(?i)[+-]?0[xob]"
_IPV6 = r"(?a)[\da-fA-F:.]*:[\da-fA-F:.]*"

# Words for booleans in our coercion and in pydantic, in any case.
OUR_WORDS: Final[Mapping[str, bool]] = {"true": True, "false": False}
WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}

# Characters that parsers of numbers and JSON skip at both ends: Python's whitespace, and the byte
# order mark, which JavaScript skips.
_BLANKS = (
    " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
)
# The first characters of JSON objects, arrays and strings, and of all texts with other forms. A
# string that begins with any other character has no other form.
_OPENERS = frozenset(f'{{["{_BLANKS}')
_FORM_STARTS = frozenset(f"+-.0123456789:PUuabcdefABCDEF{{{_BLANKS}")


# ---------------------------------------------------------------- JSON in strings


def json_in(text: str) -> Any:
    """The value of JSON in a string. `UNSET` if the string is not JSON; `UNREADABLE` if servers may
    read different values."""
    raw = text.encode(errors="surrogatepass")
    if may_be_deep(raw, MAX_DEPTH) and depth(raw) > MAX_DEPTH:
        return UNREADABLE
    try:
        return decode_unique(raw)
    except Fault as fault:
        return UNSET if fault.kind is FaultKind.PARSE else UNREADABLE


def may_be_json(text: str) -> bool:
    """Whether `structure_in` has to look at a string; most strings begin differently."""
    return text[:1] in _OPENERS


def structure_in(text: str) -> Any:
    """The value if the JSON is an object, an array or a string. Also decodes JSON that only Python
    accepts."""
    if text[:1] not in _OPENERS:
        return UNSET
    body = text.strip(_BLANKS)
    if body[:1] not in ("{", "[", '"'):
        return UNSET
    if len(text) > MAX_STRUCTURE:
        return UNREADABLE
    found = json_in(body)
    return _python_json_in(body) if found is UNSET else found


def _python_json_in(text: str) -> Any:
    """JSON with NaN, Infinity, halves of surrogate pairs and control characters in strings."""
    import json  # on use: few strings begin as JSON and are none

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        found = dict(members)
        repeated = repeated or len(found) != len(members)
        return found

    repeated = False
    try:
        found = json.loads(text, strict=False, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return UNSET
    return UNREADABLE if repeated else found


# ---------------------------------------------------------------- numbers and booleans


def numbers_of(value: Any) -> Numbers:
    """The numbers that a value may be read as, both exact and as floats."""
    if type(value) is int and -_EXACT <= value <= _EXACT:
        return (value,)
    if isinstance(value, int):
        number = int(value)
        return (number,) if -_EXACT <= number <= _EXACT else (number, _float(number))
    if isinstance(value, float):
        return (value,)
    return _numbers_in(value) if isinstance(value, str) else ()


def _numbers_in(value: str) -> Numbers:
    text = value.strip(_BLANKS)
    if not re.match(_NUMERAL, text):
        word = WORDS.get(text.lower())  # a boolean, which is a number in Python
        return () if word is None else (int(word),)
    if len(text) > MAX_NUMBER:
        return UNREADABLE if re.fullmatch(_LONG_NUMERAL, text) else ()
    from decimal import Decimal  # on use: few strings are numbers
    from fractions import Fraction

    readers: tuple[Callable[[str], Number], ...] = (float, Decimal)
    if re.match(_PREFIXED, text):
        readers = (_prefixed,)
    elif "/" in text:
        readers = (Fraction,)
    if "_" in text:  # pydantic reads `1_.5` as 1.5
        readers = (*readers, _without_underscores)
    if "-" in text:  # and `00-5`, `0_-5` and `+-5` as -5
        text = re.sub(r"^\+?0*(?=-)", "", text.replace("_", ""))
    found: list[Number] = []
    for read in readers:
        try:
            number = read(text)
        except (ValueError, ArithmeticError):
            continue
        if not isinstance(number, Decimal) or number.is_finite():  # a NaN cannot be compared
            found.append(number)
    return tuple(found)


def _prefixed(text: str) -> int:
    return int(text, 0)


def _without_underscores(text: str) -> float:
    return float(text.replace("_", ""))


def _float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def boolean_of(value: Any) -> bool | None:
    """The boolean that a value may be read as, or None."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = WORDS.get(value.strip(_BLANKS).lower())
        if word is not None:
            return word
    numbers = numbers_of(value)
    if numbers is UNREADABLE:
        return None
    return next((bool(one) for one in numbers if one in (0, 1)), None)


# ---------------------------------------------------------------- texts


def has_forms(text: str) -> bool:
    """Whether `texts_of` has to look at a string."""
    return text[:1] in _FORM_STARTS and len(text) <= MAX_FORM


def texts_of(value: Any, *, moments: bool = True) -> Iterator[str]:
    """Other texts that a value may be read as: a number or a boolean as text, and the other forms
    of a date, an id or an address. Without `moments`, not the dates and addresses of a number."""
    if isinstance(value, str):
        if has_forms(value):
            yield from forms_of(value)
            if moments:
                yield from _moments(_numbers_in(value))
    elif isinstance(value, int | float):
        yield str(value).lower()
        if isinstance(value, float) and value.is_integer():
            yield str(int(value))
        if moments:
            yield from _moments(numbers_of(value))


def forms_of(text: str) -> Iterator[str]:
    """The forms of a date, a time, an id or an address in which a server reads this text."""
    if has_forms(text):
        written = [*(write(text) for write in FORMATS.values()), _address(text)]
        if text[:1].isdecimal():
            written += [_moment(text), _day(text), _time_of_day(text)]
        yield from (one for one in dict.fromkeys(written) if one != text)


def _moments(numbers: Numbers) -> Iterator[str]:
    """The dates that a number may stand for, in seconds or milliseconds since 1970, and the IP
    addresses."""
    for number in numbers if numbers is not UNREADABLE else ():
        for unit in (1, 1000):
            try:
                moment = datetime.fromtimestamp(float(number) / unit, UTC)
            except (ValueError, OverflowError, OSError):  # outside of the calendar
                continue
            yield moment.isoformat().replace("+00:00", "Z")
            yield moment.date().isoformat()
        if isinstance(number, int):
            yield from _addresses(number)


def _moment(text: str) -> str:
    """A date and time in UTC, without zeros at its end; without a time zone as it is."""
    found = re.fullmatch(_ANY_MOMENT, text)
    if not found:
        return text
    date, clock, fraction, offset = found.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{_fraction(fraction)}{_offset(offset)}")
        moment = moment.astimezone(UTC) if offset else moment
    except (ValueError, OverflowError):  # what no calendar has
        return text
    return moment.isoformat().replace("+00:00", "Z")


def _day(text: str) -> str:
    """The day that begins at a moment, in its own time zone."""
    found = re.fullmatch(_ANY_MOMENT, text)
    is_midnight = found and not (found[2] + (found[3] or "")).strip("0:")
    return found[1] if found and is_midnight else text


def _time_of_day(text: str) -> str:
    found = re.fullmatch(_ANY_TIME, text)
    if not found:
        return text
    clock, fraction, offset = found.groups()
    try:
        moment = time.fromisoformat(f"{clock}{_fraction(fraction)}{_offset(offset)}")
    except ValueError:
        return text
    return moment.isoformat().replace("+00:00", "Z")


def _fraction(digits: str | None) -> str:
    return f".{digits[:6]}" if digits else ""


def _offset(offset: str | None) -> str:
    return (offset or "").upper()


def _addresses(number: int) -> Iterator[str]:
    from ipaddress import AddressValueError, IPv4Address, IPv6Address  # on use, as in `_address`

    for kind in (IPv4Address, IPv6Address):
        try:
            yield str(kind(number))
        except AddressValueError:
            continue


def _date_time(text: str) -> str:
    """A date without a time is its midnight; seconds may be missing."""
    found = re.fullmatch(_DATE_TIME, text)
    if not found:
        return text
    date, clock, seconds, fraction, offset = found.groups()
    fraction = f".{fraction}" if fraction else ""
    return f"{date}T{clock or '00:00'}{seconds or ':00'}{fraction}{offset or ''}"


def _date(text: str) -> str:
    found = re.fullmatch(_MIDNIGHT, text)
    return found[1] if found else text


def _time(text: str) -> str:
    found = re.fullmatch(_CLOCK, text)
    return f"{found[1]}:00{found[2] or ''}" if found else text


def _duration(text: str) -> str:
    if found := re.fullmatch(_WEEKS, text):
        return f"{found[1]}P{int(found[2]) * 7}D"
    if found := re.fullmatch(_SPAN, text):
        return f"{found[1]}PT{found[2]}H{found[3]}M{found[4]}S"
    return text


def _uuid(text: str) -> str:
    bare = text.removeprefix("urn:uuid:").removeprefix("{").removesuffix("}")
    digits = bare.replace("-", "")
    if not re.fullmatch(_HEX, digits):
        return bare
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts).lower()


def _address(text: str) -> str:
    if not re.fullmatch(_IPV6, text):
        return text
    from ipaddress import IPv6Address  # on use: few values are addresses

    try:
        return str(IPv6Address(text))
    except ValueError:
        return text


# For each format: a pattern of the strings that a decoder accepts.
FORMATS: Final[Mapping[str, Callable[[str], str]]] = {
    "date-time": _date_time,
    "date": _date,
    "time": _time,
    "duration": _duration,
    "uuid": _uuid,
}
