"""Requests that schemathesis generates from the API's own document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import httpx
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.support.properties import examples, is_fuzzing
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import KEY, WriterProcess

if TYPE_CHECKING:
    import requests
    import schemathesis

HURRIED_SECONDS = 10.0
HEADERS = {"Authorization": f"Bearer {KEY}"}


def ask_generated(writer: WriterProcess, *, number: int, seed_number: int) -> None:
    """Send each operation this many requests: none crashes, and the document lists the status of every response."""
    import requests
    import schemathesis

    page = httpx.get(f"{writer.url}/openapi.json", timeout=WAIT_SECONDS).json()
    with requests.Session() as session:
        for result in schemathesis.openapi.from_dict(page).get_all_operations():
            operation = result.ok()
            ask = given(case=operation.as_strategy())(_asker(writer, session, operation.definition.raw["responses"]))
            if not is_fuzzing():
                ask = seed(seed_number)(ask)
            settings(examples(number), phases=[Phase.generate], suppress_health_check=list(HealthCheck))(ask)()


def _asker(
    writer: WriterProcess, session: requests.Session, known: Mapping[str, Any]
) -> Callable[[schemathesis.Case], None]:
    def ask(case: schemathesis.Case) -> None:
        response = case.call(base_url=writer.url, session=session, headers=HEADERS, timeout=WAIT_SECONDS)
        said = (case.method, case.path, case.path_parameters, case.query, case.body, response.text)
        # An answer may be asked for within a millisecond, or within less than a busy machine takes.
        asked_seconds = case.body.get("max_seconds") if isinstance(case.body, Mapping) else None
        is_hurried = asked_seconds is not None and float(asked_seconds) < HURRIED_SECONDS
        is_late = is_hurried and response.status_code == 503 and "/problems/model-unavailable" in response.text
        if response.status_code >= 500 and not is_late:
            crashes = [line for line in writer.log() if line.get("event") == "request_crashed"]
            raise AssertionError((*said, crashes[-1:]))
        assert str(response.status_code) in known, said

    return ask
