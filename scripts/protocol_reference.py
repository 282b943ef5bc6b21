"""Write the reference part of docs/protocol.md out of the code.

The structs of `roq.protocol` are the law; this prints their fields, types, defaults and docstrings
between two marks of the document. `--check` only says whether the document is up to date.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "protocol.md"
MODULES = ("channel", "control", "spec")
BEGIN = "<!-- generated from roq/protocol by scripts/protocol_reference.py -->"
END = "<!-- end of the generated part -->"


def main(arguments: list[str]) -> int:
    """Update the document, or with `--check` compare it; gives the exit code."""
    old = DOCUMENT.read_text()
    head, _, rest = old.partition(BEGIN)
    _, _, tail = rest.partition(END)
    new = f"{head}{BEGIN}\n\n{reference()}\n{END}{tail}"
    if arguments == ["--check"]:
        if new != old:
            print("docs/protocol.md is stale: run python scripts/protocol_reference.py")
        return int(new != old)
    DOCUMENT.write_text(new)
    return 0


def reference() -> str:
    """The Markdown of all structs, module by module."""
    parts: list[str] = []
    for module in MODULES:
        tree = ast.parse((ROOT / "roq" / "protocol" / f"{module}.py").read_text())
        parts.append(f"### `roq.protocol.{module}`\n")
        parts += [_describe(node) for node in tree.body if isinstance(node, ast.ClassDef)]
    return "\n".join(parts)


def _describe(node: ast.ClassDef) -> str:
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    tag = f" · CMD {keywords['tag']}" if keywords.get("tag", "").isdigit() else ""
    lines = [f"**{node.name}**{tag}  ", " ".join((ast.get_docstring(node) or "").split()), ""]
    fields = list(_fields(node))
    if fields:
        lines += ["| field | type | default | meaning |", "|---|---|---|---|", *fields, ""]
    return "\n".join(lines)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for index, item in enumerate(node.body):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            kind = ast.unparse(item.annotation).replace("|", "\\|")
            default = f"`{ast.unparse(item.value)}`" if item.value is not None else ""
            meaning = _docstring_after(node.body, index)
            yield f"| `{item.target.id}` | `{kind}` | {default} | {meaning} |"


def _docstring_after(body: list[ast.stmt], index: int) -> str:
    if index + 1 < len(body):
        following = body[index + 1]
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            return " ".join(str(following.value.value).split()).replace("|", "\\|")
    return ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
