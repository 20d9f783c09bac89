//! A19: what one tenant takes too much of is refused to that tenant, and to nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use taskman::proto::task_manager as pb;
use tonic::Code;

use crate::support::Server;
use crate::support::rpc::{connect, ended, on, read, sh, start, whole};

const CONFIG: &str = "[quota]\nrunning_per_user = 5\nrequests_per_second = 50\nburst = 100\nstreams_per_user = 10\n";

#[derive(Default)]
struct Flood {
    over: AtomicBool,
    served: AtomicUsize,
    refused: AtomicUsize,
}

#[test]
fn a19_a_flood_of_one_tenant_is_refused_and_the_others_are_served() {
    let server = Server::configured(CONFIG);
    on(async {
        let mut other = connect(&server, "admin").await;
        let flooder = connect(&server, "client001").await;
        let flood = Arc::new(Flood::default());
        let floods: Vec<_> = (0..12)
            .map(|n| {
                let (mut client, flood) = (flooder.clone(), Arc::clone(&flood));
                tokio::spawn(async move {
                    while !flood.over.load(Ordering::Relaxed) {
                        let answer = match n % 2 {
                            0 => client.list_tasks(pb::ListTasksRequest::default()).await.map(drop),
                            _ => start(&mut client, sh("exec sleep 1000")).await.map(drop),
                        };
                        match answer.map_err(|status| status.code()) {
                            Ok(()) => flood.served.fetch_add(1, Ordering::Relaxed),
                            Err(Code::ResourceExhausted) => flood.refused.fetch_add(1, Ordering::Relaxed),
                            Err(other) => panic!("{other:?}"),
                        };
                    }
                })
            })
            .collect();
        let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
        let mut whole_tasks = 0;
        while begun.elapsed() < Duration::from_secs(4) {
            let one = Instant::now();
            let id = start(&mut other, sh("echo well")).await.expect("the other tenant starts tasks");
            assert_eq!(read(&mut other, whole(&id)).await.expect("and reads them").0, b"well\n");
            assert_eq!(ended(&mut other, &id).await.exit_code, Some(0));
            slowest = slowest.max(one.elapsed());
            whole_tasks += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        flood.over.store(true, Ordering::Relaxed);
        for task in floods {
            task.await.unwrap();
        }
        let (served, refused) = (flood.served.load(Ordering::Relaxed), flood.refused.load(Ordering::Relaxed));
        let took = begun.elapsed();
        println!(
            "{served} served and {refused} refused in {took:?}; {whole_tasks} tasks of the other, slowest {slowest:?}"
        );
        assert!(refused > 0 && served as f64 <= 100.0 + 50.0 * (took.as_secs_f64() + 1.0), "{served} {refused}");
        assert!(slowest < Duration::from_secs(10), "the other tenant waited {slowest:?}");
        let request = pb::ListTasksRequest { owner: "client001".into(), ..Default::default() };
        assert_eq!(other.list_tasks(request).await.unwrap().into_inner().tasks.len(), 5, "its quota, and no more");
    });
}

#[test]
fn a19_streams_are_counted_and_given_back() {
    let server = Server::configured(CONFIG);
    on(async {
        let (mut client, mut other) = (connect(&server, "client001").await, connect(&server, "admin").await);
        let id = start(&mut client, sh("echo x; exec sleep 1000")).await.unwrap();
        let mut open = Vec::new();
        for _ in 0..10 {
            open.push(client.stream_task_output(whole(&id)).await.unwrap());
        }
        let refused = client.stream_task_output(whole(&id)).await.map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        let theirs = other.stream_task_output(whole(&id)).await.unwrap().into_inner().message().await.unwrap().unwrap();
        assert_eq!(&*theirs.output, b"x\n", "another tenant's streams are their own");
        open.clear();
        let deadline = Instant::now() + Duration::from_secs(20);
        while client.stream_task_output(whole(&id)).await.is_err() {
            assert!(Instant::now() < deadline, "the places are not given back");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}
