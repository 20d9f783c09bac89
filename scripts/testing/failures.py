"""What failed, in the words of the test that did, and the command that runs it alone."""

import re
import subprocess
import time

SECTION = re.compile(r"^---- (.+?)(?: stdout)? ----$")


def lines(log):
    with open(log, errors="replace") as file:
        return file.read().splitlines()


def tests(log):
    """The names of the tests that failed: by the line of each, and, where the test's own words broke that line, by the list at the end."""
    names, listed = set(), False
    for line in lines(log):
        ended = re.match(r"^test (.+?) \.\.\. FAILED", line)
        listed = line == "failures:" or listed and line.startswith("    ")
        if ended:
            names.add(ended[1])
        elif listed and line != "failures:":
            names.add(line)
    # A case of the adversarial suite begins with its id.
    return sorted({name.split()[0] for name in names})


def said(log, test, most=6):
    """What this test said first."""
    words, inside = [], False
    for line in lines(log):
        section = SECTION.match(line)
        if section:
            inside = section[1].split(" ")[0] == test
        elif line.startswith("test result:") or line == "failures:":
            inside = False
        elif inside and line.strip():
            words.append(line[:300])
    return words[:most]


def report(run):
    """Last of all on the screen: who looks at a long log looks at its end."""
    name, text = run.stage.name, []
    for test in tests(run.log):
        text.append(f"\n{name}::{test}")
        text += [f"    {line}" for line in said(run.log, test)]
        text.append(f"  alone: scripts/test {name}::{test}")
    if not text and run.process.returncode == 0:
        text = [f"\n{name}: no test matches {run.only!r}"]
    if not text:
        text = [f"\n{name}"] + [f"    {line[:300]}" for line in lines(run.log)[-12:]] + [f"  alone: scripts/test {name}"]
    return "\n".join(text + [f"  whole output: {run.log}"])


def record_deep_run(table, seconds):
    """The last deep run, for the tree: commit it."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False).stdout.strip()
    page = f"# The last deep run\n\n`scripts/test --deep` wrote this; CONTRIBUTING.md says when one is due.\n\n- date: {time.strftime('%Y-%m-%d')}\n"
    page += f"- commit: {commit}\n- in all: {seconds:.0f} s\n\n```\n" + "\n".join(table) + "\n```\n"
    with open("tests/deep-run.md", "w") as file:
        file.write(page)
