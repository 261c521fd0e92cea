"""A job of several processes: what each of them said, put together. Pure."""
