"""scripts/test: which stages there are, what runs beside what, and what a person sees of it."""

import argparse
import os
import signal
import sys
import time

import failures
from load import Load
from running import Running
from stages import STAGES, plan


def arguments():
    usage = open("scripts/test").read().split("#\n")[1].replace("#   ", "  ").rstrip()
    parser = argparse.ArgumentParser(prog="scripts/test", usage=f"one of\n{usage}", add_help=True)
    parser.add_argument("--deep", action="store_true", help="everything, as often as can be")
    parser.add_argument("--list", action="store_true", help="name the stages")
    parser.add_argument("--repeat", type=int, metavar="N", help="run the named stages N times and count failures")
    parser.add_argument("--beside-load", action="store_true", help="with a bounded load beside them")
    parser.add_argument("names", nargs="*", metavar="STAGE[::FILTER]")
    args = parser.parse_args()
    for name in args.names:
        stage, _, only = name.partition("::")
        if stage not in STAGES:
            parser.exit(2, f"scripts/test: no stage {stage}; scripts/test --list names them\n")
        if only and not STAGES[stage].tests:
            parser.exit(2, f"scripts/test: {stage} has no tests to choose from; say scripts/test {stage}\n")
    if args.repeat is not None and (args.repeat < 1 or not args.names):
        parser.exit(2, "scripts/test: --repeat takes a number from 1 on and the stages to repeat: --repeat 10 e2e\n")
    return args


def listing():
    print(f"{'stage':<12} {'usual':>7} {'deep':>7}  what it does (seconds on 2 cores, built)")
    for stage in STAGES.values():
        usual = "" if stage.deep_only else stage.usual
        print(f"{stage.name:<12} {usual:>7} {stage.usual_deep or stage.usual:>7}  {stage.what}")


def together(lanes, deep):
    """Runs the lanes side by side, each of them one stage after the other; returns what ran."""
    waiting, running, done = [list(lane) for lane in lanes], [], []
    tick = time.monotonic()
    while any(waiting) or running:
        busy = [run.lane for run in running]
        for number, lane in enumerate(waiting):
            if lane and number not in busy:
                running.append(Running(*lane.pop(0), deep, number))
        for run in [run for run in running if run.ended()]:
            running.remove(run)
            done.append(run)
            print(run.verdict(), flush=True)
            if run.stage.needed and not run.passed:
                # What comes after it would only fail for the same reason.
                waiting = [[] for _ in waiting]
        # A person sees it change; a log has a line now and then.
        if sys.stdout.isatty():
            print("\r\033[K" + "  ".join(run.progress() for run in running)[:150], end="", flush=True)
        elif running and time.monotonic() - tick > 30:
            tick = time.monotonic()
            print("    " + "  ".join(run.progress() for run in running), flush=True)
        time.sleep(0.5)
        if sys.stdout.isatty():
            print("\r\033[K", end="")
    return done


def once(steps, deep):
    """Every step, one after the other, until one that the rest needs fails."""
    done = []
    for lanes in steps:
        done += together(lanes, deep)
        if any(run.stage.needed and not run.passed for run in done):
            break
    return done


def repeated(names, times, deep):
    """The named stages so many times; prints which test failed how often."""
    failed, stages = {}, [(STAGES[name.split("::")[0]], name.partition("::")[2]) for name in names]
    for number in range(1, times + 1):
        print(f"--- run {number} of {times}", flush=True)
        for run in together([stages], deep):
            for test in [] if run.passed else failures.tests(run.log) or [f"{run.stage.name} as a whole"]:
                failed.setdefault(f"{run.stage.name}::{test}", []).append(number)
            if not run.passed:
                os.replace(run.log, f"{run.log}.{number}")
    print(f"\n{times} runs of {', '.join(names)}: {len(failed)} tests failed")
    for test, runs in sorted(failed.items()):
        print(f"  {len(runs)} of {times}  {test}  (output in target/test/*.log.{runs[0]})")
    return not failed


def main():
    args = arguments()
    if args.list:
        return listing()
    if os.getuid() != 0:
        sys.exit("test: error: the tests start sandboxes; run as root")
    os.makedirs("target/test", exist_ok=True)
    # The end of this program is the end of what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun = time.monotonic()
    with Load() if args.beside_load else Load.none():
        if args.repeat:
            sys.exit(0 if repeated(args.names, args.repeat, args.deep) else 1)
        done = once(plan(args.names, args.deep), args.deep)
    seconds = time.monotonic() - begun
    table = [f"{run.stage.name:<12} {run.seconds:>5.0f} s  {run.summary()}" for run in done]
    print(f"\n=== {seconds:.0f} s in all\n" + "\n".join(table))
    # A run that had to give up early has shown nothing of what comes after.
    if args.deep and not args.names and all(run.passed for run in done if run.stage.needed):
        failures.record_deep_run(table, seconds)
    failed = [run for run in done if not run.passed]
    for run in failed:
        print(failures.report(run))
    print("FAILED: " + " ".join(run.stage.name for run in failed) if failed else "all passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
