"""Requests to resample: what they may hold, and what they say about what they may not."""

from __future__ import annotations

from typing import Any

import pytest

from whet.errors import UserError
from whet.resample.request import read_request

SAMPLE = {"kind": "branch", "step": 3, "row": 0}


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ([], "a request is an object"),
        ({"kind": "again", "step": 1}, "row must be given"),
        ({**SAMPLE, "folder": "/etc"}, "there is no 'folder'"),
        ({**SAMPLE, "kind": "train"}, "kind must be one of again, branch, tokens"),
        ({**SAMPLE, "step": -1}, "step must be a whole number of 0 or more"),
        ({**SAMPLE, "row": True}, "row must be a whole number"),
        ({**SAMPLE, "n": 65}, "n must be at most 64"),
        ({**SAMPLE, "n": 1.5}, "n must be a whole number of 1 or more"),
        ({**SAMPLE, "split": "test"}, "split must be train or val"),
        ({**SAMPLE, "temperature": float("nan")}, "temperature must be a number of 0 or more"),
        ({**SAMPLE, "temperature": "hot"}, "temperature must be a number of 0 or more"),
        ({**SAMPLE, "prompt": ""}, "prompt must have 1 to"),
        ({**SAMPLE, "prompt": ["a"]}, "prompt must be a text"),
        ({**SAMPLE, "at": 1, "token": 5, "text": "x"}, "not both"),
        ({**SAMPLE, "token": 5}, "at says where it goes"),
        ({**SAMPLE, "kind": "again", "temperature": 1.0}, "temperature is for kind=branch"),
    ],
)
def test_what_is_wrong_is_named(given: Any, part: str) -> None:
    with pytest.raises(UserError, match=part):
        read_request(given)


def test_a_request_survives_json() -> None:
    request = read_request({**SAMPLE, "at": 2, "text": "7", "temperature": 0, "n": 3})
    assert read_request(request.as_json()) == request
    assert request.split == "train"
