"""Parse the bytes of a body into a request, at a cost bounded by its size.

A few MB of JSON can hold millions of empty lists or of unknown fields, each of which costs hundreds of bytes and an
error of its own. They are counted before anything is built.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from whet.serving.errors import ApiError
from whet.serving.requests import Strict

S = TypeVar("S", bound=Strict)
MOST_PARTS = 50_000  # lists, objects and their fields
MOST_ITEMS = 500_000  # items of all lists and objects together: token ids, for the most part
_MOST_REASONS = 4
_LONGEST_FIELD = 200
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_FORM = re.compile(r"str|none|literal\[.*|constrained-.*|list\[.*|function-.*")


def parse(kind: type[S], body: bytes) -> S:
    """The body as a request; 400 names the field that is wrong."""
    _check_parts(body)
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from None


def parse_json(body: bytes) -> Any:
    """The body as plain objects of JSON, for an API that is translated."""
    _check_parts(body)
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body: is not JSON ({_short(str(error))})") from None


def build(kind: type[S], values: dict[str, Any]) -> S:
    """Objects of JSON as a request; 400 names the field that is wrong."""
    return parse(kind, to_json(values))


def _refusal(error: ValidationError) -> ApiError:
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    where = _field(errors[0]["loc"])
    # A field that takes several forms has an error for each of them.
    reasons = dict.fromkeys(each["msg"] for each in errors if _field(each["loc"]) == where)
    said = "; or: ".join(_short(each) for each in list(reasons)[:_MOST_REASONS])
    return ApiError(400, f"{where or 'the body'}: {said}", param=where or None)


def _check_parts(body: bytes) -> None:
    if _has_many(body) and _has_many(_STRING.sub(b"", body)):  # text may have any number of commas
        raise ApiError(
            400,
            f"the body: has more than {MOST_PARTS:,} lists, objects and fields, or more than {MOST_ITEMS:,} items; "
            "send several requests",
            "body_too_complex",
        )


def _has_many(body: bytes) -> bool:
    return sum(body.count(each) for each in (b"[", b"{", b":")) > MOST_PARTS or body.count(b",") > MOST_ITEMS


def _field(path: tuple[int | str, ...]) -> str:
    """Return the path of an error in a body, without pydantic's names for the forms of a field."""
    return _short(".".join(_short(str(part)) for part in path if not _FORM.fullmatch(str(part))))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_FIELD else f"{text[:_LONGEST_FIELD]}…"
