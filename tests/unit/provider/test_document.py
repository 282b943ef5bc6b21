"""The provider that docs/providers.md shows keeps the contract; its tables name every option."""

import os
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import msgspec
import pytest

from roq.provider.docker import DockerOptions
from roq.provider.local import LocalOptions
from roq.provider.port import ProvidedHost, Provider
from roq.testing.provider_kit import ProviderKit

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "providers.md").read_text()


def shown() -> ModuleType:
    module = sys.modules.setdefault("our_pool", ModuleType("our_pool"))
    example = next(
        text
        for text in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
        if "PoolOptions" in text
    )
    exec(compile(example, "docs/providers.md", "exec"), module.__dict__)  # noqa: S102 - our own
    return module


def test_the_test_that_is_shown_opens_the_provider() -> None:
    shown()
    names: dict[str, object] = {}
    [code] = [
        text
        for text in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
        if "provider_kit" in text
    ]
    exec(compile(code, "docs/providers.md", "exec"), names)  # noqa: S102 - our own
    try:
        provider = names["TestPool"]().open()  # type: ignore[operator]
        assert provider.list("kit") == []
        provider.close()
    finally:
        shutil.rmtree(str(names["FOLDER"]))


class TestPool(ProviderKit):
    """A machine runs when there is a file of its name."""

    bad_options: ClassVar = ({}, {"machines": "one"})
    module: ClassVar = shown()
    test_a_host_joins_the_cluster_and_serves: ClassVar = None  # its machines are files

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def open(self) -> Provider:
        switch = f"{self.folder}/{{machine}}.on"
        provider: Provider = self.module.PoolProvider(
            self.module.PoolOptions(
                machines=[f"10.0.0.{number}" for number in range(1, 6)],
                folder=str(self.folder / "loans"),
                start=["sh", "-c", f"! grep -q no_such_setting {{settings}} && touch {switch}"],
                stop=["rm", "-f", switch],
                check=["test", "-e", switch],
            )
        )
        return provider

    def end(self, host: ProvidedHost) -> None:
        os.unlink(self.folder / f"{host.host}.on")  # noqa: PTH108 - that is how it is switched off

    def traces(self, host: ProvidedHost) -> list[str]:
        return [str(each) for each in self.folder.rglob(f"{host.host}*")]


@pytest.mark.parametrize(("name", "options"), [("local", LocalOptions), ("docker", DockerOptions)])
def test_the_tables_name_every_option_with_its_default(
    name: str, options: type[msgspec.Struct]
) -> None:
    table = TEXT.partition(f"| key of `[provider.{name}]`")[2].partition("\n\n")[0]
    told: dict[str, str] = {}
    for row in table.splitlines()[2:]:
        keys, default = (cell.strip() for cell in row.split("|")[1:3])
        names = re.findall(r"`(\w+)`", keys)
        values = default.replace("`", "").split(", ") if default else [""]
        told |= dict(zip(names, values * (len(names) if len(values) == 1 else 1), strict=True))
    real = {field.name: field.default for field in msgspec.structs.fields(options)}
    plain = {
        key: "" if default is msgspec.NODEFAULT else f"{default:g}"
        if isinstance(default, float) else str(default)
        for key, default in real.items()
    }  # fmt: skip
    assert told == plain
