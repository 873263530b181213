"""Generated requests for longer than the suite allows, with other seeds."""

from __future__ import annotations

import pytest

from tests.support.generated_requests import ask_generated
from tests.support.writer_process import WriterProcess

pytestmark = pytest.mark.system


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed_number", [11, 12])
def test_thousands_of_generated_requests_find_no_crash(writer: WriterProcess, seed_number: int) -> None:
    """No 5xx, and no status that the document does not list."""
    ask_generated(writer, number=25, seed_number=seed_number)
