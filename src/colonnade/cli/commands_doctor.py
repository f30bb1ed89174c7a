"""The command that says what is wrong with a server, as it is typed: `doctor`.

Rules: click parses and nothing else, as in `commands`.
"""

from functools import partial
from typing import Any, Final

import click

from colonnade.cli.commands_talking import Deed, Talking, reaching_any, terms_of


@click.command(
    cls=Talking,
    short_help="Say what is wrong with a server, and how to mend it.",
    epilog="""\b
Examples:
  colonnade doctor server.py
  colonnade doctor https://example.com/mcp
  colonnade doctor mcp.json --json
  colonnade doctor                          all that is configured for this folder
  colonnade doctor -- uvx mcp-server-git
""",
)
@reaching_any
def doctor(**flags: Any) -> Deed:
    """Check all that can be wrong with a server, one after the other, and say how to mend it.

    TARGET is an address, a Python file (FILE[:NAME]), a configuration (then all its servers), or
    what stands after -- as a command line. Without one it is what `colonnade config explain` finds
    for this folder. Nothing of the server is called. The exit code is 0
    where all is well, else that of the first failure.
    """
    from colonnade.cli.doctor.report import doctor_target

    return partial(doctor_target, terms_of(flags))


DOCTOR: Final = (doctor,)
