"""The built console: the same source gives the same bytes, its types are checked, and its languages are complete."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.system

BUILT = ROOT / "pulse" / "http" / "page" / "built"
LANGUAGES = """
import { en } from "./en.mjs";
import { zh } from "./zh.mjs";
const say = (message) => (typeof message === "function" ? message(...Array(message.length).fill(7)) : message);
const flat = (messages, at = "") => Object.entries(messages).flatMap(([name, each]) =>
  typeof each === "object" ? flat(each, `${at}${name}.`) : [[`${at}${name}`, String(say(each))]]);
console.log(JSON.stringify([flat(en), flat(zh)]));
"""


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_committed_files_are_what_the_source_builds(tmp_path: Path) -> None:
    """A fresh build equals the files of the package, byte for byte. Every message exists in both languages."""
    folder = tmp_path / "console"
    shutil.copytree(ROOT / "console", folder, ignore=shutil.ignore_patterns("node_modules"))
    client = ROOT / "clients" / "typescript"
    shutil.copytree(client, tmp_path / "clients" / "typescript", ignore=shutil.ignore_patterns("node_modules", "dist"))
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)
    run("npm", "run", "check", folder=folder)
    out = tmp_path / "out"
    run("node", "build.mjs", str(out), folder=folder)
    built = {each.relative_to(out): each.read_bytes() for each in out.rglob("*") if each.is_file()}
    kept = {each.relative_to(BUILT): each.read_bytes() for each in BUILT.rglob("*") if each.is_file()}
    assert sorted(built) == sorted(kept), "make page"
    for name, content in built.items():
        assert content == kept[name], f"{name}: make page"

    messages = tmp_path / "messages"
    bundle = (
        "node_modules/.bin/esbuild",
        "src/i18n/en.ts",
        "src/i18n/zh.ts",
        "--format=esm",
        "--out-extension:.js=.mjs",
    )
    run(*bundle, f"--outdir={messages}", folder=folder)
    (messages / "both.mjs").write_text(LANGUAGES, encoding="utf-8")
    english, chinese = (dict(each) for each in json.loads(run("node", "both.mjs", folder=messages)))
    assert list(english) == list(chinese)
    # The same words in both are names and signs.
    same = {name for name, text in english.items() if chinese[name] == text and text.strip("0123456789 +#·")}
    assert same == set(), {name: english[name] for name in same}
