"""A machine that is busy and stalls: for each CPU a real-time process that takes it for up to 0.4 s, about half of the time, and
every twenty seconds, all together, for a whole one."""

import contextlib
import ctypes
import os
import random
import signal
import sys
import time

# A load that nobody ends ends by itself.
LONGEST = 4 * 3600


class Load:
    none = contextlib.nullcontext

    def __enter__(self):
        self.pids = [self.stall(cpu) for cpu in sorted(os.sched_getaffinity(0))]

    def __exit__(self, *_):
        for pid in self.pids:
            # One that has ended by itself was no load.
            if os.waitpid(pid, os.WNOHANG)[0]:
                sys.exit("test: error: the load ended early; real-time scheduling needs CAP_SYS_NICE, and no RT cgroup without a budget")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    @staticmethod
    def stall(cpu):
        pid = os.fork()
        if pid:
            return pid
        try:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            os.sched_setaffinity(0, {cpu})
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            end = time.monotonic() + LONGEST
            while time.monotonic() < end:
                # Most stalls are short, as on real machines; the sum is a half.
                length = 1.0 if time.time() % 20 < 1 else 0.4 * random.random() ** 4 + 0.0005
                until = time.monotonic() + length
                while time.monotonic() < until:
                    pass
                time.sleep(length)
        finally:
            os._exit(1)
