"""Settings that do not change what is trained."""

from __future__ import annotations

FREE = (
    *("output", "cache.dir", "cache.max_gib", "threads", "device", "push", "push_private", "push_dry_run"),
    *("tracker", "log", "report.hourly_rate", "report.purpose"),
)
"""They may differ when a run is resumed, and between runs that are seeds of one another."""
