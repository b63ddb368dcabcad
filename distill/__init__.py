"""distill: from an encoder that is too slow or too dear to the smallest, fastest one that still does the job."""

__version__ = "0.1.0"
