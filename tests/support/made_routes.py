"""Makes every route, which a writer makes with the first request for it. Writers that are forked share them."""

from __future__ import annotations

from workers.api.app import bare_api

for each in bare_api(test_routes=True).routes:
    getattr(each, "app", None)
