"""What reads and writes the values of one annotation: its schema, and JSON both ways.

There are two kinds: what msgspec reads exactly (`signature_plain`), and what pydantic has to read
(`signature_models`). Rules: a codec is made once, when a function is registered, and never changes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from colonnade.errors import LocalProtocolError
from colonnade.protocol.problems import Problem, told
from colonnade.protocol.schema import Schema, Validator

ENDLESS = "NaN and Infinity are not JSON; return None or a string for them"

# The names of the members of an Enum, by their values.
Titles: TypeAlias = dict[tuple[Any, ...], list[str]]


class Codec(ABC):
    """One annotation, both ways."""

    # Whether scalars are to be put right for it; pydantic does that itself, by its own rules.
    loosens: ClassVar[bool]

    def __init__(
        self, where: str, schema: Schema, decode: Callable[[bytes], Any], titles: Titles
    ) -> None:
        self.where = where
        self.schema = schema
        self.decode = decode
        self.titles = titles

    @cached_property
    def validator(self) -> Validator:
        """Made when the first value is checked: most tools never need it."""
        return Validator(self.schema, ours=True)

    @cached_property
    def reporter(self) -> Validator:
        """What says all that is wrong with a value that `decode` refused."""
        return self.validator

    def further(self, error: Exception, value: Any, found: list[Problem]) -> list[Problem]:
        """What a failed `decode` says beyond what the schema says already."""
        return []

    @cached_property
    def takes_any_text(self) -> bool:
        """Whether every text fits, and is written as it is."""
        return self.schema == {"type": "string"}

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """The JSON of a value, which fits the schema. Raises `LocalProtocolError`."""

    @abstractmethod
    def complain(self, error: Exception, value: Any) -> list[Problem]:
        """What a failed `decode` says, in our words and without the value."""

    def misfit(self, problems: list[Problem]) -> LocalProtocolError:
        """A value that was returned does not fit the type that was promised."""
        return LocalProtocolError(f"{self.where}: {told(problems)}")
