"""What docstrings of the three styles say about parameters."""

import pytest

from colonnade.signatures.docstrings import ParsedDocstring, parse_docstring

GOOGLE = """Forecast for a city.

    It may rain.

    Args:
        city: Name of the city.
        days (int, optional): How many days,
            from today: tomorrow counts.
        *more: Further cities.
        units:
            Of temperature.
        silent:

    Returns:
        A forecast.
    """

NUMPY = """Forecast for a city.

    It may rain.

    Parameters
    ----------
    city : str
        Name of the city.
    days, nights : int, optional
        How many days,

        from today.
    **more
        Further cities.
    silent : int

    Returns
    -------
    Forecast
        The weather.
    """

SPHINX = """Forecast for a city.

    It may rain.

    :param city: Name of the city.
    :type city: str
    :param int days: How many days,
        from today.
    :keyword units: Of temperature.
    :returns: A forecast.
    :rtype: Forecast
    """


def test_google_parameters_with_types_stars_and_several_lines() -> None:
    assert parse_docstring(GOOGLE) == ParsedDocstring(
        "Forecast for a city.\n\nIt may rain.\n\nReturns:\n    A forecast.",
        "Forecast for a city.",
        {
            "city": "Name of the city.",
            "days": "How many days, from today: tomorrow counts.",
            "more": "Further cities.",
            "units": "Of temperature.",
        },
    )


@pytest.mark.parametrize(
    "head", ["Args", "Arguments", "Parameters", "Params", "Keyword Args", "Keyword Arguments"]
)
def test_google_sections_under_each_of_their_names(head: str) -> None:
    assert parse_docstring(f"Do.\n\n{head}:\n    x: The x.\n").parameters == {"x": "The x."}


def test_a_google_section_at_the_start_and_at_the_end() -> None:
    assert parse_docstring("Args:\n    x: The x.\n    y: The y.").parameters == {
        "x": "The x.",
        "y": "The y.",
    }
    assert parse_docstring("Do.\n\nArgs:") == ParsedDocstring("Do.", "Do.", {})


def test_numpy_parameters_several_on_a_line_and_with_gaps() -> None:
    docs = parse_docstring(NUMPY)
    assert docs.parameters == {
        "city": "Name of the city.",
        "days": "How many days, from today.",
        "nights": "How many days, from today.",
        "more": "Further cities.",
    }
    assert docs.text.startswith(
        "Forecast for a city.\n\nIt may rain.\n\nReturns\n-------\nForecast"
    )


def test_a_numpy_section_ends_where_prose_begins() -> None:
    docs = parse_docstring(
        "Do.\n\nParameters\n----------\nx : int\n    The x.\n\nThat is all, folks."
    )
    assert docs == ParsedDocstring("Do.\n\nThat is all, folks.", "Do.", {"x": "The x."})
    assert (
        parse_docstring("Do.\n\nParameters\n----------\nx : int\n    The x.\n\nDone").text
        == "Do.\n\nDone"
    )
    assert parse_docstring("Do.\n\nParameters\n----------\nx : int\n    The x.").parameters == {
        "x": "The x."
    }


def test_sphinx_fields_with_and_without_types() -> None:
    assert parse_docstring(SPHINX) == ParsedDocstring(
        "Forecast for a city.\n\nIt may rain.\n\n:returns: A forecast.",
        "Forecast for a city.",
        {
            "city": "Name of the city.",
            "days": "How many days, from today.",
            "units": "Of temperature.",
        },
    )


def test_the_first_description_of_a_parameter_counts() -> None:
    text = "Do.\n\nArgs:\n    x: First.\n\n:param x: Second."
    assert parse_docstring(text).parameters == {"x": "First."}


def test_no_docstring_is_an_empty_one() -> None:
    assert parse_docstring(None) == parse_docstring("") == ParsedDocstring("", "", {})


def test_a_summary_of_two_lines_is_one_line() -> None:
    assert (
        parse_docstring("Forecast for\n    a city.\n\n    More.").summary == "Forecast for a city."
    )


def test_prose_that_looks_almost_like_a_section_stays_prose() -> None:
    text = "Do.\n\nArgs: none.\n\nparameters\nof mine"
    assert parse_docstring(text).text == text
