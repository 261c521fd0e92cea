"""From a dead Python process to the line and the cause, in one command.

A crash leaves evidence: a core, a faulthandler dump, a log. `collect` makes sure that it is left, `evidence` reads it,
`debugger` asks gdb, `stacks` puts native and Python frames together, `diagnose` names the cause and the fix, and
`report` shows it. `pipeline` is that path, one call a stage.
"""

__version__ = "0.1.0"
