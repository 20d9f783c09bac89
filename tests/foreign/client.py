"""Drives a taskman-server with code generated from the source design's proto text, and prints what it saw as JSON.

usage: client.py PROTO GENERATED_DIR ADDRESS CERTS_DIR USER
"""

import json
import os
import sys

import grpc
from grpc_tools import protoc

proto, generated, address, certs, user = sys.argv[1:]
well_known = os.path.join(os.path.dirname(protoc.__file__), "_proto")
code = protoc.main(
    ["protoc", f"-I{os.path.dirname(proto)}", f"-I{well_known}", f"--python_out={generated}", f"--grpc_python_out={generated}", proto]
)
assert code == 0, f"protoc: {code}"
sys.path.insert(0, generated)
import source_design_pb2 as messages  # noqa: E402
import source_design_pb2_grpc as service  # noqa: E402

TIMEOUT = 30


def read(name):
    with open(os.path.join(certs, name), "rb") as file:
        return file.read()


def status(tasks, task_id):
    answer = tasks.GetTaskStatus(messages.TaskStatusRequest(task_id=task_id), timeout=TIMEOUT)
    assert answer.task_id == task_id and answer.process_id > 0 and answer.HasField("start_time")
    return answer


def shape(answer):
    return {
        "status": messages.JobStatus.Name(answer.status),
        "exit_code": answer.exit_code if answer.HasField("exit_code") else None,
        "signal": answer.termination_signal,
        "has_end": answer.HasField("end_time"),
    }


def start(tasks, command, *args):
    return tasks.StartTask(messages.StartTaskRequest(command=command, args=args), timeout=TIMEOUT).task_id


def stream(tasks, task_id):
    return tasks.StreamTaskOutput(messages.StreamTaskOutputRequest(task_id=task_id), timeout=TIMEOUT)


def refusal(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


seen = {}
credentials = grpc.ssl_channel_credentials(read("ca.crt"), read(f"{user}.key"), read(f"{user}.crt"))
with grpc.secure_channel(address, credentials) as channel:
    tasks = service.TaskManagerStub(channel)

    task_id = start(tasks, "sh", "-c", "echo hello; echo world >&2; exit 3")
    # The stream ends with the output; the record is final a moment later.
    seen["output"] = b"".join(message.output for message in stream(tasks, task_id)).decode()
    answer = status(tasks, task_id)
    while answer.status == messages.JOB_STATUS_STARTED:
        answer = status(tasks, task_id)
    seen["ended"] = shape(answer)

    task_id = start(tasks, "sh", "-c", "echo ready; exec sleep 1000")
    live = stream(tasks, task_id)
    first = next(live).output
    seen["running"] = shape(status(tasks, task_id))
    tasks.StopTask(messages.StopTaskRequest(task_id=task_id), timeout=TIMEOUT)
    seen["live"] = (first + b"".join(message.output for message in live)).decode()
    answer = status(tasks, task_id)
    while answer.status == messages.JOB_STATUS_STARTED:
        answer = status(tasks, task_id)
    seen["stopped"] = shape(answer)
    seen["stopped_source"] = answer.termination_source

    unknown = "00000000-0000-4000-8000-000000000000"
    seen["unknown"] = refusal(lambda: status(tasks, unknown))
    seen["no_command"] = refusal(lambda: start(tasks, "/no/such/command"))

with grpc.secure_channel(address, grpc.ssl_channel_credentials(read("ca.crt"))) as channel:
    seen["without_certificate"] = refusal(lambda: start(service.TaskManagerStub(channel), "true"))

print(json.dumps(seen))
