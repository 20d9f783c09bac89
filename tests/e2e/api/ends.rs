//! A15 and A18: stops that come too late, too often or together, and signals that reach one process and no other.

use taskman::proto::task_manager as pb;
use tonic::Code;

use crate::support::rpc::{Tasks, connect, ended, on, read, sh, start, whole};
use crate::support::{Process, Server, wait_until};

async fn stop(tasks: &mut Tasks, id: &str) {
    let request = pb::StopTaskRequest { task_id: id.into(), grace: None };
    tasks.stop_task(request).await.unwrap_or_else(|status| panic!("a stop is never an error: {status}"));
}

/// What is final about a status.
fn end_of(status: &pb::TaskStatusResponse) -> (Option<i32>, String, String, Option<prost_types::Timestamp>) {
    (status.exit_code, status.termination_signal.clone(), status.reason.clone(), status.end_time)
}

/// Ends that the server has written to its log for this task.
fn ends_logged(log: &str, id: &str) -> usize {
    log.lines().filter(|line| line.contains("task ended") && line.contains(id)).count()
}

#[test]
fn a15_a_hundred_stops_at_once_and_later_ones_are_one_end() {
    let mut server = Server::start();
    let id = on(async {
        let mut client = connect(&server, "client001").await;
        let script = "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.02; done";
        let id = start(&mut client, sh(script)).await.unwrap();
        let mut stream = client.stream_task_output(whole(&id)).await.unwrap().into_inner();
        assert_eq!(&*stream.message().await.unwrap().unwrap().output, b"ready\n");
        let stops: Vec<_> = (0..100)
            .map(|_| {
                let (mut client, id) = (client.clone(), id.clone());
                tokio::spawn(async move { stop(&mut client, &id).await })
            })
            .collect();
        for stopped in stops {
            stopped.await.unwrap();
        }
        let first = ended(&mut client, &id).await;
        assert_eq!((first.exit_code, &*first.reason), (Some(7), "stopped"), "{first:?}");
        assert_eq!(read(&mut client, whole(&id)).await.unwrap().0, b"ready\nasked\n", "it was asked once");
        for _ in 0..10 {
            stop(&mut client, &id).await;
        }
        assert_eq!(end_of(&ended(&mut client, &id).await), end_of(&first), "a stop after the end changes nothing");
        id
    });
    let log = server.stop().stderr;
    assert_eq!(ends_logged(&log, &id), 1, "{log}");
}

#[test]
fn a15_stops_that_race_the_natural_end_give_one_final_status() {
    let mut server = Server::start();
    let ids = on(async {
        let mut client = connect(&server, "client001").await;
        let (mut ids, mut stopped) = (Vec::new(), 0);
        for trial in 0..40 {
            let id = start(&mut client, sh(&format!("sleep 0.0{:02}; exit 3", trial % 20))).await.unwrap();
            let watcher = {
                let (mut client, id) = (client.clone(), id.clone());
                tokio::spawn(async move { ended(&mut client, &id).await })
            };
            tokio::time::sleep(std::time::Duration::from_millis(trial % 20)).await;
            stop(&mut client, &id).await;
            let seen = watcher.await.unwrap();
            let fact = (seen.exit_code, seen.termination_signal.as_str(), seen.reason.as_str());
            match fact {
                (Some(3), "", "exit") => {}
                // The shell's own exit code can be that of the sleep that was killed with it.
                (_, _, "stopped") => stopped += 1,
                other => panic!("trial {trial}: {other:?}"),
            }
            assert_eq!(end_of(&ended(&mut client, &id).await), end_of(&seen), "trial {trial}");
            ids.push(id);
        }
        println!("of 40 trials the stop came first in {stopped}");
        ids
    });
    let log = server.stop().stderr;
    for id in ids {
        assert_eq!(ends_logged(&log, &id), 1, "{id}");
    }
}

#[test]
fn a15_a_stop_on_the_heels_of_a_start_ends_the_task() {
    let server = Server::start();
    on(async {
        let mut client = connect(&server, "client001").await;
        for _ in 0..20 {
            let id = start(&mut client, sh("exec sleep 1000")).await.unwrap();
            stop(&mut client, &id).await;
            assert_eq!(ended(&mut client, &id).await.reason, "stopped");
        }
    });
}

/// The state letter of a process.
fn state(pid: i32) -> char {
    Process { pid }.status("State").chars().next().unwrap()
}

#[test]
fn a18_a_signal_reaches_the_main_process_of_that_task_alone() {
    let server = Server::start();
    on(async {
        let mut client = connect(&server, "client001").await;
        let script = "trap 'echo usr1' USR1; trap 'echo cont' CONT; echo ready; while :; do sleep 0.02; done";
        let mut ids = Vec::new();
        for _ in 0..2 {
            let id = start(&mut client, sh(script)).await.unwrap();
            let mut stream = client.stream_task_output(whole(&id)).await.unwrap().into_inner();
            assert_eq!(&*stream.message().await.unwrap().unwrap().output, b"ready\n");
            ids.push((id, stream));
        }
        let pid = |status: pb::TaskStatusResponse| status.process_id;
        let mut pids = Vec::new();
        for (id, _) in &ids {
            let request = pb::TaskStatusRequest { task_id: id.clone() };
            pids.push(pid(client.get_task_status(request).await.unwrap().into_inner()));
        }
        let [(target, mut output), (sibling, _)] = <[_; 2]>::try_from(ids).ok().unwrap();
        let signal = async |client: &mut Tasks, signal: &str| {
            let request = pb::SignalTaskRequest { task_id: target.clone(), signal: signal.into() };
            client.signal_task(request).await.unwrap();
        };
        signal(&mut client, "USR1").await;
        assert_eq!(&*output.message().await.unwrap().unwrap().output, b"usr1\n");
        signal(&mut client, "SIGSTOP").await;
        wait_until("the host says that it is stopped", || (state(pids[0]) == 'T').then_some(()));
        assert_ne!(state(pids[1]), 'T', "the sibling is not");
        signal(&mut client, "CONT").await;
        assert_eq!(&*output.message().await.unwrap().unwrap().output, b"cont\n");
        assert_ne!(state(pids[0]), 'T');
        signal(&mut client, "9").await;
        let end = ended(&mut client, &target).await;
        assert_eq!((&*end.termination_signal, &*end.reason), ("SIGKILL", "signal"), "{end:?}");
        let late = pb::SignalTaskRequest { task_id: target.clone(), signal: "KILL".into() };
        assert_eq!(client.signal_task(late).await.unwrap_err().code(), Code::FailedPrecondition);
        let request = pb::StreamTaskOutputRequest { follow: Some(false), ..whole(&sibling) };
        assert_eq!(read(&mut client, request).await.unwrap().0, b"ready\n", "the sibling heard nothing");
        let status = client.get_task_status(pb::TaskStatusRequest { task_id: sibling }).await.unwrap().into_inner();
        assert_eq!((status.status(), status.process_id), (pb::JobStatus::Started, pids[1]));
    });
}
