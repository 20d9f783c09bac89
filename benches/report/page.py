"""docs/benchmarks.md, and what a run prints: the same page."""

import plot

# The most that `taskman run` may cost of another's start.
WANTED = [("bubblewrap", 0.5), ("crun", 0.15), ("bare", 2.0)]
WANTED_PEAK_KIB = 10 * 1024


def markdown(header, rows):
    """A table that can be read as plain text too: the first column to the left, the others to the right."""
    rows = [header, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    line = lambda row: "| " + " | ".join(
        cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))) + " |"
    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(rows[0]), rule, *map(line, rows[1:])])


def ms(nanoseconds):
    return f"{nanoseconds / 1e6:.2f}"


def plots(results):
    """Every plot that there are numbers for, by file name."""
    label = lambda name: results["labels"][name]["label"]
    made = {"start.svg": plot.ranges(
        "Start to exit of a no-op, milliseconds: p50, p95, p99",
        [(label(name), [of[p] / 1e6 for p in ("p50_ns", "p95_ns", "p99_ns")]) for name, of in results["start"].items()])}
    together = results["together"]
    launchers = list(next(iter(together.values())))
    made["together.svg"] = plot.lines(
        "No-op tasks per second", "launchers at once", [int(n) for n in launchers],
        [(label(name), [rates[n] for n in launchers]) for name, rates in together.items()], log=True)
    if levels := results.get("live", {}).get("levels"):
        tasks = [level["tasks"] for level in levels]
        made["live-latency.svg"] = plot.lines(
            "StartTask to the first output byte, milliseconds", "live tasks beside it", tasks,
            [(name, [level[key] for level in levels]) for name, key in
             (("p50", "p50_ms"), ("p95", "p95_ms"), ("bare C, p50", "bare_ms")) if levels[0][key] is not None])
        made["live-memory.svg"] = plot.lines(
            "Memory of server, launcher and auditor per live task, KiB", "live tasks", tasks,
            [("KiB per task", [level["kib_per_task"] for level in levels])])
    if readers := results.get("output", {}).get("readers"):
        made["readers.svg"] = plot.lines(
            "The server's processor time per GiB that readers of one live output got, seconds", "readers",
            [of["readers"] for of in readers], [("seconds per GiB", [of["server_cpu_s_per_gib"] for of in readers])])
    return made


def page(results):
    parts = [head(results), wanted(results), start(results), ready(results["ready"]), together(results)]
    parts += [part(results[key]) for key, part in (("service", service), ("live", live), ("output", output)) if key in results]
    return "\n\n".join(parts) + "\n"


def head(results):
    machine, load = results["machine"], results["load"]
    busy = load[0] > machine["cpus"] / 2
    command = "scripts/bench" + ("" if results["kind"] == "start" else f" --{results['kind']}")
    return "\n".join([
        "# Benchmarks", "",
        f"Written by `{command}`; do not edit. [performance.md](performance.md) says what is measured, how to read it,",
        "and where the time goes. Compare ratios within one run, never times across runs.", "",
        f"{machine['date']}, commit {machine['commit']}; kernel {machine['kernel']}, {machine['cgroups']} cgroups; {machine['cpus']} processors"
        f" ({machine['processor']}){' of a virtual machine' if machine['virtual'] else ''}, {machine['memory_gib']} GiB.",
        f"Load before the run: {load[0]:.1f}, after it: {load[1]:.1f}."
        + (" **Other work kept the machine busy: the numbers show that it runs, not what it costs.**" if busy else "")])


def verdict(met):
    return "met" if met else "not met"


