"""How crashkit names things: functions, own code, abort machinery, signals, special addresses, times. One module per rule, all pure."""
