"""How crashkit names things: functions, the user's own code, abort machinery, signals, telling addresses. One module a rule, all pure."""
