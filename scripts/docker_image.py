"""Make the image in which the provider `docker` runs hosts, out of this Python and this RoQ.

    .venv/bin/python scripts/docker_image.py [--url unix:///path] [--name roq-host] [--with PACKAGE]

The image gets two tags: `latest`, and one that changes with its content. If the engine has the
content already, nothing is built. Needs no registry and no network.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from roq.errors import RoQError
from roq.provider import image
from roq.provider.engine import Engine
from roq.runtime import exits

TIMEOUT_SECONDS = 300.0


def main(arguments: list[str]) -> int:
    """Build what is missing; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="", help="the Docker Engine; DOCKER_HOST by default")
    parser.add_argument("--name", default="roq-host", help="of the image")
    parser.add_argument(
        "--with", dest="packages", action="append", default=[], metavar="PACKAGE",
        help="another installed package for the image, such as one that offers policies",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        print(build(Engine(options.url, TIMEOUT_SECONDS), options.name, options.packages))
    except RoQError as error:
        print(error, file=sys.stderr)
        return exits.UNAVAILABLE
    return exits.STOPPED


def build(engine: Engine, name: str, packages: list[str]) -> str:
    """Make the image if the engine does not have it; gives its name with the tag of its content."""
    files = image.collect(packages)
    tag = image.content_tag(files)
    if engine.has_image(f"{name}:{tag}"):
        engine.tag(f"{name}:{tag}", name, "latest")
        return f"{name}:{tag}"
    with tempfile.TemporaryDirectory(prefix="roq-image-") as folder:
        archive = Path(folder) / "root.tar"
        with archive.open("wb") as stream:
            image.write(stream, files)
        engine.import_image(archive, name, [tag, "latest"], image.changes(tag))
    return f"{name}:{tag}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
