"""Everything that JSON and JSON-RPC can be sent wrong, one by one, at a live server over HTTP.

Each gets the answer that is right for it, and the next request is served: on the same connection
where it stays open, and on a new one.
"""

import asyncio

import pytest

from hostile.items import (
    BATCHING,
    ERAS,
    JSON_ITEMS,
    LARGE,
    METHOD,
    MODERN,
    PARAMS,
    REQUEST,
    RPC_ITEMS,
    SESSION,
    Era,
    Item,
    Want,
)
from hostile.sender import call, hostile_sender, name_header
from live import live

each_era = pytest.mark.parametrize("era", ERAS, ids=lambda era: era.date)


@each_era
@pytest.mark.parametrize("item", JSON_ITEMS, ids=str)
@live
async def test_bad_json_is_answered_and_the_next_request_is_served(item: Item, era: Era) -> None:
    async with hostile_sender(era) as attack:
        await attack.throw(item.body(era), item.want(era))


@each_era
@pytest.mark.parametrize("item", LARGE, ids=str)
@live
async def test_large_json_is_answered_and_the_next_request_is_served(item: Item, era: Era) -> None:
    async with hostile_sender(era) as attack:
        await attack.throw(item.body(era), item.want(era))


@each_era
@pytest.mark.parametrize("item", RPC_ITEMS, ids=str)
@live
async def test_bad_messages_are_answered_and_the_next_request_is_served(
    item: Item, era: Era
) -> None:
    async with hostile_sender(era) as attack:
        await attack.throw(item.body(era), item.want(era))


# ---------------------------------------------------------------- several at once


@live
async def test_an_id_in_use_is_refused_and_the_first_call_is_untouched() -> None:
    async with hostile_sender(SESSION) as attack:
        first = asyncio.create_task(attack.post(call(SESSION, "wait")))
        # Asked until the first is running: before that, the id is free.
        while (again := (await attack.post(SESSION.frame()))[1]).status == 200:
            pass
        attack.check(again, Want(400, REQUEST))
        number = call(SESSION, "release").replace(b'"id":1', b'"id":2')
        assert (await attack.post(number))[1].text == "released"
        assert (await first)[1].text == "waited"
        await attack.throw(SESSION.frame(), Want(200, None, "1"))  # and now it is free again


@live
async def test_one_and_text_one_are_two_ids() -> None:
    async with hostile_sender(SESSION) as attack:
        first = asyncio.create_task(attack.post(call(SESSION, "wait")))
        text = call(SESSION, "release").replace(b'"id":1', b'"id":"1"')
        released = (await attack.post(text))[1]
        assert (released.json["id"], released.text) == ("1", "released")
        assert (await first)[1].json["id"] == 1


@live
async def test_callers_without_a_session_share_no_ids() -> None:
    async with hostile_sender(MODERN) as attack:
        calls = [attack.post(MODERN.frame(b"%d" % n)) for n in range(20)]
        answers = [response for _, response in await asyncio.gather(*calls)]
        assert [answer.text for answer in answers] == [str(n) for n in range(20)]


@each_era
@live
async def test_a_progress_token_in_use_harms_nobody(era: Era) -> None:
    async with hostile_sender(era) as attack:
        frame = call(era, "report").replace(b'"_meta":{', b'"_meta":{"progressToken":"p",')
        frame = frame.replace(b",}", b"}")
        for id in (1, 2):
            wire = await attack.caller.wire()
            body = frame.replace(b'"id":1', b'"id":%d' % id)
            _, stream = await attack.post(body, wire, mcp_name=name_header(era, "report"))
            assert stream.body.count(b"notifications/progress") == 1
            assert b"reported" in stream.body
        await attack.is_served()


@each_era
@live
async def test_an_initialize_cannot_be_cancelled_and_a_call_cannot_cancel_itself(era: Era) -> None:
    async with hostile_sender(era) as attack:
        gone = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}'
        assert (await attack.post(gone))[1].status == 202
        own = gone.replace(b'"method"', b'"id":0,"method"')  # by its id it is a request
        answer = (await attack.post(own))[1]
        assert answer.json["error"]["code"] == (PARAMS if era.modern else METHOD)
        await attack.is_served()


@live
async def test_a_batch_with_one_bad_element_is_answered_for_the_others() -> None:
    async with hostile_sender(BATCHING) as attack:
        good, other = BATCHING.frame(), BATCHING.frame().replace(b'"id":1', b'"id":2')
        bad = b'{"jsonrpc":"2.0","id":3,"method":5}'
        _, response = await attack.post(b"[%b,%b,7,%b]" % (good, bad, other))
        assert response.status == 200
        answers = response.json
        assert sorted(one["id"] for one in answers if "result" in one) == [1, 2]
        assert [one["error"]["code"] for one in answers if "error" in one] == [REQUEST] * 2
        for body in (b"[[%b]]" % good, b"[%b]" % b",".join([good] * 101), b"[]"):
            _, response = await attack.post(body)
            assert response.status == 400, body[:100]
        await attack.is_served()


@each_era
@live
async def test_arguments_of_the_wrong_type_are_told_so(era: Era) -> None:
    async with hostile_sender(era) as attack:
        name = name_header(era, "count")
        for value, text in ((b"1.0", "1"), (b'"7"', "7"), (b"1e2", "100")):
            body = call(era, "count").replace(b"{}", b'{"n":%b}' % value, 1)
            _, response = await attack.post(body, mcp_name=name)
            assert response.text == text
        for value in (b"1.5", b"true", b"null", b"[]", b'"x"', b"1e400", b"9" * 5000):
            body = call(era, "count").replace(b"{}", b'{"n":%b}' % value, 1)
            _, response = await attack.post(body, mcp_name=name)
            if "error" in response.json:
                assert response.code == PARAMS
            else:
                assert response.json["result"]["isError"]
        await attack.is_served()
