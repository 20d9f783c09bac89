"""A stage that runs: its process, its log, how far it is and how it ended."""

import os
import re
import signal
import subprocess
import time
from atexit import register

# As libtest and libtest-mimic print it; the latter says what it is about to do, too.
ENDED = re.compile(rb"^test (.+?) \.\.\. (ok|FAILED|ignored)", re.M)
RESULT = re.compile(rb"^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
SKIPPED = re.compile(rb"^(\S+) .* SKIPPED ", re.M)
# The benchmark fails nothing; what it found is said all the same.
RATIOS = re.compile(rb"^(regression: .+|\d+ ratios compared .+)$", re.M)
# What a stage could be led astray by, when the one who calls scripts/test has it set.
OURS = ("TASKMAN_", "UPDATE_")
TOTAL = re.compile(rb"^running (\d+) tests?", re.M)


class Running:
    def __init__(self, stage, only, deep, lane):
        self.stage, self.only, self.lane = stage, only, lane
        self.log = "target/test/" + stage.name + re.sub(r"[^\w.-]+", ".", f"::{only}" if only else "") + ".log"
        self.usual = stage.usual_deep if deep and stage.usual_deep else stage.usual
        env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        env |= {"DEEP": str(int(deep))} | stage.environment(deep)
        command = ["bash", "scripts/testing/stages.sh", stage.name] + ([only] if only else [])
        self.begun, self.seconds, self.passed = time.monotonic(), 0.0, False
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        register(self.end)
        print(f"=== {stage.name}: {stage.what} (about {self.usual} s)", flush=True)

    def end(self):
        """Ends what is left of it, when scripts/test itself ends early."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait()

    def ended(self):
        if self.process.poll() is None:
            return False
        self.seconds = time.monotonic() - self.begun
        # A filter that matches nothing has shown nothing.
        self.passed = self.process.returncode == 0 and (not self.stage.tests or self.counts()[0] > 0)
        return True

    def output(self):
        with open(self.log, "rb") as log:
            return log.read()

    def counts(self):
        """Tests that passed, failed and were skipped."""
        counts = RESULT.findall(self.output())
        return [sum(int(count[at]) for count in counts) for at in range(3)]

    def progress(self):
        output = self.output()
        ended, total = ENDED.findall(output), sum(int(n) for n in TOTAL.findall(output))
        words = output.rstrip().rpartition(b"\n")[2].decode(errors="replace").removeprefix("test ")
        count = f" {len(ended)}/{total}" if total else ""
        return f"{self.stage.name}{count}, {time.monotonic() - self.begun:.0f} of {self.usual} s: {words[:50]}"

    def summary(self):
        passed, failed, _ = self.counts()
        counted = f"{passed} passed" if self.stage.tests else ""
        if failed:
            counted += f", {failed} failed"
        skipped = [name.decode() for name in SKIPPED.findall(self.output())]
        if skipped:
            counted += f", skipped: {' '.join(skipped)}"
        ratios = "".join(f"\n{'':<21}{line.decode()}" for line in RATIOS.findall(self.output()))
        return f"{'ok' if self.passed else 'FAILED':<7} {counted}".rstrip() + ratios

    def verdict(self):
        return f"--- {self.stage.name:<12} {self.seconds:>5.0f} s  {self.summary()}"
