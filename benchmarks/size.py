"""What installing costs: the distributions of a clean environment, ours and that of `mcp` 2.3.0.

    scripts/bench size

Installs the clone into a fresh environment, as `pip install colonnade` would, and lists what is
there afterwards. Ends with 1 where there are more than 17 distributions.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEER = ("mcp", "2.3.0")

# What `scripts/bench size` promises; tests/test_size.py keeps it, too.
MOST_DISTRIBUTIONS = 17
# What every environment has, whatever is installed.
TOOLS = {"pip", "setuptools", "wheel"}

LIST = """
import json
from importlib.metadata import distributions
from pathlib import Path
print(json.dumps([
    [one.name, one.version, sum(
        Path(one.locate_file(path)).stat().st_size for path in one.files or []
        if Path(one.locate_file(path)).exists()
    )]
    for one in distributions()
]))
"""


def held(python: Path) -> list[tuple[str, str, int]]:
    """Name, version and bytes of all that an environment holds."""
    run = subprocess.run([str(python), "-I", "-c", LIST], stdout=subprocess.PIPE, check=True)
    found = [(str(name), str(version), int(size)) for name, version, size in json.loads(run.stdout)]
    return sorted(one for one in found if one[0].lower() not in TOOLS)


def install(folder: Path) -> Path:
    """A fresh environment with the clone in it; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    if subprocess.run([*pip, "install", "--quiet", str(ROOT)]).returncode:
        sys.exit("pip could not install colonnade (above); the package index must be reachable")
    return python


def main() -> int:
    with tempfile.TemporaryDirectory() as made:
        ours = held(install(Path(made)))
    peer = subprocess.run(
        [str(ROOT / "scripts" / "_peers"), *PEER], stdout=subprocess.PIPE, text=True
    )
    if peer.returncode:
        return 1  # it has said why
    theirs = held(Path(peer.stdout.strip()) / "bin" / "python")
    for name, version, size in ours:
        print(f"  {name:<24} {version:<14} {size / 1e6:>6.1f} MB")
    for whose, all_of_it in (("colonnade", ours), (" ".join(PEER), theirs)):
        total = sum(size for _, _, size in all_of_it) / 1e6
        print(f"{whose:<10} {len(all_of_it)} distributions, {total:.1f} MB")
    kept = len(ours) <= MOST_DISTRIBUTIONS
    print(f"at most {MOST_DISTRIBUTIONS} distributions: {'kept' if kept else 'MISSED'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
