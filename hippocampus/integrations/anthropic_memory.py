"""Anthropic's memory tool on Hippocampus: the model's files are items of the key-value store."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hippocampus.integrations.extras import missing_library

try:
    from anthropic.lib.tools import BetaAsyncAbstractMemoryTool, ToolError
except ModuleNotFoundError as error:
    raise missing_library("anthropic-memory", error) from error

from typing_extensions import override

from hippocampus.store.service import (
    LIMIT_MAX,
    USERS,
    Get,
    ItemStore,
    Namespace,
    Put,
    StoredItem,
    exclusive,
    user_label,
    user_of,
)
from pulse.errors import InvalidInputError

if TYPE_CHECKING:
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )

    from hippocampus.engine import Hippocampus

__all__ = ["HippocampusMemoryTool"]

#: The directory that the model sees.
ROOT: Final = "/memories"
LINES_MAX: Final = 999_999
#: Levels of a listing.
DEPTH_MAX: Final = 2
_NUMBER_WIDTH = len(str(LINES_MAX))
#: Lines that an edit shows before and after its place.
_AROUND = 2
_DIRECTORY: Final = {"directory": True}

#: The names of a file below the root; of the root itself none.
Path: TypeAlias = tuple[str, ...]


class HippocampusMemoryTool(BetaAsyncAbstractMemoryTool):
    """The files that a model keeps about one user, as items::

        async with Hippocampus("postgresql://localhost/agents", app="shop") as memory:
            tool = HippocampusMemoryTool(memory, "ann")
            runner = AsyncAnthropic().beta.messages.tool_runner(model=…, tools=[tool], messages=…, max_tokens=1000)
            answer = await runner.until_done()

    A file is an item ``{"text": …}`` whose key is its name, in the namespace of its directory: below ``("users",
    user_label(user), "memories")``, so that files are erased with their user. Results and errors read as those of the
    SDK's own tool for a local directory. Edits of several processes at once are made one after the other.
    """

    def __init__(
        self,
        memory: Hippocampus,
        user: str,
        *,
        name: str = "memories",
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        """Serve the files of a user.

        Args:
            name: names a set of files, if a user has several.
        """
        super().__init__(cache_control=cache_control)
        self._memory = memory
        self._root: Namespace = (USERS, user_label(user), name)

    @override
    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """List a directory two levels deep, or show the numbered lines of a file."""
        async with self._files(writes=False) as files:
            path = _read_path(command.path)
            entry = await files.get(path)
            if entry is None:
                raise ToolError(f"The path {command.path} does not exist. Please provide a valid path.")
            if entry.text is None:
                return _listing(command.path, await files.below(path), path)
            lines = entry.text.split("\n")
            if len(lines) > LINES_MAX:
                raise ToolError(f"File {command.path} exceeds maximum line limit of {LINES_MAX:,} lines.")
            first, last = 1, len(lines)
            if command.view_range and len(command.view_range) == 2:
                first = max(1, command.view_range[0])
                last = len(lines) if command.view_range[1] == -1 else command.view_range[1]
            shown = _numbered(lines[first - 1 : last], first)
            return f"Here's the content of {command.path} with line numbers:\n" + shown

    @override
    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Store a new file, with the directories above it."""
        async with self._files() as files:
            path = _read_path(command.path)
            if not path or await files.get(path):
                raise ToolError(f"File {command.path} already exists")
            await files.put(path, command.file_text, command.path)
            return f"File created successfully at: {command.path}"

    @override
    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that stands once in a file."""
        async with self._files() as files:
            path = _read_path(command.path)
            text = await files.text(path, command.path)
            found = list(_occurrences(text, command.old_str))
            if not found:
                raise ToolError(
                    f"No replacement was performed, old_str `{command.old_str}` did not appear verbatim in"
                    f" {command.path}."
                )
            if text.count(command.old_str) > 1:
                numbers = ", ".join(str(text.count("\n", 0, place) + 1) for place in found)
                raise ToolError(
                    f"No replacement was performed. Multiple occurrences of old_str `{command.old_str}` in lines:"
                    f" {numbers}. Please ensure it is unique"
                )
            edited = text.replace(command.old_str, command.new_str)
            await files.put(path, edited, command.path)
            line = text.count("\n", 0, found[0])
            first = max(0, line - _AROUND)
            return (
                "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
                + _numbered(edited.split("\n")[first : line + _AROUND + 1], first + 1)
            )

    @override
    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert lines after a line of a file; 0 is before the first."""
        async with self._files() as files:
            path = _read_path(command.path)
            lines = (await files.text(path, command.path)).split("\n")
            if not lines[-1]:
                lines.pop()
            if not 0 <= command.insert_line <= len(lines):
                raise ToolError(
                    f"Invalid `insert_line` parameter: {command.insert_line}. It should be within the range"
                    f" [0, {len(lines)}]."
                )
            lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
            edited = "\n".join(lines)
            await files.put(path, edited if edited.endswith("\n") else edited + "\n", command.path)
            return f"The file {command.path} has been edited."

    @override
    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file, or a directory with everything below it."""
        async with self._files() as files:
            path = _read_path(command.path)
            if not path:
                raise ToolError(f"Cannot delete the {ROOT} directory itself")
            entry = await files.get(path)
            if entry is None:
                raise ToolError(f"The path {command.path} does not exist")
            await files.delete(path, entry)
            return f"Successfully deleted {command.path}"

    @override
    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Move a file, or a directory with everything below it, where nothing is yet."""
        async with self._files() as files:
            old, new = _read_path(command.old_path), _read_path(command.new_path)
            if not old:
                raise ToolError(f"Cannot rename the {ROOT} directory itself")
            if not new or await files.get(new):
                raise ToolError(f"The destination {command.new_path} already exists")
            entry = await files.get(old)
            if entry is None:
                raise ToolError(f"The path {command.old_path} does not exist")
            if new[: len(old)] == old:
                raise ToolError(f"Cannot move {command.old_path} into itself, to {command.new_path}")
            await files.move(old, new, entry, command.new_path)
            return f"Successfully renamed {command.old_path} to {command.new_path}"

    @override
    async def clear_all_memory(self) -> str:
        """Delete every file."""
        async with self._files() as files:
            await files.clear()
            return "All memory cleared"

    @contextlib.asynccontextmanager
    async def _files(self, *, writes: bool = True) -> AsyncIterator[_Files]:
        """Enter the files; what the database refuses becomes an error that the model can read."""
        try:
            if writes:
                # An edit reads before it writes: another caller of the same files waits.
                async with exclusive(self._memory.pool, self._memory.app, self._root) as items:
                    yield _Files(items, self._root)
            else:
                yield _Files(self._memory.items, self._root)
        except InvalidInputError as error:
            raise ToolError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file with its text, or a directory, which has none."""

    path: Path
    text: str | None

    @property
    def size(self) -> int:
        """The file's bytes of UTF-8."""
        return 0 if self.text is None else len(self.text.encode("utf-8", "surrogatepass"))


