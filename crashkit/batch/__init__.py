"""Many crashes: artefacts of a failed run in, groups and summaries out. The steps are in `run`."""
