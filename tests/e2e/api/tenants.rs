//! A19: what one tenant takes too much of is refused to that tenant, and to nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use taskman::proto::task_manager as pb;
use tonic::Code;

use crate::support::Server;
use crate::support::rpc::{channel, connect, ended, identity, on, read, sh, start, whole};

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

/// Opens what lasts until the limit, and gives it back; another tenant is served meanwhile.
macro_rules! lasting {
    ($server:expr, $open:expr) => {{
        let mut open = Vec::new();
        for _ in 0..10 {
            open.push($open.await.expect("below the limit"));
        }
        let refused = $open.await.map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        connect($server, "admin").await.list_tasks(pb::ListTasksRequest::default()).await.expect("others are served");
        drop(open);
        let deadline = Instant::now() + Duration::from_secs(20);
        while $open.await.is_err() {
            assert!(Instant::now() < deadline, "the places are not given back");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }};
}

/// M2 of the review: each watch held 6.5 kB, and nobody counted them.
#[test]
fn a19_watches_of_health_are_counted_as_streams() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    let server = Server::configured(CONFIG);
    on(async {
        let health =
            HealthClient::new(channel(&server, identity(&server.certs(), "client001"), 1 << 20).await.unwrap());
        let watch = || {
            let mut health = health.clone();
            async move { health.watch(HealthCheckRequest::default()).await }
        };
        lasting!(&server, watch());
    });
}

#[test]
fn a19_reflection_is_counted_as_streams() {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    let server = Server::configured(CONFIG);
    on(async {
        let channel = channel(&server, identity(&server.certs(), "client001"), 1 << 20).await.unwrap();
        // A call is over when its request is.
        let ask = async || {
            let (request, requests) = tokio::sync::mpsc::channel(1);
            let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
            let answer = ServerReflectionClient::new(channel.clone()).server_reflection_info(requests).await;
            answer.map(|answer| (answer, request))
        };
        lasting!(&server, ask());
    });
}

/// A wait is answered when its task ends, so what is open here are calls.
#[test]
fn a19_waits_are_counted_as_streams() {
    let server = Server::configured(CONFIG);
    on(async {
        let mut client = connect(&server, "client001").await;
        let id = start(&mut client, sh("exec sleep 1000")).await.unwrap();
        let wait = |timeout: Option<i64>| {
            let (mut client, task_id) = (client.clone(), id.clone());
            let timeout = timeout.map(|seconds| prost_types::Duration { seconds, nanos: 0 });
            async move { client.wait_task(pb::WaitTaskRequest { task_id, timeout }).await }
        };
        let mut open = tokio::task::JoinSet::new();
        for _ in 0..20 {
            open.spawn(wait(None));
        }
        for _ in 0..10 {
            let refused = open.join_next().await.unwrap().unwrap().map(drop).unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        }
        assert_eq!(open.len(), 10);
        drop(open);
        let deadline = Instant::now() + Duration::from_secs(20);
        while wait(Some(0)).await.is_err() {
            assert!(Instant::now() < deadline, "the places are not given back");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}
