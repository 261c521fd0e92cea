"""A crash on disk: its folder, manifest, id, the store, and what may be shown of it."""
