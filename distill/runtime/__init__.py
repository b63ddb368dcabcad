"""What every part stands on: devices and processes, versions, progress, streams and stored files."""
