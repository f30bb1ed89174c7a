"""The classes that the table of annotations speaks of: of the standard library's kinds and others'.

Rules: nothing here is a test; each class shows one thing.
"""

import collections
import enum
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    TypeVar,
)

import attrs
from annotated_types import (
    Ge,
    Le,
)
from msgspec import Meta, Struct
from pydantic import (
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType, TypedDict

T = TypeVar("T")
TBound = TypeVar("TBound", bound=int)
TEither = TypeVar("TEither", int, str)
UserId = NewType("UserId", int)
Percent = NewType("Percent", Annotated[int, Ge(0), Le(100)])  # pyright: ignore[reportGeneralTypeIssues]
Numbers = TypeAliasType("Numbers", list[int])
Nested = TypeAliasType("Nested", "list[Nested] | int")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.StrEnum):
    SMALL = "small"
    LARGE = "large"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    B = "b"


class Ratio(enum.Enum):
    HALF = 0.5


class Pair(enum.Enum):
    BOTH = (1, 2)


class Lenient(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> "Lenient | None":
        return cls.A if value == "ALPHA" else None


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Opaque:
    pass


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass
class Worded:
    """Where it is."""

    x: Annotated[int, "To the right."]


@dataclass(frozen=True)
class Frozen:
    a: int


@dataclass
class Segment:
    a: Point
    b: Point


@dataclass
class Tree:
    value: int
    children: list["Tree"] = field(default_factory=list["Tree"])


@dataclass
class Box(Generic[T]):
    item: T


@dataclass
class Circle:
    radius: float


@dataclass
class Positive:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x must not be negative")
        if not self.x:
            raise KeyError("zero")


@dataclass
class Bounded:
    x: Annotated[int, Ge(1)]


@dataclass
class MetaBounded:
    x: Annotated[int, Meta(ge=1, description="How many.")]


@dataclass
class Fielded:
    x: int = Field(default=2, ge=1)


@dataclass
class MetadataBounded:
    x: int = field(metadata={"ge": 1})


@dataclass
class Computed:
    x: int
    double: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.double = 2 * self.x


@dataclass
class Initialised:
    x: int
    scale: InitVar[int] = 1

    def __post_init__(self, scale: int) -> None:
        self.x *= scale


@dataclass
class Located:
    path: Path


@dataclass
class Priced:
    price: Decimal


@dataclass
class Packed:
    data: bytes


@dataclass
class LinkedWithMeta:
    link: AnyUrl
    depth: Annotated[int, Meta(ge=0)] = 0


@dataclass
class Described:
    x: int = field(metadata={"description": "To the right."})


class Movie(TypedDict):
    title: str
    year: NotRequired[int]
    kind: NotRequired[Literal["short", "feature"]]


class Closed(TypedDict, closed=True):
    a: int


class Labelled(TypedDict, Generic[T]):
    label: str
    value: T


class Pixel(NamedTuple):
    x: int
    y: int
    color: Color = Color.RED


Plain = collections.namedtuple("Plain", "a b")  # pyright: ignore[reportUntypedNamedTuple]


def _not_negative(instance: object, attribute: object, value: int) -> None:
    if value < 0:
        raise ValueError("cents must not be negative")


@attrs.define
class Account:
    owner: str
    cents: int = attrs.field(default=0, validator=_not_negative)


@attrs.define
class Converted:
    cents: int = attrs.field(converter=int)


class Station(Struct, rename="camel", forbid_unknown_fields=True):
    name: str
    open_since: int | None = None


class Reading(Struct, array_like=True):
    value: float
    unit: str = "K"


class Event(Struct, array_like=True, tag="event"):
    number: int


class Cat(Struct, tag_field="kind", tag="cat"):
    lives: int


class Dog(Struct, tag_field="kind", tag="dog"):
    age: int


class Strange(Struct):
    x: Annotated[int, Ge(1)]


class User(BaseModel):
    id: int
    tags: list[str] = []


class Team(BaseModel):
    members: list[User]


class Node(BaseModel):
    name: str
    children: list["Node"] = []


class Disc(BaseModel):
    kind: Literal["disc"]
    r: float


class Square(BaseModel):
    kind: Literal["square"]
    side: float


class StrictUser(BaseModel):
    model_config = ConfigDict(strict=True)

    id: int


class Aliased(BaseModel):
    user_id: int = Field(alias="userId")


@pydantic_dataclass
class Checked:
    x: int = Field(ge=1)


def double(value: int) -> int:
    return 2 * value


def split(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value
