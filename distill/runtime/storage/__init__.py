"""Files and folders that are whole or absent: atomic writing, locks, hashes, and the cache of later runs."""
