"""The root filesystem of a host: complete, the same for the same files, and not more."""

import io
import sys
import tarfile
from pathlib import Path

import pytest

from roq.errors import ConfigError
from roq.provider import image


@pytest.fixture(scope="module")
def files() -> image.Files:
    return image.collect()


def test_python_and_its_libraries_stay_where_they_are(files: image.Files) -> None:
    assert files[str(image.interpreter())] == image.interpreter()
    assert any("/asyncio/__init__.py" in path for path in files)
    assert any(path.rpartition("/")[2].startswith("libc.so") for path in files)


def test_roq_and_what_it_needs_are_in_a_folder_of_their_own(files: image.Files) -> None:
    for path in ("roq/hcm/__main__.py", "zmq/__init__.py", "dns/__init__.py", "kazoo/__init__.py"):
        assert f"/opt/roq/{path}" in files
    assert not any("/pyspark/" in path or "/hypothesis/" in path for path in files)


def test_what_no_host_needs_is_left_out(files: image.Files) -> None:
    for word in ("/idlelib/", "/ensurepip/", "/lib2to3/"):
        assert not any(word in path for path in files)


def test_another_package_may_be_taken_along() -> None:
    assert "/opt/roq/pluggy/__init__.py" in image.collect(["pluggy"])
    with pytest.raises(ConfigError, match="no-such-package is not installed"):
        image.collect(["no-such-package"])


def test_the_tag_tells_the_content_and_nothing_else(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a")
    two.write_text("a")
    tag = image.content_tag({"/x": one})
    assert tag == image.content_tag({"/x": two}) == image.content_tag({"/x": one, "/y.pyc": two})
    two.write_text("b")
    others = {image.content_tag({"/x": two}), image.content_tag({"/z": one}), image.content_tag({})}
    assert tag not in others
    assert len(others) == 3


def test_the_archive_has_folders_users_and_modes(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!")
    program.chmod(0o700)
    stream = io.BytesIO()
    image.write(stream, {"/usr/bin/program": program})
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        entries = {entry.name: entry for entry in archive}
        assert archive.extractfile("usr/bin/program").read() == b"#!"  # type: ignore[union-attr]
    assert entries["usr/bin/program"].mode == 0o755
    assert entries["usr/bin"].isdir()
    assert entries["usr/bin"].mode == 0o755
    assert entries["tmp"].mode == 0o1777
    assert (entries["var/lib/roq"].uid, entries["etc/roq"].uid) == (1000, 0)
    assert entries["etc/passwd"].size > 0


def test_the_image_is_run_by_a_user_without_rights() -> None:
    changes = image.changes("tag")
    assert "USER 1000:1000" in changes
    assert changes[0].startswith("ENTRYPOINT [")
    assert sys.version.partition(" ")[0].rpartition(".")[0] in str(image.interpreter().resolve())


def test_an_image_in_which_no_host_could_run_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = image._needed
    monkeypatch.setattr(image, "_needed", lambda names: needed(names) - {"msgspec"})
    with pytest.raises(ConfigError, match="No module named 'msgspec'"):
        image.collect()
