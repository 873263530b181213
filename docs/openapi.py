"""Writes the OpenAPI document to standard output, as `GET /openapi.json` returns it, but without a database."""

from __future__ import annotations

import json
import sys

from workers.api.app import bare_api

if __name__ == "__main__":
    json.dump(bare_api().openapi(), sys.stdout, ensure_ascii=False, indent=1)
