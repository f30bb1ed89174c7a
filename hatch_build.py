"""The description and the addresses of a distribution, for the page of an index.

A page of an index has no files beside it, so the links of README.md lead to the repository there.
Its address is where the distribution is built: `COLONNADE_REPOSITORY`, such as
https://git.example.com/colonnade/colonnade, which the release workflow sets. Without it links
become their words, pictures are left out, and the metadata names no address.

Rules: needs what builds the package, and nothing else. README.md itself stays as it is.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ADDRESS = "COLONNADE_REPOSITORY"
# What stands in code is no link, whatever it looks like.
CODE = re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)$|(?P<ticks>`+).+?(?P=ticks)", re.M | re.S)
LINK = re.compile(r"(?P<picture>!?)\[(?P<words>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def portable(text: str, address: str, ref: str) -> str:
    """A page whose links and pictures work anywhere."""

    def moved(link: re.Match[str]) -> str:
        target = link["target"]
        if re.match(r"[a-z][a-z0-9+.-]*:|#", target):
            return link[0]
        if not address:
            return "" if link["picture"] else link["words"]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['words']}]({address}/{kind}/{ref}/{target})"

    kept: list[str] = []

    def keep(code: re.Match[str]) -> str:
        kept.append(code[0])
        return f"\0{len(kept) - 1}\0"

    bare = LINK.sub(moved, CODE.sub(keep, text))
    return re.sub("\0(\\d+)\0", lambda found: kept[int(found[1])], bare)


def urls(address: str, ref: str) -> dict[str, str]:
    """The addresses that an index shows beside the description."""
    if not address:
        return {}
    return {
        "Repository": address,
        "Documentation": f"{address}/blob/{ref}/docs/README.md",
        "Changelog": f"{address}/blob/{ref}/CHANGELOG.md",
        "Issues": f"{address}/issues",
        "Security": f"{address}/blob/{ref}/SECURITY.md",
    }


class CustomMetadataHook(MetadataHookInterface):
    """Fills in what pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the description and the addresses."""
        address = os.environ.get(ADDRESS, "").rstrip("/")
        version: str = metadata["version"]
        # A release has a tag; what is between two releases is on the newest commit.
        ref = f"v{version}" if re.fullmatch(r"[\d.]+", version) else "HEAD"
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": portable(text, address, ref),
        }
        metadata["urls"] = urls(address, ref)
