"""What a person puts into a conversation: prompts as commands, resources that they picked."""

import base64

import pytest

from colonnade import Image, LocalProtocolError, Message, Server
from colonnade.host.agent.prompts import (
    included_resources,
    introduction,
    prompt_messages,
    read_command,
    with_resources,
)
from host.scripted_model import hosted
from live import live

DOT = base64.b64decode("iVBORw0KGgo=")


@live
async def test_a_prompt_is_a_command_with_its_arguments() -> None:
    async with hosted() as host:
        found = await prompt_messages(host, "/shop__haggle fruit=plum tone='very polite'")
        bare = await prompt_messages(host, "/shop__haggle fruit=plum")
    words = "Write a very polite line that asks for cheaper plums."
    assert found == [{"role": "user", "content": words}]
    assert "friendly" in bare[0]["content"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/shop__hagle fruit=plum", "no prompt 'shop__hagle'; did you mean shop__haggle"),
        ("/shop__haggle", "shop__haggle needs fruit: /shop__haggle fruit=…"),
        ("/shop__haggle fruit=plum size=3", "no argument 'size'; its arguments: fruit, tone"),
        ("/shop__haggle fruit", "'fruit' is not an argument; write key=value"),
        ("/shop__haggle fruit=a fruit=b", "fruit is given twice"),
        ("/shop__haggle fruit='a", "a quotation mark is missing"),
    ],
)
@live
async def test_a_command_that_was_mistyped_is_explained(line: str, words: str) -> None:
    async with hosted() as host:
        with pytest.raises(LocalProtocolError, match=words):
            await prompt_messages(host, line)


@live
async def test_a_prompt_may_have_turns_and_pictures() -> None:
    server = Server("art")

    @server.prompt
    def look() -> list[Message]:
        return [
            Message(role="user", content="What is this?"),
            Message(role="user", content=Image(DOT)),
            Message(role="assistant", content="A dot."),
        ]

    async with hosted({"art": server}) as host:
        found = await prompt_messages(host, "/art__look")
    url = f"data:image/png;base64,{base64.b64encode(DOT).decode()}"
    assert found == [
        {"role": "user", "content": "What is this?"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]},
        {"role": "assistant", "content": "A dot."},
    ]


@live
async def test_a_resource_that_was_picked_stands_before_what_was_said() -> None:
    async with hosted() as host:
        found = await with_resources(host, "Is that all of @shop://list? Mail a@b.c, or @nobody.")
    held = "I included the resource shop://list. Its contents:\nshop://list:\npear 40\nplum 25\n"
    assert found == [
        {"role": "user", "content": held},
        {"role": "user", "content": "Is that all of @shop://list? Mail a@b.c, or @nobody."},
    ]


def test_resources_are_picked_by_their_address_and_their_server_if_need_be() -> None:
    assert included_resources("see @notes://garden and @notes://garden") == [
        (None, "notes://garden")
    ]
    assert included_resources("@files/file:///etc/motd") == [("files", "file:///etc/motd")]
    assert included_resources("@urn:isbn:123 x@y://z @ @plain @/etc") == [(None, "urn:isbn:123")]
    assert included_resources("nothing") == []


@live
async def test_too_many_resources_at_once_are_refused() -> None:
    async with hosted() as host:
        with pytest.raises(LocalProtocolError, match="20 resources at most"):
            await with_resources(host, " ".join(f"@shop://{n}" for n in range(21)))


def test_what_servers_say_of_themselves_is_told_as_theirs_and_cut() -> None:
    told = introduction({"shop": "Prices are in cents.\n", "mute": " ", "long": "a" * 5000})
    assert (
        "Instructions of the server 'shop' for its tools (shop__…):\nPrices are in cents." in told
    )
    assert "mute" not in told
    assert "a" * 2001 not in told
    assert "3000 more characters" in told


def test_a_command_is_split_as_a_shell_would() -> None:
    assert read_command("/a b='c d' e=") == ("a", {"b": "c d", "e": ""})
