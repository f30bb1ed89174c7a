"""Everything else that a stranger writes: nouns, answers, templates, schemas and their values.

Rules: as in the other targets; what is accepted must mean the same when it is written again.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from colonnade.errors import ColonnadeError, Fault, LocalProtocolError, ProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as, encode_any, to_builtins
from colonnade.protocol.codec.downgrade import WRAPPED, without_boolean_schemas, wrapped_schema
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.http.param_headers import param_headers
from colonnade.protocol.input_requests import InputRequest, check_received, check_response
from colonnade.protocol.jsonrpc import MAX_DEPTH
from colonnade.protocol.revision import ALL, Revision
from colonnade.protocol.schema.validate import Validator
from colonnade.protocol.uritemplate import MAX_TEMPLATE_CHARS, UriTemplate
from fuzz.corpus import (
    ANSWERS,
    CLIENT_CAN,
    EVERY_MESSAGE,
    FORM,
    JSON,
    SAMPLE,
    SAMPLE_TOOLS,
    VISIT,
    Seed,
    params_of,
    results_of,
    rows,
    seed,
)
from fuzz.corpus_wire import SCHEMAS, TEMPLATE_TOKENS, TEMPLATES, URIS, VALUES
from fuzz.mutate import MAX_CHANGES, MAX_INPUT_BYTES, mutate
from fuzz.target import MAX_WORDS, Case, Finding, check_fault, held, ours

# ---------------------------------------------------------------- nouns


def _nouns() -> dict[str, tuple[type[t.ProtocolType], list[Seed]]]:
    found: dict[str, tuple[type[t.ProtocolType], list[Seed]]] = {}

    def add(kind: type[t.ProtocolType], tree: JSON) -> None:
        found.setdefault(kind.__name__, (kind, []))[1].append(seed(tree or {}))

    for revision in ALL:
        for row in rows(revision):
            for params in params_of(row, revision):
                add(row.params, params)
            for result in results_of(row, revision) if row.result else ():
                asks = result.get("resultType") == "input_required"
                add(t.InputRequiredResult if asks else row.result or t.EmptyResult, result)
    return found


NOUNS = _nouns()
SHAPERS = [Encoder(revision) for revision in ALL]


class Nouns:
    """`reading.read`, and what `write`, `plain` and `Encoder` make of what was read."""

    name = "nouns"

    def __init__(
        self, read: Callable[[type[t.ProtocolType], bytes], t.ProtocolType] = decode_as
    ) -> None:
        self._read = read

    def draw(self, rng: Random, most: int) -> Case:
        name = rng.choice(list(NOUNS))
        body = mutate(rng, rng.choice(NOUNS[name][1]), EVERY_MESSAGE, gently=True)
        return Case(name, (body,))

    def check(self, case: Case) -> list[str]:
        kind, _ = NOUNS[case.where]
        (body,) = case.parts
        try:
            noun = self._read(kind, body)
        except Fault as fault:
            check_fault(fault)
            return [f"fault: {fault.kind.name}"]
        again = decode_as(kind, encode_any(noun))
        held(again == noun, f"a noun says something else when written: {noun} and {again}")
        to_builtins(noun)
        is_params = isinstance(noun, t.RequestParams | t.NotificationParams)
        for shaper in SHAPERS:
            write_ = shaper.params if is_params else shaper.result
            shaped = ours(lambda write_=write_: write_(noun))
            if isinstance(shaped, bytes):
                msgspec.json.decode(shaped or b"{}")
            elif not isinstance(shaped, LocalProtocolError):
                raise Finding(f"a noun of a peer could not be shaped: {shaped!r}")
        return ["read"]


# ---------------------------------------------------------------- answers

CLIENT = decode_as(t.ClientCapabilities, seed(CLIENT_CAN).body)
QUESTIONS = {
    "seat": InputRequest(decode_as(t.ElicitRequestParams, seed(FORM).body)),
    "words": InputRequest(decode_as(t.CreateMessageRequestParams, seed(SAMPLE).body)),
    "roots": InputRequest(t.ListRootsRequestParams()),
}


class Answers:
    """`Question`: what was asked, by a mutated question; and what was answered, mutated too."""

    name = "answers"

    def draw(self, rng: Random, most: int) -> Case:
        key, revision = rng.choice(list(QUESTIONS)), rng.choice(ALL)
        if rng.randrange(3):
            body = mutate(rng, seed(ANSWERS[key]), EVERY_MESSAGE, gently=True)
        else:
            key, asked = "?", rng.choice((FORM, VISIT, SAMPLE, SAMPLE_TOOLS))
            body = mutate(rng, seed(asked), EVERY_MESSAGE, gently=True)
        return Case(f"{key} {revision.date}", (body,))

    def check(self, case: Case) -> list[str]:
        key, _, date = case.where.partition(" ")
        revision = next(each for each in ALL if each.date == date)
        (body,) = case.parts
        if key == "?":
            asked = ours(lambda: self._asked(body, revision))
            return ["question refused" if isinstance(asked, ColonnadeError) else "question"]
        question = QUESTIONS[key]
        answer = ours(lambda: question.decode_response(body, revision))
        if isinstance(answer, ColonnadeError):
            held(isinstance(answer, Fault), "a peer's answer was refused as ours")
            return ["answer refused"]
        check_response(question, answer)
        again = question.decode_response(encode_any(answer), revision)
        held(again == answer, f"an answer says something else when sent on: {answer}")
        return ["answer"]

    def _asked(self, body: bytes, revision: Revision) -> InputRequest:
        kind = t.CreateMessageRequestParams if b"messages" in body else t.ElicitRequestParams
        question = InputRequest(decode_as(kind, body))
        check_received(question, CLIENT, revision)
        held(question.digest() == question.digest(), "two digests of one question")
        return question


# ---------------------------------------------------------------- templates


class Templates:
    """`uritemplate`: made or refused, and matching is the inverse of expanding."""

    name = "templates"

    def draw(self, rng: Random, most: int) -> Case:
        template, uri = rng.choice(TEMPLATES), _changed(rng, rng.choice(URIS))
        if rng.randrange(3):
            uri = _filled(rng, template)  # with mutated values, most of which match
        if not rng.randrange(3):
            template = _changed(rng, template)
        parts = template, uri
        return Case("", tuple(part.encode("utf-8", "surrogatepass") for part in parts))

    def check(self, case: Case) -> list[str]:
        text, uri = (part.decode("utf-8", "surrogatepass") for part in case.parts)
        # It is shown whole, so that its author finds the place; some characters take ten to show.
        template = ours(lambda: UriTemplate(text), 20 * MAX_TEMPLATE_CHARS)
        if isinstance(template, ColonnadeError):
            held(isinstance(template, LocalProtocolError), "a template was refused as a peer's")
            return ["refused"]
        matched = template.match(uri)
        if matched is None:
            return ["no match"]
        if "%" in "".join(map(str, matched.values())):
            return ["match, with a percent sign"]  # `{+x}` and `{#x}` pass `%41` on as it is
        expanded = template.expand(matched)
        held(template.match(expanded) == matched, f"{expanded!r} does not match again: {matched}")
        return ["match"]


def _changed(rng: Random, text: str) -> str:
    for _ in range(rng.randint(1, MAX_CHANGES)):
        at, span = rng.randrange(len(text) + 1), rng.randrange(4)
        token = rng.choice(TEMPLATE_TOKENS) if rng.randrange(3) else ""
        text = text[:at] + token + text[at + span :]
    return text


def _filled(rng: Random, template: str) -> str:
    made = UriTemplate(template, expand_only=True)
    values: dict[str, str | list[str]] = {}
    for name in made.variables:
        value = _changed(rng, rng.choice(("", "abc", "ä/ö", "1-2")))
        values[name] = [value, name] if rng.randrange(4) == 0 else value
    try:
        return made.expand(values)
    except LocalProtocolError:  # half a surrogate pair, or a list where a string must be
        return _changed(rng, rng.choice(URIS))


# ---------------------------------------------------------------- schemas


class Schemas:
    """`schema.Validator` and `param_headers`: any schema, any value, a bounded answer."""

    name = "schemas"

    def draw(self, rng: Random, most: int) -> Case:
        schema = mutate(rng, rng.choice(SCHEMAS), SCHEMAS, gently=True)
        value = rng.choice(VALUES)
        written = mutate(rng, value, VALUES, gently=True) if rng.randrange(2) else value.body
        return Case("", (schema, written[: MAX_INPUT_BYTES - len(schema)]))

    def check(self, case: Case) -> list[str]:
        try:
            schema, value = (msgspec.json.decode(part) for part in case.parts)
        except (ValueError, RecursionError):
            return ["no JSON"]
        headers = ours(lambda: param_headers(schema))
        held(isinstance(headers, tuple | ProtocolError), "headers of another kind")
        validator = ours(lambda: _compiled(schema))
        if isinstance(validator, Fault):
            check_fault(validator)
            return ["refused"]
        if isinstance(validator, Exception):
            raise Finding(f"a peer's schema was refused as ours: {validator!r}")
        problems = validator.check(value)
        held(sum(len(str(problem)) for problem in problems) <= 20 * MAX_WORDS, "too many words")
        # What takes the name of a dialect for its own is not found by it.
        if isinstance(schema, dict) and "json-schema.org" not in str(schema.get("$id")):
            fits = not problems
            check_layout(without_boolean_schemas(schema), value, fits)
            if case.parts[1].count(b"[") + case.parts[1].count(b"{") < MAX_DEPTH:
                check_layout(wrapped_schema(schema), {WRAPPED: value}, fits)
        return ["does not fit" if problems else "fits"]


def check_layout(schema: Any, value: Any, fits: bool) -> None:
    """A schema that was laid out for an older peer still means the same."""
    laid_out = ours(lambda: _compiled(schema))
    if isinstance(laid_out, ColonnadeError):
        raise Finding(f"laid out, a good schema is none: {laid_out}: {schema}")
    held((not laid_out.check(value)) is fits, f"laid out, a schema means something else: {schema}")


def _compiled(schema: Any) -> Validator:
    validator = Validator(schema)
    validator.compile()
    return validator
