"""A search whose kernels hang or break their process at times, which is killed from outside.

The template is real and so are its processes. `config["fault"]` says what a configuration does
before it computes: nothing, hang, or end the process as a broken CUDA context does.
"""

import os
import sys
import time

import torch

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search import contender
from gpudeck.accel.search.api import problem_of
from gpudeck.accel.search.crew import Crew
from gpudeck.accel.search.engine import Budget, Engine
from gpudeck.accel.search.journal import Journal
from gpudeck.accel.search.nursery import Nursery
from gpudeck.accel.search.space import Space
from gpudeck.accel.search.tasks import TASKS, task_of
from gpudeck.accel.search.templates import Template
from gpudeck.accel.search.verdict import Source

COMPUTES, HANGS, BREAKS = 0, 1, 2
BLOCKS = (1, 2, 4, 8, 16, 24, 32, 40, 48, 64)
SPACE = Space({"block": BLOCKS, "fault": (COMPUTES, HANGS, BREAKS), "extra": (0, 1)})


def faulty(config):
    def call(x):
        if config["fault"] == HANGS:
            time.sleep(3600)
        if config["fault"] == BREAKS:
            os._exit(134)
        return torch.cat([TASKS["row_sum"].reference(p) for p in x.split(config["block"])])

    return call


TEMPLATE = Template("faulty", SPACE, lambda c: Source(__file__, "faulty", {"config": c}))
TASK = task_of("row_sum", torch.float32, {"rows": 48, "columns": 64})


def journal():
    return Journal(problem_of(TASK, TEMPLATE, find_device()))


def main():
    torch.set_num_threads(1)
    contender.CALL_S = contender.LOAD_S = 1.0
    nursery = Nursery()
    with journal() as kept, Crew(nursery, torch.device("cpu")) as crew, torch.no_grad():
        engine = Engine(TASK, TEMPLATE, kept, crew, None)
        engine.run(Budget())
        engine.close()
    nursery.close()


if __name__ == "__main__":
    sys.exit(main())
