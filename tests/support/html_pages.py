"""HTML pages, read strictly: whole, loading nothing, running nothing but their own script."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "link", "hr"}


class Checked(HTMLParser):
    """Every element is closed where it should be; what loads anything, or runs, is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text += f"{data} "


def read(text: str) -> Checked:
    """The page, checked: whole, of its own, and with names that are unique."""
    found = Checked()
    found.feed(text)
    found.close()
    assert found.open == []
    assert [name for name, _ in found.seen].count("script") == 2
    assert not {"img", "iframe", "link", "object", "form"} & {name for name, _ in found.seen}
    for _, attributes in found.seen:
        assert not {"src", "href", "onclick", "onerror", "onload"} & attributes.keys()
    names = [attributes["id"] for _, attributes in found.seen if "id" in attributes]
    assert len(names) == len(set(names))
    # Not even a name space: nothing looks as if it were fetched.
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    return found


def named(found: Checked, name: str) -> list[dict[str, str | None]]:
    return [attributes for each, attributes in found.seen if each == name]
