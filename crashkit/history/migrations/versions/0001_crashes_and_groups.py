"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "groups",
        sa.Column("key", sa.String(80), primary_key=True),
        sa.Column("algorithm", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("frames", sa.JSON, nullable=False),
        sa.Column("signal", sa.Text, nullable=False),
        sa.Column("where", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("first_seen", sa.Float(53), nullable=False),
        sa.Column("last_seen", sa.Float(53), nullable=False),
        sa.Column("first_release", sa.Text, nullable=False),
    )
    op.create_table(
        "crashes",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("group_key", sa.String(80), sa.ForeignKey("groups.key"), nullable=False),
        sa.Column("seen", sa.Float(53), nullable=False),
        sa.Column("recorded", sa.Float(53), nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("signal", sa.Text, nullable=False),
        sa.Column("where", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("program", sa.Text, nullable=False),
        sa.Column("release", sa.Text, nullable=False),
        sa.Column("python", sa.Text, nullable=False),
        sa.Column("crashkit", sa.Text, nullable=False),
        sa.Column("versions", sa.JSON, nullable=False),
    )
    op.create_index("crashes_by_group", "crashes", ["group_key", "seen"])
    op.create_index("crashes_by_time", "crashes", ["recorded"])
