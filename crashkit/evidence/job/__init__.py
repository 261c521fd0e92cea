"""What the logs, error files and dumps of a job say of each of its processes."""
