"""How crashkit names things: functions, the user's own code, abort machinery, signals, special addresses, times. One module per rule, all pure."""
