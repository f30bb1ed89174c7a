"""The command that lets a model use servers, as it is typed: `colonnade chat mcp.json`.

Rules: click parses and nothing else, as in `commands`.
"""

from functools import partial
from typing import Any, Final

import click

from colonnade.cli.commands_talking import Deed, Talking, reaching_any, terms_of


@click.command(
    cls=Talking,
    short_help="Talk to a model that may use the tools of servers.",
    epilog="""\b
Examples:
  colonnade chat mcp.json --model gpt-5-mini
  colonnade chat --model gpt-5-mini         all that is configured for this folder
  colonnade chat server.py --model qwen3 --url http://127.0.0.1:11434/v1
  colonnade chat --model gpt-5-mini -- uvx mcp-server-git
  colonnade chat mcp.json --model gpt-5-mini --yes < questions.txt
""",
)
@reaching_any
@click.option("--model", default="", metavar="NAME", help="Which model; else OPENAI_MODEL.")
@click.option(
    "--url",
    default="",
    metavar="URL",
    help="Who speaks Chat Completions; else OPENAI_BASE_URL, else OpenAI.",
)
@click.option(
    "--key-env",
    default="",
    metavar="VARIABLE",
    help="Where in the environment its key is; without --url OPENAI_API_KEY.",
)
@click.option("--yes", is_flag=True, help="Make every call that the model wants, unasked.")
def chat(model: str, url: str, key_env: str, yes: bool, **flags: Any) -> Deed:
    """Talk to a model that may use the tools of servers.

    TARGET is a configuration file with any number of servers, or one server: an address, a Python
    file (FILE[:NAME]), or what stands after -- as a command line. Without one it is what `colonnade
    config explain` finds for this folder. Every call that the model wants
    is shown, and made when you say so. /help shows what else can be typed.

    Without a terminal each line of standard input is said to the model, the answers are on
    standard output, nobody is asked anything, and calls are refused unless --yes is given.
    """
    from colonnade.cli.commands.chat import Wish, chat_target

    return partial(chat_target, terms_of(flags), Wish(model, url, key_env, yes))


CHAT: Final = (chat,)
