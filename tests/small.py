"""Settings of small whole runs on a user's own file."""

SMALL = (
    "limit=smoke", "limit.documents=60", "limit.repeats=1", "tasks.max_length=32", "output=out",
    "target.speedup=1.05", "target.shape=[1,16]", "target.scheme=fp32", "stages.prune.dimensions=[layers]",
    "stages.quantize.schemes=[onnxruntime]",
    "stages.quantize.max_drop=100", "stages.evaluate.shapes=[[1,16]]",
    "stages.evaluate.baseline=null", "pipeline=[finetune_teacher,prune,recover,quantize,evaluate,export]",
)  # fmt: skip
FLOAT = (
    "pipeline=[finetune_teacher,prune,recover,evaluate,export]", "stages.evaluate.quantized=null",
    "stages.export.quantized=null",
)  # fmt: skip
"""Settings after `SMALL` of a run that quantizes nothing."""