def wanted(results):
    start = results["start"]
    ours, rows = start["taskman"], []
    for name, most in WANTED:
        words = [f"`taskman run` to {results['labels'][name]['label']}, p50", f"at most {most}"]
        if name in start:
            ratio = ours["p50_ns"] / start[name]["p50_ns"]
            rows.append([*words, f"{ratio:.2f}", verdict(ratio <= most)])
        else:
            rows.append([*words, "-", "did not take part"])
    first = results["ready"]["ready"]["p50"] / results["ready"]["plain"]["p50"]
    rows.append(["to the first instruction in a sandbox that stands ready, to plain vfork+exec, p50", "at most 2", f"{first:.2f}",
                 verdict(first <= 2)])
    rows += wanted_of_service(results) if "service" in results else []
    peak = ours["peak_kib"]
    rows.append(["peak memory of `taskman run`", "under 10 MiB", f"{peak / 1024:.1f} MiB", verdict(peak < WANTED_PEAK_KIB)])
    return "## Wanted\n\n" + markdown(["what", "wanted", "measured", ""], rows)


def wanted_of_service(results):
    """What the page's own tables say, beside what a call that does nothing takes and what the kernel itself lets through."""
    of = results["service"]
    [warm] = [{kind["kind"]: kind["ms"][0] for kind in arm["kinds"]} for arm in of["latencies"] if arm["arm"] == "warm"]
    byte, nothing = warm["StartTask to first output byte"], warm["GetTaskStatus"]
    rows = [["StartTask to its first output byte in a sandbox that stands ready, p50, and beside it GetTaskStatus", "at most 3 ms beside 0.5",
             f"{byte:.2f} ms beside {nothing:.2f}", verdict(byte <= 6 * nothing)]]
    rates = {rate["who"]: rate["per_second"] for rate in of["rates"] if rate["clients"] == 8}
    peer, best = rates.get("crun"), max(rate for who, rate in rates.items() if who != "crun")
    words = "no-op tasks per second over the service, 8 clients, to crun's with 8 launchers"
    if bare := results["together"].get("bare"):
        words += f"; bare C's, the kernel's own limit, are {max(bare.values()):.0f}"
    rows.append([words, "at least 3", f"{best / peer:.2f}" if peer else "-", verdict(best >= 3 * peer) if peer else "did not take part"])
    return rows


def start(results):
    start, labels = results["start"], results["labels"]
    ours, plain = start["taskman"]["p50_ns"], start["plain"]["p50_ns"]
    rows = [[labels[name]["label"], ms(of["p50_ns"]), ms(of["p95_ns"]), ms(of["p99_ns"]), f"{of['p50_ns'] / plain:.1f}",
             f"{ours / of['p50_ns']:.2f}", of["peak_kib"]] for name, of in start.items()]
    lacks = [f"- **{labels[name]['label']}**: {labels[name]['lacks']}." for name in start if name not in ("plain", "taskman")]
    absent = [f"- **{of['name']}**: {of['reason']}." for of in results["absent"]]
    return "\n".join([
        "## One start", "",
        f"Start to exit of a static no-op, milliseconds; {results['rounds']} rounds of all contestants in turn, in a new order each,"
        f" {results['pause_ms']} ms before each start.", "",
        markdown(["contestant", "p50", "p95", "p99", "to plain", "taskman to it", "peak KiB"], rows), "",
        "![one start](benchmarks/start.svg)", "", "What they do not do, of what `taskman run` does in its time:", "", *lacks, "",
        "Not among them:", "", *absent])


def ready(of):
    names = [("plain", "plain vfork+exec"), ("ready", "a sandbox that stands ready"), ("built", "a sandbox that is built for it")]
    rows = [[label, *[f"{of[name][part]:.0f}" for part in ("p50", "p95", "p99")], f"{of[name]['p50'] / of['plain']['p50']:.2f}"]
            for name, label in names]
    return "\n".join([
        "## To the first instruction", "",
        f"From the request in the launcher to the first instruction of a static program, microseconds; {of['rounds']} rounds of all three"
        " in turn, by the library, in one process.", "",
        markdown(["", "p50", "p95", "p99", "to plain"], rows)])


def saturates(rates):
    """The number of launchers after which twice as many bring less than a tenth more."""
    counts = list(rates)
    return next((a for a, b in zip(counts, counts[1:]) if rates[b] < rates[a] * 1.1), counts[-1])


