"""Every check of a sandbox is needed: with any one of them taken out, a test fails."""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_fits, check_missed
from transport.bubblewrap import need_bubblewrap

BOX, SETTINGS = "transport/process/test_sandbox.py", "host/config/test_sandbox_settings.py"
COMMANDS, LISTS = "cli/commands/test_gateway_commands.py", "gateway/test_lists.py"
HEADERS = "protocol/http/test_param_headers.py"
SANDBOX, POSIX = "transport/process/sandbox.py", "transport/process/posix.py"
CLOSED = "closed_by_the_strict"

CUTS: dict[str, Cut] = {
    "network": Cut(
        SANDBOX, '*([] if network else ["--unshare-net"]),', "", BOX, CLOSED
    ),
    "processes of others": Cut(
        SANDBOX, '"--unshare-pid", "--unshare-ipc"', '"--unshare-ipc"', BOX, CLOSED
    ),
    "shared memory": Cut(
        SANDBOX, '"--unshare-pid", "--unshare-ipc"', '"--unshare-pid"', BOX, CLOSED
    ),
    "further namespaces": Cut(
        SANDBOX, '*("--disable-userns", "--cap-drop", "ALL"),', "", BOX, CLOSED
    ),
    "end of a namespace": Cut(SANDBOX, '"--die-with-parent",', "", BOX, "not_stay_behind"),
    "working folder to read only": Cut(
        SANDBOX,
        "mounts.add(self._check(self._folder))",
        "mounts.add(self._check(self._folder), write=True)",
        BOX,
        CLOSED,
    ),
    "granted folder to read only": Cut(
        SANDBOX,
        "mounts.add(self._check(self._absolute(path)))",
        "mounts.add(self._check(self._absolute(path)), write=True)",
        BOX,
        "what_is_granted",
    ),
    "home folder as working folder": Cut(
        SANDBOX,
        "        if _is_in(home, path) or _is_in(os.path.realpath(home), path):\n            return True\n",
        "",
        BOX,
        "in_the_home_folder",
    ),
    "folders of the system": Cut(
        SANDBOX,
        "        if path in TOO_MUCH or any(_is_in(path, one) for one in NEVER_BELOW):\n            return True\n",
        "",
        BOX,
        "too_much",
    ),
    "link of the server": Cut(
        SANDBOX, "if self._is_its_own_link(path):", "if False:", BOX, "link_in_a_writable"
    ),
    "link to the program": Cut(
        SANDBOX,
        "if self._is_writable(path) and os.path.dirname(found) not in self._real_writes:",
        "if False:",
        BOX,
        "link_to_a_program",
    ),
    "prefix in the home folder": Cut(
        SANDBOX, "if is_prefix and not is_local and", "if is_prefix and", BOX, "program_in_the_home"
    ),
    "hooks of git": Cut(
        SANDBOX,
        'self._entries.setdefault(path, ("--ro-bind", path, path))',
        "pass",
        BOX,
        "workspace_is_written",
    ),
    "rename of the folder of git": Cut(
        SANDBOX,
        'self._entries.setdefault(above, ("--bind", above, above))',
        "pass",
        BOX,
        "workspace_is_written",
    ),
    "limit of memory": Cut(SANDBOX, '&& ulimit -d "$2" ', "", BOX, "memory_and_open"),
    "limit of open files": Cut(SANDBOX, '&& ulimit -n "$1" ', "", BOX, "memory_and_open"),
    "limit of processes": Cut(
        SANDBOX, '&& { ulimit -u "$3" 2> /dev/null || ulimit -p "$3"; } ', "", BOX, "processes_have"
    ),
    "home folder of each command": Cut(
        SANDBOX, '"\\0".join((name, folder, *argv))', '"a"', BOX, "home_folder_is_empty"
    ),
    "no bubblewrap": Cut(
        SANDBOX,
        'raise _unavailable(server, "bubblewrap (bwrap) is not installed", hint)',
        'return ""',
        BOX,
        "where_there_is_no_bubblewrap",
    ),
    "bubblewrap that makes no sandbox": Cut(
        SANDBOX,
        "            raise _unavailable(server, *problem)\n",
        "            pass\n",
        BOX,
        "makes_no_sandbox",
    ),
    "system without sandboxes": Cut(
        SANDBOX, 'if sys.platform != "linux":', "if False:", BOX, "system_without"
    ),
    "sandbox of a child": Cut(
        POSIX,
        "    if command.sandbox is None:\n        return command.argv\n",
        "    if not bubblewrap or command:\n        return command.argv\n",
        BOX,
        CLOSED,
    ),
    "SIGTERM for the server alone": Cut(
        POSIX,
        "if self._is_sandboxed and not force:",
        "if False:",
        BOX,
        "sigterm_may_clean_up",
    ),
    "sandbox of a host": Cut(
        "host/servers/supervisor.py",
        "            sandbox=sandbox_for(self._entry, target),\n",
        "",
        COMMANDS,
        "no_command_starts and ls",
    ),
    "sandbox of inspect": Cut(
        "cli/commands/inspect.py",
        "                sandbox=sandbox_for(entry, target),\n",
        "",
        COMMANDS,
        "no_command_starts and inspect",
    ),
    "sandbox of doctor": Cut(
        "cli/doctor/targets.py",
        '"sandbox": sandbox_for(entry, resolved)',
        '"sandbox": None',
        COMMANDS,
        "no_command_starts and doctor",
    ),
    "invalid defaults": Cut(
        "host/config/reader.py",
        "if source.defaults is not None and source.defaults.problems and broken is not None:",
        "if False:",
        SETTINGS,
        "defaults_that_are_invalid",
    ),
    "invalid sandbox of a gateway": Cut(
        "host/config/gateway_table.py", "        return STRICT\n", "        return None\n", SETTINGS, "gateway_has"
    ),
    "defaults in the question for trust": Cut(
        "host/config/actions.py",
        'sandbox = draft.get("sandbox") or (usual if command is not None else None)',
        'sandbox = draft.get("sandbox")',
        SETTINGS,
        "question_for_trust",
    ),
    "dangers of a grant": Cut(
        "host/config/actions.py",
        "return sandbox.describe(), [one for path in paths for one in place_dangers(path)]",
        "return sandbox.describe(), []",
        SETTINGS,
        "question_for_trust",
    ),
    "sandbox of a gateway": Cut(
        "cli/commands/gateway.py",
        "    config = with_sandbox(config, sandbox_of(options.sandbox) or table.sandbox)\n",
        "",
        COMMANDS,
        "sees_few_files",
    ),
    "bubblewrap of a gateway": Cut(
        "cli/commands/gateway.py",
        "    require_bubblewrap(config)\n",
        "",
        COMMANDS,
        "cannot_make_its_sandboxes",
    ),
    "authorization of a dangerous command": Cut(
        "cli/commands/gateway.py",
        "    config = authorize_commands(config, options, terminal)\n",
        "",
        COMMANDS,
        "not_served_without",
    ),
    "authorization of the same command": Cut(
        "cli/commands/gateway.py",
        "if recall(name) == entry.command_digest:",
        "if recall(name) is not None:",
        COMMANDS,
        "until_it_is_authorized",
    ),
    "folder and variables of an authorized command": Cut(
        "host/config/resolve.py",
        "hashlib.sha256(repr(written).encode(",
        "hashlib.sha256(repr(written[0]).encode(",
        SETTINGS,
        "answer_about_a_command",
    ),
    "log of commands": Cut(
        "cli/commands/gateway.py",
        "            _log_processes(LOG_FORMAT if stdio else HTTP_LOG_FORMAT)\n",
        "            pass\n",
        COMMANDS,
        "logs_which_command",
    ),
    "forwarded headers": Cut(
        "host/servers/session.py",
        "            _param_headers(self.context),\n",
        "            None,\n",
        LISTS,
        "no_tool_names",
    ),
    "headers of older revisions": Cut(
        "client/client.py",
        "if caller is None or not caller.headers or not self.peer.revision.http.routing_headers:",
        "if True:",
        LISTS,
        "no_tool_names",
    ),
    "headers that a tool names": Cut(
        "protocol/http/param_headers.py",
        "key.startswith(_KEY_PREFIX) and key not in keys and",
        "key.startswith(_KEY_PREFIX) and",
        HEADERS,
        "found_for_forwarding",
    ),
    "number of forwarded headers": Cut(
        "protocol/http/param_headers.py",
        " and len(found) < MAX_PARAM_HEADERS:",
        ":",
        HEADERS,
        "no_more_unknown",
    ),
}  # fmt: skip


def test_each_cut_is_one_place_of_the_source_and_leaves_python() -> None:
    for name, cut in CUTS.items():
        check_fits(name, cut, "tests")


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_that_is_taken_out_is_missed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_bubblewrap(monkeypatch)
    check_missed(CUTS[name], tmp_path, "tests")
