"""Results and items of lists as no encoder of ours would write them: vendor members at every level,
unknown content blocks, huge integers, numbers in odd spellings, odd but valid strings, deep values.

Rules: all of it is valid in its revision, without duplicate members, and below the limit of depth.
"""

import random

NEW = "2026-07-28"
TEXT = '{"type":"text","text":"one"}'
NUMBERS = (
    *("0", "-0", "-0.0", "1.0", "1e2", "1E+2", "10e-1", "-2.50", "0.1e1", "true"),
    *("9007199254740993", "-9223372036854775809", "340282366920938463463374607431768211456"),
)
STRINGS = (
    *('"a"', '"\\u0061"', '"\\/"', '"é😀"', '""', '"\\u2028"', '"\\ud83d\\ude00"', '"\\u0000"'),
    *('"e\\u0301"', '"\u200d"', '"\\u202e"', '"\ufeff"', '"\\"\\\\"', '"ß ẞ ﬁ"', '"\\uFFFF"'),
)
NAMES = ("x", "com.example/x", "", "ü", "\\u0061b", " ", "name ", "type_", "$ref")
# Levels of an odd value that is deep: the limit is 64, and a frame adds up to ten.
DEEP = 50


def odd_value(chance: random.Random, depth: int = 0) -> str:
    """A JSON value as no Python encoder would write it."""
    kinds = ["number", "huge", "string", "null", "array", "object", "deep"]
    match chance.choice(kinds[:6] if 0 < depth < 3 else kinds[:4] if depth else kinds):
        case "number":
            return chance.choice(NUMBERS)
        case "huge":
            return str(chance.randrange(1, 10**30)) + chance.choice(["", ".5", "e5"])
        case "string":
            return chance.choice(STRINGS)
        case "null":
            return "null"
        case "array":
            items = [odd_value(chance, depth + 1) for _ in range(chance.randrange(3))]
            return "[" + chance.choice([",", " , "]).join(items) + "]"
        case "deep":
            levels = chance.randrange(2, DEEP // 2)
            return '[{"d":' * levels + chance.choice(NUMBERS) + "}]" * levels
        case _:
            names = chance.sample(NAMES, chance.randrange(4))
            members = [f'"{name}": {odd_value(chance, depth + 1)}' for name in names]
            return "{" + ",".join(members) + "}"


def vendor(chance: random.Random, likely: float = 0.6) -> list[str]:
    """A member that no revision has, most of the time."""
    if chance.random() > likely:
        return []
    name = chance.choice(["vendor", "com.example/vendor", "x-vendor", "\\u0076endor2"])
    return [f'"{name}":{odd_value(chance)}']


def odd_object(chance: random.Random, members: list[str], likely: float = 0.6) -> str:
    """An object with these members and perhaps one of a vendor, in any order."""
    members = [*members, *vendor(chance, likely)]
    chance.shuffle(members)
    return "{" + chance.choice([",", " ,\t"]).join(members) + "}"


def odd_blocks(chance: random.Random) -> list[str]:
    """Blocks of content that every revision has, or that none has."""
    annotations = odd_object(chance, ['"priority":1.0', '"audience":["user"]'])
    resource = odd_object(chance, ['"uri":"a:b"', '"text":""'])
    return [
        TEXT,
        odd_object(chance, ['"type":"text"', '"text":"two"']),
        odd_object(chance, ['"type":"text"', '"text":"three"', f'"annotations":{annotations}']),
        odd_object(chance, ['"type":"hologram"', f'"data":{odd_value(chance)}']),
        odd_object(chance, ['"type":"resource"', f'"resource":{resource}']),
        odd_object(chance, ['"type":"image"', '"data":"AAAA"', '"mimeType":"image/png"']),
    ]


def _result(chance: random.Random, revision: str, members: list[str], hints: bool) -> bytes:
    if chance.random() < 0.5:
        members.append('"_meta":{"com.example/trace": ' + odd_value(chance) + "}")
    if revision == NEW:
        members.append('"resultType":"complete"')
        if hints:
            members += ['"ttlMs":0', '"cacheScope":"private"']
    return odd_object(chance, members).encode()


def odd_tool_result(chance: random.Random, revision: str) -> bytes:
    """A result of a tool."""
    blocks = odd_blocks(chance)
    chosen = chance.sample(blocks, chance.randrange(1, len(blocks)))
    members = ['"content":[' + ",".join(chosen) + "]"]
    if chance.random() < 0.7:
        structured = odd_value(chance) if revision == NEW else odd_object(chance, [], 0.9)
        members.append('"structuredContent": ' + structured)
    if chance.random() < 0.5:
        members.append('"isError":' + chance.choice(["true", "false"]))
    return _result(chance, revision, members, hints=False)


def odd_prompt_result(chance: random.Random, revision: str) -> bytes:
    """A result of a prompt."""
    messages = [
        odd_object(chance, [f'"role":"{chance.choice(["user", "assistant"])}"', f'"content":{one}'])
        for one in chance.sample(odd_blocks(chance), 3)
    ]
    members = ['"messages":[' + ",".join(messages) + "]", '"description":"odd"']
    return _result(chance, revision, members, hints=False)


def odd_read_result(chance: random.Random, revision: str) -> bytes:
    """A result of a resource."""
    text = odd_object(chance, ['"uri":"odd://one"', '"text":"t"', '"mimeType":"text/x-odd"'])
    blob = odd_object(chance, ['"uri":"odd://one"', '"blob":"AAAA"'])
    members = ['"contents":[' + ",".join(chance.sample([text, blob], 2)) + "]"]
    return _result(chance, revision, members, hints=True)


# ---------------------------------------------------------------- items of lists


def odd_item(chance: random.Random, method: str, number: int) -> str:
    """An item of a list; its name or URI has the number."""
    match method:
        case "tools/list":
            schema = odd_object(chance, ['"type":"object"', '"properties":{}'])
            members = [f'"name":"odd{number}"', '"description":"odd"', f'"inputSchema":{schema}']
        case "prompts/list":
            argument = odd_object(chance, ['"name":"a"', '"required":true'])
            members = [f'"name":"odd{number}"', f'"arguments":[{argument}]']
        case "resources/list":
            annotations = odd_object(chance, ['"priority":1.0'])
            members = ['"name":"odd"', f'"uri":"odd://{number}"', f'"annotations":{annotations}']
        case _:
            members = ['"name":"odd"', f'"uriTemplate":"odd://{number}/{{key}}"']
    return odd_object(chance, members, 0.8)


def odd_list(chance: random.Random, method: str, member: str, revision: str, count: int) -> bytes:
    """A list with this many items."""
    items = [odd_item(chance, method, number) for number in range(count)]
    return _result(chance, revision, [f'"{member}":[' + ",".join(items) + "]"], hints=True)
