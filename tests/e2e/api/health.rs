//! What a machine asks a server: is it well, what does it offer, and does it let go when it is told to.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use taskman::proto::task_manager as pb;
use tokio_stream::StreamExt;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::rpc::{channel, connect, identity, on, sh, spoken, start, whole};
use crate::support::{Server, wait_until};

const SERVICE: &str = "task_manager.TaskManager";

#[test]
fn health_says_not_serving_while_the_server_drains() {
    let mut server = Server::start();
    on(async {
        let channel = channel(&server, identity(&server.certs(), "client001"), 1 << 20).await.unwrap();
        let mut health = HealthClient::new(channel);
        let mut client = connect(&server, "client001").await;
        // It takes its time to end, and so does the server.
        let slow = sh("trap 'sleep 5; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
        let task = start(&mut client, slow).await.unwrap();
        spoken(&mut client, &task).await;
        let ask = |service: &str| HealthCheckRequest { service: service.into() };
        for service in ["", SERVICE] {
            let answer = health.check(ask(service)).await.unwrap().into_inner();
            assert_eq!(answer.status(), ServingStatus::Serving, "{service:?}");
        }
        assert_eq!(health.check(ask("no.such")).await.unwrap_err().code(), Code::NotFound);
        let mut news = health.watch(ask(SERVICE)).await.unwrap().into_inner();
        assert_eq!(news.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
        server.signal(Signal::SIGTERM);
        assert_eq!(news.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        assert_eq!(health.check(ask("")).await.unwrap().into_inner().status(), ServingStatus::NotServing);
        let refused = start(&mut client, sh("true")).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    });
    let ended = server.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

/// Asks for the list of services in one version of the protocol.
macro_rules! services {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
        use tonic_reflection::pb::$version::{ServerReflectionRequest, ServiceResponse};
        let ask = |request| ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        let requests = vec![
            ask(MessageRequest::ListServices(String::new())),
            ask(MessageRequest::FileContainingSymbol(SERVICE.into())),
        ];
        let mut client = ServerReflectionClient::new($channel);
        let answers = client.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
        let answers: Vec<_> = answers.map(|answer| answer.unwrap().message_response.unwrap()).collect().await;
        let names = match &answers[0] {
            MessageResponse::ListServicesResponse(list) => {
                list.service.iter().map(|ServiceResponse { name }| name.clone()).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert!(matches!(&answers[1], MessageResponse::FileDescriptorResponse(file) if !file.file_descriptor_proto.is_empty()));
        // It would be repeated twice, and held for a client that does not read it.
        let long = ServerReflectionRequest { host: "x".repeat(8 << 10), ..ask(MessageRequest::ListServices(String::new())) };
        let mut refused = client.server_reflection_info(tokio_stream::iter([long])).await.unwrap().into_inner();
        assert!(!matches!(refused.next().await, Some(Ok(_))), "a name of 8 KiB");
        names
    }};
}

#[test]
fn reflection_lists_the_services_in_both_versions() {
    let server = Server::start();
    on(async {
        let channel = channel(&server, identity(&server.certs(), "client001"), 1 << 20).await.unwrap();
        for names in [services!(v1, channel.clone()), services!(v1alpha, channel.clone())] {
            for wanted in [SERVICE, "task_manager.Containment", "grpc.health.v1.Health"] {
                assert!(names.iter().any(|name| name == wanted), "{names:?}");
            }
        }
    });
}

#[test]
fn a_deadline_ends_a_call_and_nothing_of_it_is_kept() {
    let server = Server::start();
    on(async {
        let mut client = connect(&server, "client001").await;
        let id = start(&mut client, sh("sleep 1000")).await.unwrap();
        let before = server.half().list("fd").len();
        let begun = Instant::now();
        let waits: Vec<_> = (0..100)
            .map(|_| {
                let mut client = client.clone();
                let mut wait = Request::new(pb::WaitTaskRequest { task_id: id.clone(), timeout: None });
                wait.set_timeout(Duration::from_millis(200));
                tokio::spawn(async move { client.wait_task(wait).await.unwrap_err().code() })
            })
            .collect();
        for wait in waits {
            let code = wait.await.unwrap();
            assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&code), "{code:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?} for a deadline of 200 ms", begun.elapsed());
        // The server's own clock ends them too: one line each in the audit log, although nobody was answered.
        wait_until("the calls are over on the server", || (waits_of(&server) == 100).then_some(()));
        let mut stream = client.stream_task_output(whole(&id)).await.unwrap().into_inner();
        tokio::time::timeout(Duration::from_millis(50), stream.message()).await.expect_err("there is no output");
        drop(stream);
        assert!(server.half().list("fd").len() <= before + 1);
        let status = client.get_task_status(pb::TaskStatusRequest { task_id: id }).await.unwrap().into_inner();
        assert_eq!(status.status(), pb::JobStatus::Started, "a wait that was given up does not touch the task");
    });
}

fn waits_of(server: &Server) -> usize {
    server.audit().iter().filter(|line| line.contains("\"verb\":\"wait\"") && line.contains("Cancelled")).count()
}
