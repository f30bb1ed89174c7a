"""The package where no installation has left metadata: a copied source tree, a zip application.

Rules: each runs in an interpreter of its own that sees the libraries, but no distribution of ours.
"""

import shutil
import site
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

import colonnade

SOURCE = Path(colonnade.__file__).parent

PROGRAM = """
import asyncio
import sys

from importlib.metadata import PackageNotFoundError, version

try:
    sys.exit(f"there is metadata of colonnade {version('colonnade')}")
except PackageNotFoundError:
    pass

import colonnade


def serve():
    server = colonnade.Server("shop")

    @server.tool
    def price(item: str) -> int:
        "The price of an item."
        return len(item)

    return server


async def ask():
    here = [sys.executable, "-I", "-S", __file__ if ZIPPED is None else ZIPPED, "serve"]
    for target in (serve(), here):
        async with colonnade.connect(target) as client:
            tools = [tool.name for tool in await client.list_tools()]
            print(tools, (await client.call_tool("price", {"item": "tea"})).data)
    async with colonnade.Host({"shop": serve()}) as host:
        print([tool.name for tool in await host.list_tools()])


if sys.argv[1:] == ["serve"]:
    serve().run()
elif sys.argv[1:]:
    from colonnade.__main__ import main

    main()
else:
    print(colonnade.__version__)
    for name in colonnade.__all__:
        getattr(colonnade, name)
    asyncio.run(ask())
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What we depend on, without any trace of ourselves."""
    place = tmp_path_factory.mktemp("libraries")
    for folder in site.getsitepackages():
        for one in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if "colonnade" not in one.name and one.suffix != ".pth":
                (place / one.name).symlink_to(one)
    return place


@pytest.fixture(params=["a copied source tree", "a zip application"])
def program(request: pytest.FixtureRequest, tmp_path: Path, libraries: Path) -> Path:
    """A program that has the package inside it."""
    tree = tmp_path / "tree"
    shutil.copytree(SOURCE, tree / "colonnade", ignore=shutil.ignore_patterns("__pycache__"))
    archive = tmp_path / "shop.pyz"
    zipped = request.param == "a zip application"
    # `-I` keeps the folder of a program out of its path, but not an archive.
    places = [str(libraries)] if zipped else [str(tree), str(libraries)]
    start = f"import sys\nsys.path += {places}\nZIPPED = {str(archive) if zipped else None!r}\n"
    (tree / "__main__.py").write_text(start + PROGRAM, "utf-8")
    if zipped:
        zipapp.create_archive(tree, archive)
    return archive if zipped else tree / "__main__.py"


def run(program: Path, *arguments: str) -> str:
    argv = [sys.executable, "-I", "-S", str(program), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_client_a_server_and_a_host_work_without_metadata(program: Path) -> None:
    listed = "['price'] 3\n"
    assert run(program) == f"{colonnade.__version__}\n{listed}{listed}['shop__price']\n"


def test_the_command_line_tells_its_version_without_metadata(program: Path) -> None:
    assert run(program, "--version") == f"colonnade {colonnade.__version__}\n"
