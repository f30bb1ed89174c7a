"""Which model to ask, by what a server would like.

    def on_sample(asked):
        model = choose_model(asked.model_preferences, {"claude-sonnet-4": Model(speed=0.6, …)})

Rules: what a server would like is advice: only models that the program has are ever chosen.
"""

from collections.abc import Iterable, Mapping
from typing import cast

from msgspec import Struct

from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t


class Model(Struct, frozen=True, kw_only=True):
    """What a model is good at, each from 0 to 1; `cheapness` is the opposite of cost."""

    cheapness: float = 0.5
    speed: float = 0.5
    intelligence: float = 0.5


def choose_model(
    preferences: t.ModelPreferences | None, models: Mapping[str, Model] | Iterable[str]
) -> str:
    """The name of the model that fits best; the first of those that fit equally well.

    The first hint that is part of the name of a model decides (R0181, R0184); priorities choose
    among those that it names, or among all where none is (R0185).
    """
    known: dict[str, Model]
    if isinstance(models, Mapping):
        known = dict(cast("Mapping[str, Model]", models))
    else:
        known = {name: Model() for name in models}
    if not known:
        raise LocalProtocolError("there is no model to choose from")
    if preferences is None:
        return next(iter(known))
    for hint in preferences.hints or ():
        wanted = (hint.name or "").lower()
        named = {name: model for name, model in known.items() if wanted in name.lower()}
        if wanted and named:
            known = named
            break
    return max(known, key=lambda name: _fit(preferences, known[name]))


def _fit(wanted: t.ModelPreferences, model: Model) -> float:
    return (
        (wanted.cost_priority or 0.0) * model.cheapness
        + (wanted.speed_priority or 0.0) * model.speed
        + (wanted.intelligence_priority or 0.0) * model.intelligence
    )
