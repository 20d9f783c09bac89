"""Shows what scripts/bench has measured: main.py RUN [--write] [--json]

RUN is the folder with its raw results. The page goes to stdout, the plots beside the raw results; with --write they become
docs/benchmarks.md, docs/benchmarks/ and benches/baseline.json. Ratios are compared with the baseline and never judged by an
exit code: machines are noisy.
"""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

import page

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASELINE = ROOT / "benches/baseline.json"
# A ratio that is worse by more than this is named.
WORSE = 0.30


def table(path):
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def machine():
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", cpuinfo)
    kib = int(re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())[1])
    v1 = re.search(r"^\S+ \S+ cgroup ", pathlib.Path("/proc/self/mounts").read_text(), re.M)
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return {
        "date": datetime.date.today().isoformat(), "kernel": os.uname().release, "cpus": os.cpu_count(),
        "processor": model[1].strip() if model else os.uname().machine, "virtual": " hypervisor" in cpuinfo,
        "memory_gib": round(kib / 2**20), "cgroups": "hybrid" if v1 else "version 2",
        "commit": commit.stdout.strip() or "unknown",
    }


def collect(run):
    """All raw results as one object."""
    results = {"machine": machine(), **{key: value for key, value in table(run / "settings.tsv")}}
    results["load"] = [float((run / "load").read_text()), os.getloadavg()[0]]
    results["labels"] = {name: {"label": label, "lacks": lacks} for name, label, lacks in table(run / "labels.tsv")}
    results["absent"] = [{"name": name, "reason": reason} for name, reason in table(run / "absent.tsv")]
    fields = ["p50_ns", "p95_ns", "p99_ns", "min_ns", "mean_ns", "peak_kib"]
    rows = table(run / "start.tsv")
    results["start"] = {name: dict(zip(fields, map(int, values))) for name, *values in rows if len(values) > 1}
    results["absent"] += [{"name": row[0], "reason": f"it failed on the way, {row[1]}"} for row in rows if len(row) == 2]
    together = {}
    for name, launchers, rate in table(run / "together.tsv"):
        together.setdefault(name, {})[launchers] = None if rate == "failed" else float(rate)
    results["together"] = {name: rates for name, rates in together.items() if None not in rates.values()}
    results["absent"] += [{"name": f"{name}, many at once", "reason": "a launch failed among others"}
                          for name, rates in together.items() if None in rates.values()]
    for needed in ("plain", "taskman"):
        if needed not in results["start"] or needed not in results["together"]:
            sys.exit(f"bench: error: {needed} failed on the way, and without it there is nothing to compare")
    results["ready"] = json.loads((run / "ready.json").read_text())
    service = run / "service.json"
    return {**results, **(json.loads(service.read_text()) if service.exists() else {})}


def ratios(results):
    """What the baseline keeps: costs to other costs of the same run, so more is always worse."""
    found = {}
    start = results["start"]
    found["taskman run"] = {name: start["taskman"]["p50_ns"] / of["p50_ns"] for name, of in start.items() if name != "taskman"}
    ready = results["ready"]
    found["to the first instruction, in a sandbox that stands ready"] = {"plain": ready["ready"]["p50"] / ready["plain"]["p50"]}
    # Bursts are short: fewer launchers, or the floor of some microseconds, would only say how the machine felt just then.
    together = results["together"]
    most = max(together["taskman"], key=int)
    found[f"a start among {most} at once"] = {
        name: rates[most] / together["taskman"][most] for name, rates in together.items() if name not in ("taskman", "plain")}
    rates = results.get("service", {}).get("rates", [])
    beside = {rate["clients"]: rate["per_second"] for rate in rates if rate["who"] == "crun"}
    for rate in rates:
        if rate["who"] != "crun" and rate["clients"] in beside:
            name = f"a start over the service ({rate['who']}), {rate['clients']} at once"
            found[name] = {"crun": beside[rate["clients"]] / rate["per_second"]}
    levels = results.get("live", {}).get("levels", [])
    for level in levels[1:]:
        found[f"a start beside {level['tasks']} live tasks"] = {
            f"one beside {levels[0]['tasks']}": level["p50_ms"] / levels[0]["p50_ms"]}
    return {what: {name: round(ratio, 3) for name, ratio in of.items()} for what, of in found.items()}


def regressions(now, load):
    if not BASELINE.exists():
        return ["no baseline yet: scripts/bench --full writes one"]
    before = json.loads(BASELINE.read_text())
    pairs = [(what, name, was, now[what][name]) for what, of in before["ratios"].items() for name, was in of.items()
             if name in now.get(what, {})]
    worse = [f"regression: {what} was {was:.2f} of {name}, is {is_:.2f} (+{is_ / was - 1:.0%})"
             for what, name, was, is_ in pairs if is_ > was * (1 + WORSE)]
    doubt = f"; at a load of {load:.1f} that may be the machine's" if worse and load > os.cpu_count() / 2 else ""
    return worse + [f"{len(pairs)} ratios compared with the baseline of {before['date']}; "
                    f"{len(worse)} are more than {WORSE:.0%} worse{doubt}"]


def main():
    run, options = pathlib.Path(sys.argv[1]), sys.argv[2:]
    results = collect(run)
    found = ratios(results)
    plots = page.plots(results)
    words = page.page(results)
    (run / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    compared = regressions(found, results["load"][0])
    print(json.dumps(results) if "--json" in options else words)
    for line in compared:
        print(f"bench: {line}", file=sys.stderr)
    folder = ROOT / "docs/benchmarks" if "--write" in options else run
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for name, plot in plots.items():
        (folder / name).write_text(plot)
    if "--write" in options:
        (ROOT / "docs/benchmarks.md").write_text(words)
        kept = {"date": results["machine"]["date"], "commit": results["machine"]["commit"], "ratios": found}
        BASELINE.write_text(json.dumps(kept, indent=1) + "\n")
        print("bench: wrote docs/benchmarks.md, docs/benchmarks/ and benches/baseline.json", file=sys.stderr)
    else:
        print(f"bench: raw results and plots are in {run}", file=sys.stderr)


main()
