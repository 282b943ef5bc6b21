"""The Java runtime: JAVA_HOME, then the PATH, then the usual places, else how to install one."""

from pathlib import Path

import pytest

from roq.coordination.java import find_java
from roq.errors import Unavailable


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
