"""A group keeps its count when its old crashes are forgotten; when a release was first seen is found quickly."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Nothing was forgotten before."""
    op.add_column("groups", sa.Column("forgotten", sa.Integer, nullable=False, server_default="0"))
    op.create_index("crashes_by_release", "crashes", ["release", "seen"])
