"""The replay: layout of a row, rings and slots on the device, the log on disk."""
