"""The summary of many crashes, one file a format. Pure."""
