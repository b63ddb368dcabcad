"""Fetches, checks and loads models and tokenizers.

Weights are loaded from safetensors only, and code in a model's folder is never run. Only `fetch` connects to the hub;
everything else loads from local folders.
"""

from distill.models.teacher.embedder import check_exported as check_exported
from distill.models.teacher.embedder import is_lower_cased as is_lower_cased
from distill.models.teacher.embedder import longest as longest
from distill.models.teacher.embedder import pooling as pooling
from distill.models.teacher.folders import EMBEDDED_NAME as EMBEDDED_NAME
from distill.models.teacher.folders import EMBEDDED_PACKAGE as EMBEDDED_PACKAGE
from distill.models.teacher.folders import TOKENIZER as TOKENIZER
from distill.models.teacher.folders import fetch as fetch
from distill.models.teacher.folders import licence as licence
from distill.models.teacher.folders import resolve as resolve
from distill.models.teacher.given import check_given as check_given
from distill.models.teacher.given import check_masked_lm as check_masked_lm
from distill.models.teacher.given import notes as notes
from distill.models.teacher.given import stores_mlm_head as stores_mlm_head
from distill.models.teacher.given import unused_in as unused_in
from distill.models.teacher.headless import without_head as without_head
from distill.models.teacher.load import check_vocabulary as check_vocabulary
from distill.models.teacher.load import load_classifier as load_classifier
from distill.models.teacher.load import load_mlm as load_mlm
from distill.models.teacher.load import load_rtd as load_rtd
from distill.models.teacher.load import load_tokenizer as load_tokenizer
from distill.models.teacher.load import read_config as read_config
from distill.models.teacher.random import random_teacher as random_teacher
