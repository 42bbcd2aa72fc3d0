"""The environment of the ``alembic`` command, for the session file of ``-x session=PATH`` or none.

Opening a session does not use it: ``statebackend.schema.migrate`` does that. It sets up no logging.
"""

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection

from statebackend.errors import StateBackendError
from statebackend.schema import alembic_env, migrate, models

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alembic.migration import MigrationContext, MigrationInfo
    from alembic.operations.ops import MigrationScript


def run() -> None:
    """Run the part of the command that reads or changes a database."""
    session = context.get_x_argument(as_dictionary=True).get("session")
    path = Path(str(session)) if session else None
    refuse_downgrade()
    if context.is_offline_mode():
        run_offline()
    elif not has_target():
        with report_in_one_line(), alembic_env.reading(path) as connection:
            run_on(connection)
    elif path is None:
        raise CommandError("say which session file: alembic -x session=PATH ...")
    else:
        with report_in_one_line(), alembic_env.writing(path) as connection:
            run_on(connection)


def has_target() -> bool:
    """Return whether the command has a target version, as upgrade, stamp and downgrade have."""
    try:
        context.get_revision_argument()
    except KeyError:
        return False
    return True


def run_on(connection: Connection) -> None:
    """Run the command on *connection*, whose transaction is not Alembic's."""
    configure(connection=connection, on_version_apply=check_stamp)
    context.run_migrations(op=migrate.operations(context.get_context()))


def run_offline() -> None:
    """Write the statements of the command as a script for an SQLite shell."""
    output = alembic_env.WithoutVersionTable(context.config.output_buffer or sys.stdout)
    configure(
        dialect_name="sqlite",
        literal_binds=True,
        output_buffer=output,
        on_version_apply=write_version,
    )
    with context.begin_transaction():
        context.run_migrations(op=migrate.operations(context.get_context()))


def configure(**options: Any) -> None:
    """Configure Alembic with what all commands need, and these *options*."""
    context.configure(
        target_metadata=models.Base.metadata,
        compare_server_default=True,
        transactional_ddl=True,
        version_table=migrate.VERSION_TABLE,
        process_revision_directives=number_revision,
        **options,
    )


def refuse_downgrade() -> None:
    """Refuse ``alembic downgrade``: no revision has one."""
    command = getattr(context.config.cmd_opts, "cmd", None)
    if command and command[0].__name__ == "downgrade":
        raise CommandError("a session file cannot be downgraded; see docs/migrations.md")


def check_stamp(
    ctx: "MigrationContext", step: "MigrationInfo", heads: set[str], **_ignored: Any
) -> None:
    """Refuse a stamp that the tables contradict."""
    if step.is_stamp:
        assert ctx.connection is not None
        alembic_env.check_stamp(ctx.connection, int(*heads or ("0",)))


def write_version(ctx: "MigrationContext", heads: set[str], **_ignored: Any) -> None:
    """Write the version of a step into the script."""
    (head,) = heads or ("0",)
    ctx.execute(f"PRAGMA user_version = {int(head)}")


def number_revision(
    _context: "MigrationContext", _heads: Any, directives: "list[MigrationScript]"
) -> None:
    """Give a new revision the next number, which is the version that it makes."""
    for directive in directives:
        last = context.script.get_current_head()
        directive.rev_id = f"{int(last or 0) + 1:04}"


@contextmanager
def report_in_one_line() -> "Iterator[None]":
    """End the command with one line instead of a traceback where the package refuses something."""
    try:
        yield
    except (StateBackendError, ValueError) as error:
        raise CommandError(str(error)) from error


run()
