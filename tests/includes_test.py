#!/usr/bin/env python3
"""The rooms of src/lerobot use only rooms above them in docs/architecture.md.

Checks every #include "lerobot/ROOM/..." and every room that src/lerobot/CMakeLists.txt names in a room's DEPS.
  tests/includes_test.py           check the project, after checking that the check can fail
  tests/includes_test.py FOLDER    check another tree of the same layout
"""

import pathlib
import re
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*"lerobot/([^"/]+)/', re.MULTILINE)
ROOM_RULE = re.compile(r"^lerobot_room\((\w+)([^)]*)\)", re.MULTILINE)


def rooms_of(architecture: str) -> list[str]:
    """The rooms in order: the indented lines under "src/lerobot/" of the tree."""
    tree = re.search(r"^src/lerobot/\n((?:  .*\n)+)", architecture, re.MULTILINE)
    if not tree:
        sys.exit("docs/architecture.md: the tree of rooms under a line 'src/lerobot/' is missing")
    return re.findall(r"^  (\w+)/", tree[1], re.MULTILINE)


def faults(root: pathlib.Path) -> list[str]:
    """One line for every broken rule of the tree."""
    rooms = rooms_of((root / "docs/architecture.md").read_text())
    place = {room: number for number, room in enumerate(rooms)}
    found = []

    def check(room: str, used: str, where: str) -> None:
        if used not in place:
            found.append(f"{where}: {used} is no room of docs/architecture.md")
        elif place[used] > place[room]:
            found.append(f"{where}: {room} uses {used}, which is below it in docs/architecture.md")

    source = root / "src/lerobot"
    for folder in sorted(path for path in source.iterdir() if path.is_dir()):
        files = sorted(path for path in folder.rglob("*") if path.suffix in (".h", ".cpp"))
        if folder.name not in place:
            if files:
                found.append(f"{folder.relative_to(root)}: {folder.name} is no room of docs/architecture.md")
            continue
        for file in files:
            text = file.read_text()
            for include in INCLUDE.finditer(text):
                line = text.count("\n", 0, include.start(1)) + 1
                check(folder.name, include[1], f"{file.relative_to(root)}:{line}")

    cmake = source / "CMakeLists.txt"
    for rule in ROOM_RULE.finditer(cmake.read_text()):
        room, where = rule[1], f"{cmake.relative_to(root)}: lerobot_room({rule[1]})"
        if room not in place:
            found.append(f"{where}: {room} is no room of docs/architecture.md")
            continue
        for used in re.findall(r"\blerobot_(\w+)", rule[2]):
            check(room, used, where)
    return found


def make_tree(root: pathlib.Path, files: dict[str, str]) -> pathlib.Path:
    tree = {
        "docs/architecture.md": "```\napps/     programs\nsrc/lerobot/\n  base/     below\n            all\n  video/    above\ntests/\n```\n",
        "src/lerobot/CMakeLists.txt": "lerobot_room(base DEPS fmt::fmt)\nlerobot_room(video DEPS lerobot_base)\n",
        "src/lerobot/base/error.h": '#include <string>\n#include "lerobot/base/log.h"\n',
        "src/lerobot/video/index.cpp": '#include "lerobot/base/error.h"\n',
    }
    for name, text in {**tree, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def check_that_the_check_can_fail() -> None:
    cases = {
        "a tree without a fault": ({}, []),
        "a room that includes one below it": (
            {"src/lerobot/base/detail/file.cpp": '\n#  include "lerobot/video/index.h"\n'},
            ["src/lerobot/base/detail/file.cpp:2: base uses video, which is below it in docs/architecture.md"],
        ),
        "an include of an unknown room": (
            {"src/lerobot/video/index.cpp": '#include "lerobot/utils/all.h"\n'},
            ["src/lerobot/video/index.cpp:1: utils is no room of docs/architecture.md"],
        ),
        "an unknown room": (
            {"src/lerobot/helpers/all.h": ""},
            ["src/lerobot/helpers: helpers is no room of docs/architecture.md"],
        ),
        "a room linked to one below it": (
            {"src/lerobot/CMakeLists.txt": "lerobot_room(base DEPS\n  lerobot_video)\n"},
            ["src/lerobot/CMakeLists.txt: lerobot_room(base): base uses video, which is below it in docs/architecture.md"],
        ),
        "an unknown room in CMake": (
            {"src/lerobot/CMakeLists.txt": "lerobot_room(helpers DEPS lerobot_base)\n"},
            ["src/lerobot/CMakeLists.txt: lerobot_room(helpers): helpers is no room of docs/architecture.md"],
        ),
    }
    for name, (files, expected) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            found = faults(make_tree(pathlib.Path(folder), files))
        if found != expected:
            sys.exit(f"includes_test: {name}: expected {expected}, found {found}")


if __name__ == "__main__":
    check_that_the_check_can_fail()
    project = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1])
    broken = faults(project)
    print("\n".join(broken), file=sys.stderr, end="\n" if broken else "")
    if broken:
        sys.exit(f"includes_test: {len(broken)} uses go against the order of rooms")
    print("includes_test: every room uses only rooms above it")
