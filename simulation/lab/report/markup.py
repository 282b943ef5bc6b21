"""HTML and SVG that cannot be broken out of: whatever is not `Markup` already is escaped."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias

import msgspec

from roq.simulation.lab.report.wording import clean

_VOID: Final = frozenset({"meta", "br", "col", "link", "hr"})


class Markup(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"
Attribute: TypeAlias = str | float | bool | None


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element.

    Args:
        name: of the element.
        children: text, which is escaped; `Markup`, which is not; None, which is nothing; or many.
        attributes: `class_` is `class`, other underscores are hyphens. None and False leave an
            attribute out, True gives it without a value; `Markup` is taken as it is.
    """
    opening = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Markup:
    """Children without an element around them."""
    return Markup("".join(map(_text, children)))


def document(
    title: str, body: Markup, *, style: str, script: str, data: object, language: str = "en"
) -> str:
    """A whole page that may run its own script and style and fetch nothing.

    Args:
        title: of the page.
        body: what is in it.
        style: of its own.
        script: of its own; it finds `data` in the element `data`.
        data: for the script, as JSON.
        language: of its text.
    """
    policy = (
        f"default-src 'none'; style-src-elem '{_digest(style)}'; style-src-attr 'unsafe-inline'; "
        f"script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    scripts = joined(
        tag("script", _json(data), type="application/json", id="data"),
        tag("script", Markup(script)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', body, scripts), lang=language)}\n"


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(clean(child), quote=False)
    return "".join(map(_text, child))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    if isinstance(value, Markup):
        return f' {name}="{value}"'
    text = clean(value) if isinstance(value, str) else f"{value:.5g}"
    return f' {name}="{escape(text)}"'


def _json(data: object) -> Markup:
    """JSON in which nothing can end the element it stands in."""
    text = msgspec.json.encode(data).decode()
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _digest(text: str) -> str:
    """As a content security policy names a script or style that may be used."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
