"""Anthropic's memory tool: what the SDK's own tool for a local directory says, ours says of items."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from hippocampus import Hippocampus

if TYPE_CHECKING:
    from anthropic.lib.tools import BetaAsyncAbstractMemoryTool

POEM = "one\ntwo\nthree\ntwo and two\n"
CR = "a\r\nb\r\n"


def view(path: str, *view_range: int) -> dict[str, Any]:
    return {"command": "view", "path": path, **({"view_range": list(view_range)} if view_range else {})}


def create(path: str, text: str) -> dict[str, Any]:
    return {"command": "create", "path": path, "file_text": text}


def replace(path: str, old: str, new: str) -> dict[str, Any]:
    return {"command": "str_replace", "path": path, "old_str": old, "new_str": new}


def insert(path: str, line: int, text: str) -> dict[str, Any]:
    return {"command": "insert", "path": path, "insert_line": line, "insert_text": text}


def delete(path: str) -> dict[str, Any]:
    return {"command": "delete", "path": path}


def rename(old: str, new: str) -> dict[str, Any]:
    return {"command": "rename", "old_path": old, "new_path": new}


CASES: dict[str, list[dict[str, Any]]] = {
    "files": [
        view("/memories"),
        create("/memories/poem.txt", POEM),
        create("/memories/poem.txt", "again"),
        create("/memories", "x"),
        view("/memories"),
        view("/memories/poem.txt"),
        view("/memories/poem.txt", 2, 3),
        view("/memories/poem.txt", 2, -1),
        view("/memories/poem.txt", -5, 1),
        view("/memories/poem.txt", 9, 12),
        view("/memories/poem.txt", 3, 2),
        view("/memories/none.txt"),
        view("/memories/poem.txt/below"),
        create("/memories/empty", ""),
        view("/memories/empty"),
        create("/memories/火锅 🦊.md", "火\n"),
        view("/memories"),
    ],
    "directories": [
        create("/memories/a/b/c/deep.txt", "x" * 1024),
        create("/memories/a/b/d.txt", "x" * 1537),
        create("/memories/a.txt", "x" * 3 * 1024 * 1024),
        create("/memories/.hidden", "x"),
        create("/memories/.dir/x", "x"),
        create("/memories/a/.b/x", "x"),
        create("/memories/v1.0/x%2E", "x"),
        create("/memories/B", ""),
        view("/memories"),
        view("/memories/a"),
        view("/memories/a/b/"),
        view("/memories/a/b/c"),
        view("/memories/v1.0"),
        view("/memories/v1.0/x%2E"),
        delete("/memories/a/b/d.txt"),
        delete("/memories/a/b/c/deep.txt"),
        view("/memories/a/b/c"),
        view("/memories/a"),
        delete("/memories/a"),
        view("/memories/a"),
        view("/memories/a.txt", 1, 0),
        view("/memories"),
    ],
    "edits": [
        create("/memories/poem", POEM),
        replace("/memories/poem", "two", "2"),
        replace("/memories/poem", "four", "4"),
        replace("/memories/poem", "three", "3\nand more"),
        view("/memories/poem"),
        replace("/memories/poem", "two and two\n", ""),
        replace("/memories/poem", "one", "ONE"),
        view("/memories/poem"),
        replace("/memories/none", "a", "b"),
        create("/memories/aaa", "aaa"),
        replace("/memories/aaa", "aa", "b"),
        create("/memories/dir/x", "x"),
        replace("/memories/dir", "a", "b"),
        replace("/memories", "a", "b"),
        replace("/memories/dir/x", "x", "$1 \\1 & x"),
        view("/memories/dir/x"),
        insert("/memories/poem", 0, "first\n"),
        insert("/memories/poem", 2, "third\n\n"),
        insert("/memories/poem", 6, "last"),
        insert("/memories/poem", 99, "beyond"),
        insert("/memories/poem", -1, "before"),
        view("/memories/poem"),
        insert("/memories/none", 0, "x"),
        insert("/memories/dir", 0, "x"),
        create("/memories/cr", CR),
        insert("/memories/cr", 1, "c\r"),
        replace("/memories/cr", "b\r\n", "B\r\n"),
        view("/memories/cr"),
        create("/memories/empty", ""),
        insert("/memories/empty", 0, "x"),
        view("/memories/empty"),
    ],
    "moves and paths": [
        create("/memories/a", "A"),
        create("/memories/dir/sub/x", "X"),
        rename("/memories/a", "/memories/new/place/b"),
        view("/memories/new/place/b"),
        view("/memories/a"),
        rename("/memories/dir", "/memories/new/dir"),
        view("/memories/new"),
        view("/memories/new/dir/sub/x"),
        view("/memories/dir"),
        rename("/memories/none", "/memories/x"),
        rename("/memories/new", "/memories/new/dir"),
        rename("/memories/new/dir", "/memories/new/place"),
        rename("/memories", "/memories/x"),
        rename("/memories/new", "/memories"),
        delete("/memories/none"),
        delete("/memories"),
        delete("/memories/"),
        view("/memories/new/../new/./dir//sub/x"),
        view("/memories/new/../../etc/passwd"),
        create("/memories/../secret", "x"),
        rename("/memories/new", "/memories/../secret"),
        view("/etc/passwd"),
        view("memories"),
        delete(""),
        view("/memories/../memories/new/place/b"),
        rename("/memories/new/dir/sub/x", "/memories/x"),
        view("/memories"),
    ],
}  # fmt: skip


@pytest.fixture
async def memory(pool: asyncpg.Pool) -> AsyncIterator[Hippocampus]:
    async with Hippocampus(pool, app="shop") as opened:
        yield opened


async def said(tool: BetaAsyncAbstractMemoryTool, command: dict[str, Any]) -> str:
    """What the model reads, without the sizes of directories, which a file system chooses."""
    from anthropic.lib.tools import ToolError

    try:
        text = str(await tool.call(command))
    except ToolError as error:
        text = f"Error: {error}"
    text = re.sub(r"^\S+(\t.*/)$", r"N\1", text, flags=re.M)
    return re.sub(r"(hidden items:\n)\S+", r"\1N", text)


@pytest.mark.parametrize("case", CASES)
async def test_each_answer_is_that_of_the_sdks_own_tool(memory: Hippocampus, tmp_path: Path, case: str) -> None:
    from anthropic.tools.memory import BetaAsyncLocalFilesystemMemoryTool

    from hippocampus.integrations.anthropic_memory import HippocampusMemoryTool

    theirs, ours = BetaAsyncLocalFilesystemMemoryTool(str(tmp_path)), HippocampusMemoryTool(memory, "ann@example.com")
    assert ours.to_dict() == theirs.to_dict()
    for command in CASES[case]:
        assert await said(ours, command) == await said(theirs, command), command
    assert await ours.clear_all_memory() == await theirs.clear_all_memory()
    assert await said(ours, view("/memories")) == await said(theirs, view("/memories"))


async def test_what_a_file_system_answers_with_its_own_errors(memory: Hippocampus) -> None:
    """Errors that the model can read, and nothing is changed."""
    from anthropic.lib.tools import ToolError

    from hippocampus.integrations.anthropic_memory import HippocampusMemoryTool

    tool = HippocampusMemoryTool(memory, "ann")
    await tool.call(create("/memories/file", "x"))
    await tool.call(create("/memories/dir/x", "x" * 2000))
    for command, expected in (
        (create("/memories/file/below", "x"), "below a file"),
        (rename("/memories/dir", "/memories/file/below"), "below a file"),
        (rename("/memories/dir", "/memories/dir/sub"), "into itself"),
        (create("/memories/" + "x" * 2000, "x"), "1500 bytes"),
        (create("/memories/a\0b", "x"), r"U\+0000"),
        (view("/memoriesx/file"), "must start with /memories"),
    ):
        with pytest.raises(ToolError, match=expected):
            await tool.call(command)
    assert "2.0K\t/memories/dir/\n" in str(await tool.call(view("/memories")))
    # Every text is kept, also what no file system would.
    await tool.call(create("/memories/odd", "a\0b \ud83d"))
    assert str(await tool.call(view("/memories/odd"))).endswith("a\0b \ud83d")


async def test_files_belong_to_their_user(memory: Hippocampus) -> None:
    """Others do not see them; edits at the same time are all kept; they are erased with the user."""
    from anthropic.lib.tools import ToolError

    from hippocampus.integrations.anthropic_memory import HippocampusMemoryTool

    mine, theirs = HippocampusMemoryTool(memory, "ann"), HippocampusMemoryTool(memory, "ben")
    other = HippocampusMemoryTool(memory, "ann", name="drafts")
    for tool in (mine, theirs, other):
        await tool.call(create("/memories/log", ""))
    await asyncio.gather(*(mine.call(insert("/memories/log", 0, f"line {n}")) for n in range(12)))
    lines = str(await mine.call(view("/memories/log"))).split("\n")[1:-1]
    assert sorted(line.split("\t")[1] for line in lines) == sorted(f"line {n}" for n in range(12))
    assert "line" not in str(await theirs.call(view("/memories/log"))).split("\n", 1)[1]
    # One of several that create the same file succeeds.
    done = await asyncio.gather(*(mine.call(create("/memories/one", str(n))) for n in range(8)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["ToolError"] * 7 + ["str"]
    assert (await memory.erasure.erase_user("shop", "ann")).is_complete
    with pytest.raises(ToolError, match="does not exist"):
        await mine.call(view("/memories/log"))
    assert await said(theirs, view("/memories/log"))
