"""alembic runs this for each command; the connection is the caller's, as is its transaction."""

from alembic import context

from crashkit.history.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transaction_per_migration=False)
context.run_migrations()
