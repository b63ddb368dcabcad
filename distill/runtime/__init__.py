"""The base of every part: devices and processes, versions, progress, streams and stored files."""