class _Files:
    """Files and directories as items. A directory has one too, so that it may be empty; the root has none."""

    def __init__(self, items: ItemStore, root: Namespace) -> None:
        self._items = items
        self._root = root

    async def get(self, path: Path) -> _Entry | None:
        if not path:
            return _Entry(path, None)
        item = await self._items.get(*self._names(path))
        return None if item is None else _entry(path, item)

    async def text(self, path: Path, shown: str) -> str:
        """Return the text of a file that must exist."""
        entry = await self.get(path)
        if entry is None:
            raise ToolError(f"The path {shown} does not exist. Please provide a valid path.")
        if entry.text is None:
            raise ToolError(f"The path {shown} is not a file.")
        return entry.text

    async def put(self, path: Path, text: str, shown: str) -> None:
        """Store a file, and the directories above it that do not exist."""
        puts = await self._missing_directories(path, shown)
        await self._items.put_many([*puts, Put(*self._names(path), {"text": text})])

    async def below(self, path: Path) -> list[_Entry]:
        """Return what is below a directory, at any depth."""
        items = await self._items.search(self._directory(path), limit=LIMIT_MAX)
        return [_entry((*map(user_of, item.namespace[len(self._root) :]), item.key), item) for item in items]

    async def delete(self, path: Path, entry: _Entry) -> None:
        if entry.text is None:
            await self._items.delete_below(self._directory(path))
        await self._items.delete(*self._names(path))

    async def move(self, old: Path, new: Path, entry: _Entry, shown: str) -> None:
        puts = await self._missing_directories(new, shown)
        value: dict[str, Any] = dict(_DIRECTORY) if entry.text is None else {"text": entry.text}
        await self._items.put_many([*puts, Put(*self._names(old), None), Put(*self._names(new), value)])
        if entry.text is None:
            await self._items.move_below(self._directory(old), self._directory(new))

    async def clear(self) -> None:
        await self._items.delete_below(self._root)

    async def _missing_directories(self, path: Path, shown: str) -> list[Put]:
        """Return the writes of the directories above a path that do not exist yet."""
        names = [self._names(path[:depth]) for depth in range(1, len(path))]
        found = await self._items.get_many([Get(*each) for each in names])
        if any(item is not None and "text" in item.value for item in found):
            raise ToolError(f"The path {shown} is below a file: only a directory can hold it")
        return [Put(*each, _DIRECTORY) for each, item in zip(names, found, strict=True) if item is None]

    def _names(self, path: Path) -> tuple[Namespace, str]:
        return self._directory(path[:-1]), path[-1]

    def _directory(self, path: Path) -> Namespace:
        # Without periods, so that LangGraph can name it.
        return (*self._root, *map(user_label, path))