def together(results):
    rates, labels = results["together"], results["labels"]
    counts = list(next(iter(rates.values())))
    rows = [[labels[name]["label"], *[f"{of[n]:.0f}" for n in counts], saturates(of)] for name, of in rates.items()]
    return "\n".join([
        "## Many at once", "",
        f"No-op tasks per second with 1 to {counts[-1]} launchers, each of which starts one, waits for its end, and starts the next;"
        f" bursts of {results['burst_ms']} ms. The last column: from there on, twice the launchers bring less than a tenth more.", "",
        markdown(["contestant", *counts, "enough"], rows), "", "![many at once](benchmarks/together.svg)"])


def service(of):
    rows = [[f"{arm['arm']}: {kind['kind']}", *[f"{value:.2f}" for value in kind["ms"]]]
            for arm in of["latencies"] for kind in arm["kinds"]]
    clients = sorted({rate["clients"] for rate in of["rates"]})
    found = {(rate["who"], rate["clients"]): rate["per_second"] for rate in of["rates"]}
    speeds = [[who, *[f"{found[who, n]:.0f}" if (who, n) in found else "failed" for n in clients]] for who in dict.fromkeys(rate["who"] for rate in of["rates"])]
    return "\n".join([
        "## Over the service", "",
        f"Over mTLS on an open connection, milliseconds; {of['latencies'][0]['starts']} starts of `echo` in each arm, the arms in turn."
        " GetTaskStatus beside them is the price of a call that does nothing.", "",
        markdown(["call", "p50", "p95", "p99"], rows), "",
        "No-op tasks per second, from start to proven end, and crun's with as many launchers in the same seconds:", "",
        markdown(["who", *[f"{n} client{'s' * (n > 1)}" for n in clients]], speeds)])


def live(of):
    bare = lambda level: "-" if level["bare_ms"] is None else f"{level['bare_ms']:.2f}"
    rows = [[level["tasks"], f"{level['p50_ms']:.2f}", f"{level['p95_ms']:.2f}", bare(level), f"{level['kib_per_task']:.1f}",
             f"{level['list_ms']:.1f}", f"{level['end_s']:.2f}", f"{level['starts_per_second']:.0f}"] for level in of["levels"]]
    bound = of["bound"]
    why = [] if not bound else [
        "", f"{bound['wanted']} were asked for. What gave out first: {bound['why']}", f"({bound['warnings']})."]
    return "\n".join([
        "## Live tasks", "",
        "What a start, a list of all and the end of all cost beside so many tasks that sleep, each number on a server of its own: StartTask to the"
        " first output byte (ms); a start of bare C, which shows how much slower the kernel itself is by then (p50, ms); anonymous memory of server, launcher and auditor per task (KiB); all pages of ListTasks (ms); SIGTERM to the"
        " server's exit with all of them alive (s). The last column is how fast eight clients had started them.", "",
        markdown(["live tasks", "p50 ms", "p95 ms", "bare C ms", "KiB per task", "list ms", "end of all s", "starts/s"], rows), *why, "",
        "![latency](benchmarks/live-latency.svg)", "", "![memory](benchmarks/live-memory.svg)"])


def output(of):
    rows = [[one["readers"], f"{one['mib_s_each']:.0f}", f"{one['mib_s_each'] * one['readers']:.0f}",
             f"{one['server_cpu_s_per_gib']:.2f}"] for one in of["readers"]]
    first, last = of["readers"][0], of["readers"][-1]
    whole = lambda one: one["server_cpu_s_per_gib"] * one["readers"]
    further = (whole(last) - whole(first)) / (last["readers"] - first["readers"])
    ages = [[one["when"], *[f"{value:.2f}" for value in one["ms"]]] for one in of["latencies"]]
    return "\n".join([
        "## Output", "",
        f"Readers on a connection each follow one task while it writes {of['mib']} MiB; processor time is that of server and launcher."
        f" A further reader costs them {further:.2f} s for each GiB that is written.", "",
        markdown(["readers", "MiB/s each", "MiB/s all", "cpu s per GiB read"], rows), "", "![readers](benchmarks/readers.svg)", "",
        "From a payload's write of a short line to the client's read of it, milliseconds; the load is two clients that start tasks and four that"
        " follow an output of full speed:", "", markdown(["machine", "p50", "p95", "p99"], ages)])
