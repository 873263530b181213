"""Every route that requires a role says whose rows it may show: by its path, an owner, or an all-apps key."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from pulse.http.edge.owner import asserted_owner, bound_owner
from pulse.http.edge.roles import EVERY_APP, role_of
from pulse.http.edge.stream_access import access_of, run_access_of
from workers.api.app import bare_api

#: Dependencies that restrict a call to one user, or refuse the key of one app.
BOUNDS = {asserted_owner, bound_owner, access_of, run_access_of, EVERY_APP.dependency}


def calls(dependant: Dependant) -> Iterator[object]:
    """What a route depends on, at any depth."""
    for each in dependant.dependencies:
        yield each.call
        yield from calls(each)


def test_every_route_without_an_app_in_its_path_is_bound() -> None:
    """A role alone lets the key of one app pass, once the query or a header names that app."""
    routes = [each for each in bare_api(test_routes=True).routes if isinstance(each, APIRoute) and role_of(each)]
    unnamed = [each for each in routes if "{app_name}" not in each.path]
    open_to_any = {each.path for each in unnamed if not BOUNDS & set(calls(each.dependant))}
    assert open_to_any == set()
    assert {"/v1/apps", "/api/test-notify", "/api/installation/overview", "/api/runs"} <= {
        each.path for each in unnamed
    }
