"""`colonnade work`: run the tasks of a server, without serving clients.

The store, or the queue of the server, says which tasks there are. The processes that serve clients
create them (`colonnade serve`), with or without running some themselves.

Rules: nothing is written to standard output. SIGTERM and Ctrl-C give the tasks back, so that
another process goes on with them at once; a second Ctrl-C does not wait for that.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from colonnade.cli.commands.serve import (
    DEBUG,
    LOG_JSON,
    LOG_LEVEL,
    TARGET,
    configure_logging,
    enable_debug,
    log_settings,
    parse_count,
    run_user_code,
    server_of,
    store_error,
)
from colonnade.cli.errors import INTERRUPTED, CliError, Reporter
from colonnade.cli.loader import load, parse_server_file
from colonnade.cli.options import Action

if TYPE_CHECKING:
    from colonnade.server.server import Server


@click.command(
    epilog="""\b
Examples:
  colonnade work server.py                       run what other processes create
  colonnade work server.py --max-running 20 --log-level info

COLONNADE_LOG_LEVEL and COLONNADE_LOG_JSON set the log options.
"""
)
@TARGET
@click.option(
    "--max-running",
    metavar="NUMBER",
    callback=parse_count,
    help="Tasks to run at once.  [default: TaskOptions(max_running=…) of the server, 500]",
)
@DEBUG
@LOG_LEVEL
@LOG_JSON
def work(
    target: str, max_running: int | None, debug: bool, log_json: bool, log_level: str | None
) -> Action:
    """Run the tasks of a server, without serving clients.

    TARGET is a Python file or module that defines a colonnade.Server, as for serve. Every process
    with the same store, or the same queue, runs tasks of the server: start as many as you need, on
    as many machines as the store serves. SIGTERM and Ctrl-C give running tasks back, and another
    process goes on with them.
    """
    return partial(
        work_target,
        target,
        max_running,
        debug=debug,
        log_json=log_json,
        log_level=log_level,
    )


def work_target(
    text: str, max_running: int | None, *, debug: bool, log_json: bool, log_level: str | None
) -> int:
    """Run the tasks of a target; return the exit code."""
    from colonnade.transport.http_server.settings import LOG_FORMAT

    reporter = Reporter(debug=debug, log_json=log_json)
    try:
        log_json, log_level = log_settings(log_json, log_level)
        reporter = Reporter(debug=debug, log_json=log_json, log_level=log_level)
        file = parse_server_file(text)
        configure_logging(reporter, LOG_FORMAT)
        server = server_of(load(file, reporter, apps=True))
        enable_debug(server, reporter)
        return _work(server, max_running, reporter)
    except CliError as error:
        reporter.error(error)
        return error.code


def _work(server: "Server", max_running: int | None, reporter: Reporter) -> int:
    if not server.has_task_tools:
        raise CliError(
            f"{server.info.name} has no tool that runs as a task, and so there is nothing to run",
            hint="write @server.tool(task=True) above a function, or use colonnade serve",
        )
    if not server.store.is_shared:
        raise store_error(server, "colonnade work")
    from colonnade.protocol.negotiation import name_and_version
    from colonnade.server.tasks.options import TaskOptions
    from colonnade.transport.http_server.runner import THREADS_S, loop_factory
    from colonnade.transport.signals import close

    # The same file may say that the processes that serve clients run none.
    server.max_running_tasks = max_running or server.max_running_tasks or TaskOptions().max_running

    def announce() -> None:
        name, most = name_and_version(server.info), server.max_running_tasks
        reporter.info(f"{name} runs its tasks, {most} at once; SIGTERM and Ctrl-C give them back")

    def serve(started: Callable[[], None]) -> bool:
        def on_started() -> None:
            started()
            announce()

        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            try:
                interrupted = runner.run(run_tasks(server, on_started))
            except KeyboardInterrupt:  # before `run_tasks` handled it
                interrupted = True
            close(runner, interrupted=interrupted, wait_s=THREADS_S)
        return interrupted

    return INTERRUPTED if run_user_code(server, reporter, serve) else 0


async def run_tasks(server: "Server", on_started: Callable[[], None]) -> bool:
    """Run the tasks of a server until SIGTERM or SIGINT, and give them back; a second signal does
    not wait. Returns whether Ctrl-C ended it."""
    from colonnade.transport.http_server.runner import HURRY_S, Shutdown
    from colonnade.transport.signals import Signals

    shutdown = Shutdown()
    signals = Signals(shutdown.request, exclusive=True)
    signals.listen()
    started = asyncio.Event()

    async def hold() -> None:  # the lifespan is entered and left in one task
        await server.start()
        try:
            started.set()
            on_started()
            await asyncio.shield(shutdown.graceful)
        finally:
            await server.stop()

    step = asyncio.get_running_loop().create_task(hold())
    try:
        await asyncio.wait({step, shutdown.graceful}, return_when=asyncio.FIRST_COMPLETED)
        if not started.is_set():
            step.cancel()
        await asyncio.wait({step, shutdown.immediate}, return_when=asyncio.FIRST_COMPLETED)
        if not step.done():
            step.cancel()
            await asyncio.wait({step}, timeout=HURRY_S)
        if step.done() and not step.cancelled():
            step.result()
    finally:
        signals.stop()
    return signals.interrupted
