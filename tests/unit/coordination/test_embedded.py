"""The embedded ZooKeeper before it runs: its files, its command and what is said when it cannot."""

import importlib.util
import os
import socket
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from roq.coordination import embedded
from roq.coordination.embedded import (
    Ensemble,
    Member,
    class_path,
    find_java,
    prepare,
    serves,
)
from roq.errors import ConfigError, Unavailable


@pytest.fixture
def java_home(tmp_path: Path) -> Path:
    java = tmp_path / "jre" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho what a pity; exit 3\n")
    java.chmod(0o755)
    return tmp_path / "jre"


def fake_pyspark(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> None:
    spec = None
    if folder is not None:
        spec = ModuleSpec("pyspark", None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)


def test_only_the_jars_of_the_server_are_on_the_class_path() -> None:
    names = {Path(jar).name for jar in class_path().split(os.pathsep)}
    assert any(name.startswith("zookeeper-3") for name in names)
    assert len(names) == len(embedded._JARS)
    assert not any("netty" in name or "spark" in name for name in names)


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pyspark(monkeypatch, None)
    with pytest.raises(Unavailable, match=r"pip install 'roq-cluster\[embedded\]'"):
        class_path()


def test_a_pyspark_without_the_jars_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_pyspark(monkeypatch, tmp_path)
    with pytest.raises(Unavailable, match=r"jars has no zookeeper-3\*\.jar"):
        class_path()


def test_the_server_is_told_where_to_listen_and_to_serve_nothing_else(
    tmp_path: Path, java_home: Path
) -> None:
    command = prepare(tmp_path / "zk", "127.0.0.1", 2181, {"JAVA_HOME": str(java_home)})
    assert command[0] == str(java_home / "bin" / "java")
    text = Path(command[-1]).read_text()
    for line in (
        f"dataDir={tmp_path / 'zk' / 'data'}",
        "clientPort=2181",
        "clientPortAddress=127.0.0.1",
        "admin.enableServer=false",
        "4lw.commands.whitelist=srvr",
    ):
        assert line in text.splitlines()


def test_a_server_of_an_ensemble_knows_itself_and_the_others(
    tmp_path: Path, java_home: Path
) -> None:
    members = tuple(Member(client, client + 100, client + 200) for client in (4001, 4002, 4003))
    environ = {"JAVA_HOME": str(java_home)}
    command = prepare(tmp_path, "127.0.0.1", 4002, environ, Ensemble(members, 2))
    lines = Path(command[-1]).read_text().splitlines()
    assert {
        "clientPort=4002",
        "server.1=127.0.0.1:4101:4201",
        "server.2=127.0.0.1:4102:4202",
        "server.3=127.0.0.1:4103:4203",
    } <= set(lines)
    assert (tmp_path / "data" / "myid").read_text() == "2\n"


def test_the_memory_of_a_server_is_bounded(tmp_path: Path, java_home: Path) -> None:
    command = prepare(tmp_path, "127.0.0.1", 2181, {"JAVA_HOME": str(java_home)})
    for flag in ("-Xmx", "-XX:MaxMetaspaceSize=", "-XX:ReservedCodeCacheSize="):
        assert any(word.startswith(flag) for word in command)


def test_a_data_directory_that_is_a_file_is_an_error(tmp_path: Path, java_home: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used for data"):
        prepare(tmp_path / "file", "127.0.0.1", 2181, {"JAVA_HOME": str(java_home)})


def test_nobody_serves_on_a_port_that_is_closed_or_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert not serves("127.0.0.1", port, timeout=0.05)
    assert not serves("127.0.0.1", port, timeout=0.05)


def program(folder: Path) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, path = program(tmp_path / "home"), program(tmp_path / "path")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert find_java(environ) == home


def test_then_comes_the_path(tmp_path: Path) -> None:
    path, usual = program(tmp_path / "path"), program(tmp_path / "usual" / "java-17")
    environ = {"JAVA_HOME": " ", "PATH": str(path.parent)}
    assert find_java(environ, (usual.parents[2],)) == path


def test_then_come_the_usual_places(tmp_path: Path) -> None:
    usual = program(tmp_path / "usual" / "java-17")
    assert find_java({"PATH": str(tmp_path)}, (tmp_path / "none", tmp_path / "usual")) == usual


def test_a_java_home_without_java_is_an_error_and_not_passed_over(tmp_path: Path) -> None:
    path = program(tmp_path / "path")
    with pytest.raises(Unavailable, match=r"JAVA_HOME is .*none.*correct or unset it"):
        find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": str(path.parent)})


def test_without_any_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="apt-get install openjdk-17-jre-headless"):
        find_java({"PATH": str(tmp_path)}, (tmp_path,))