def _entry(path: Path, item: StoredItem) -> _Entry:
    text = item.value.get("text")
    return _Entry(path, text if isinstance(text, str) else None)


def _read_path(given: str) -> Path:
    """Return the names of a path that the model gave."""
    if given != ROOT and not given.startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with {ROOT}, got: {given}")
    # normpath keeps two slashes at the start, and only those.
    path = posixpath.normpath(given)
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"Path {given} would escape {ROOT} directory")
    return tuple(path.split("/")[2:])


def _occurrences(text: str, wanted: str) -> Iterator[int]:
    """Yield each position of a text, overlapping ones included."""
    place = text.find(wanted)
    while place != -1:
        yield place
        place = text.find(wanted, place + 1)


def _numbered(lines: Iterable[str], first: int) -> str:
    return "\n".join(f"{number:>{_NUMBER_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def _listing(shown: str, entries: Sequence[_Entry], directory: Path) -> str:
    """Return what is in a directory: two levels, in the order of their names, with sizes. Hidden names are left out.

    The size of a directory is that of all files below it.
    """
    sizes: dict[Path, int] = {directory: 0}
    is_file: dict[Path, bool] = {}
    for entry in entries:
        is_file[entry.path] = entry.text is not None
        for depth in range(len(directory), len(entry.path) + 1):
            above = entry.path[:depth]
            sizes[above] = sizes.get(above, 0) + entry.size
    lines = [f"{_size(sizes[directory])}\t{shown}"]
    for path in sorted(sizes):
        names = path[len(directory) :]
        if not names or len(names) > DEPTH_MAX or any(name.startswith(".") for name in names):
            continue
        lines.append(f"{_size(sizes[path])}\t{shown}/{'/'.join(names)}{'' if is_file.get(path) else '/'}")
    if len(entries) == LIMIT_MAX:
        lines.append(f"There are more: of the files, the {LIMIT_MAX:,} that were changed last are listed.")
    return (
        f"Here're the files and directories up to {DEPTH_MAX} levels deep in {shown}, excluding hidden items:\n"
        + "\n".join(lines)
    )


def _size(count: int) -> str:
    """Return a number of bytes as people read it, such as 512B or 1.5K."""
    size, unit = float(count), "B"
    for larger in "KMG":
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{int(size)}{unit}" if size == int(size) else f"{size:.1f}{unit}"
