"""What comes in pages, and what may be kept for a while.

Rules: as in `types_noun`.
"""

from typing import Annotated, ClassVar, Literal

from colonnade.protocol.types_noun import RequestParams, Result, since

Cursor = str
CacheScope = Literal["public", "private"]


class PaginatedRequestParams(RequestParams, kw_only=True):
    cursor: Cursor | None = None


class PaginatedResult(Result, kw_only=True):
    next_cursor: Cursor | None = None


class CacheableResult(Result, kw_only=True):
    """A result that says how long, and for whom, it stays fresh.

    A negative `ttl_ms` is readable, and counts as 0 (R1010).
    """

    ttl_ms: Annotated[int | None, since("2026-07-28")] = None
    cache_scope: Annotated[CacheScope | None, since("2026-07-28")] = None


class ListResult(CacheableResult, kw_only=True):
    """One page of a list that may be kept."""

    listed: ClassVar[bool] = True

    next_cursor: Cursor | None = None
