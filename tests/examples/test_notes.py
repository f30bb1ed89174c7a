"""The notes example: resources that are fixed, many, binary, files; followed and completed."""

import base64
import io
import json
import zipfile

import pytest

from colonnade.protocol.revision import ALL, Revision
from examples.example_client import ExampleClient, Rejected, run_example

# Below the folder, and yet not to be read: as it stands, encoded, absolute.
OUTSIDE = ("attachments://../notes.py", "attachments://%2e%2e/notes.py", "attachments:///etc/hosts")


def read(client: ExampleClient, uri: str) -> dict[str, str]:
    (contents,) = client.ask("resources/read", {"uri": uri})["contents"]
    assert contents["uri"] == uri
    return contents


def test_notes_an_archive_and_a_folder_are_read(revision: Revision) -> None:
    with run_example("notes.py", revision) as client:
        fixed = [one["uri"] for one in client.ask("resources/list")["resources"]]
        assert fixed == ["notes://", "backup://notes.zip", "attachments://"]
        templates = client.ask("resources/templates/list")["resourceTemplates"]
        assert [one["uriTemplate"] for one in templates] == [
            "notes://{name}",
            "attachments://{+path}",
        ]
        index = json.loads(read(client, "notes://")["text"])
        assert [one["name"] for one in index] == ["groceries", "garden", "guests"]
        garden = read(client, "notes://garden")
        assert (garden["mimeType"], garden["text"][:8]) == ("text/markdown", "# Garden")
        archive = base64.b64decode(read(client, "backup://notes.zip")["blob"])
        assert "garden.md" in zipfile.ZipFile(io.BytesIO(archive)).namelist()
        assert "trips" in read(client, "attachments://")["text"].split("\n")
        folder = read(client, "attachments://trips")
        assert (folder["mimeType"], folder["text"]) == ("inode/directory", "lisbon.md")
        assert "Tram 28" in read(client, "attachments://trips/lisbon.md")["text"]


@pytest.mark.parametrize("uri", ["notes://nowhere", *OUTSIDE])
@pytest.mark.parametrize("revision", [ALL[0], ALL[-1]], ids=lambda one: one.date)
def test_what_is_not_there_is_not_found_as_the_revision_says(revision: Revision, uri: str) -> None:
    with run_example("notes.py", revision) as client:
        with pytest.raises(Rejected) as caught:
            client.ask("resources/read", {"uri": uri})
        assert caught.value.code == (-32002 if revision.handshake else -32602)


def test_whoever_follows_a_note_or_all_of_them_hears_of_an_edit(revision: Revision) -> None:
    with run_example("notes.py", revision) as client:
        client.subscribe(resourceSubscriptions=["notes://garden"])
        client.text("write", name="guests", text="Nobody.")
        client.text("write", name="garden", text="# Garden\n\nThe beans are eaten.\n")
        told = client.wait_for_notification("notifications/resources/updated")
        assert told["uri"] == "notes://garden"
        assert "eaten" in read(client, "notes://garden")["text"]
    with run_example("notes.py", revision) as client:
        client.subscribe(resourceSubscriptions=["notes://"])
        client.text("write", name="guests", text="Nobody.")
        assert (
            client.wait_for_notification("notifications/resources/updated")["uri"]
            == "notes://guests"
        )


def test_a_name_is_completed(revision: Revision) -> None:
    with run_example("notes.py", revision) as client:
        params = {
            "ref": {"type": "ref/resource", "uri": "notes://{name}"},
            "argument": {"name": "name", "value": "g"},
        }
        completion = client.ask("completion/complete", params)["completion"]
        assert completion["values"] == ["groceries", "garden", "guests"]
        params["argument"]["value"] = "gu"
        assert client.ask("completion/complete", params)["completion"]["values"] == ["guests"]
