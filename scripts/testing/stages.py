"""The stages of scripts/test: what each is for, how long it takes as a rule, and what it may run beside."""

import os
from dataclasses import dataclass


@dataclass
class Stage:
    name: str
    what: str
    # Seconds on 2 cores with all that it needs built; and deep, where that differs.
    usual: int
    usual_deep: int = 0
    # Without it the rest would only fail for the same reason.
    needed: bool = False
    deep_only: bool = False
    # Whether it counts tests, and takes a filter of their names.
    tests: bool = False

    def environment(self, deep):
        # tests/support/pace.rs: how often what is repeated to win a race is repeated.
        return {"TASKMAN_TEST_DEEP": "1"} if deep else {}


STAGES = {
    stage.name: stage
    for stage in [
        Stage("install", "brings the tools that the tests use", 20, needed=True),
        Stage("images", "makes what the virtual machine boots", 40, 120),
        Stage("fmt", "rustfmt", 2),
        Stage("build", "builds every test program once, and the mutants", 300, needed=True),
        Stage("clippy", "lints everything, with a warning for an error", 110),
        Stage("deny", "licences, sources and bans of the dependencies", 110, deep_only=True),
        Stage("deploy", "alerts and dashboard, by Prometheus' own checker", 2),
        Stage("unit", "unit tests", 40, tests=True),
        Stage("doc", "examples in the documentation", 3, tests=True),
        Stage("tree", "what reads the tree: layers, documents against code, the package", 15, tests=True),
        Stage("launcher", "the launcher against played servers", 50, tests=True),
        Stage("e2e", "every promise, through the programs", 95, tests=True),
        Stage("container", "inside containers, by crun and runc", 17, tests=True),
        Stage("faults", "every step of a task's life, killed or stopped", 150, tests=True),
        Stage("adversarial", "hostile payloads: control, contained and mutation arm", 200, 400, tests=True),
        Stage("warm", "the same in warm sandboxes, without the mutation arms", 100, 330, tests=True),
        Stage("vm", "pure cgroup v2 in a virtual machine; deep: all other hosts", 95, 500, tests=True),
        Stage("first", "the first command of the README, in a clone with nothing built", 140, deep_only=True),
        Stage("bench", "what a start costs beside the peers", 430, deep_only=True),
    ]
}


def plan(names, deep):
    """Steps, one after the other; a step is lanes, side by side; a lane is stages, one after the other."""
    if names:
        return [[[(STAGES[name.split("::")[0]], name.partition("::")[2]) for name in names]]]
    lanes = [["unit", "tree", "launcher", "container", "doc"], ["faults"]]
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        # With cgroup v2 alone suites share a group, and would see each other's tasks.
        lanes = [sum(lanes, [])]
    steps = [
        [["install"]],
        # The images wait for disk and mirror, and leave the CPUs to the compiler.
        [["fmt", "build", "clippy", "deny"], ["images", "deploy"]],
        # Each of these does one thing at a time, looks at what it started itself, and waits more than it works.
        lanes,
        # These keep all CPUs busy: their tests and cases run side by side.
        [["e2e", "adversarial", "warm"]],
        # An emulated CPU takes a whole one, for minutes.
        [["vm"]],
        # Ratios mean something on a machine that does nothing else.
        [["first"]],
        [["bench"]],
    ]
    chosen = lambda name: deep or not STAGES[name].deep_only
    return [[[(STAGES[name], "") for name in lane if chosen(name)] for lane in lanes] for lanes in steps]
