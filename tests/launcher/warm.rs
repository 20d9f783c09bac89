//! Sandboxes that stand ready, and a server that takes them as it likes: what it gets is what the launcher would have built.

use taskman::task::id::TaskId;
use taskman::wire::Event;

use crate::stage::{Case, Client, play, read_all};

pub fn cases() -> Vec<Case> {
    vec![
        ("a_ready_sandbox_is_not_had_for_another_shape", a_ready_sandbox_is_not_had_for_another_shape),
        ("a_ready_sandbox_raises_no_limit_and_is_had_once", a_ready_sandbox_raises_no_limit_and_is_had_once),
    ]
}

/// The id of a sandbox that stands ready, for tasks like the first one.
fn parked(client: &mut Client) -> TaskId {
    client.wait_for(|event| if let Event::Parked(parked) = event { Some(parked.slot) } else { None }).0
}

const MEMORY: [&str; 3] = ["sh", "-c", "grep MemTotal /proc/meminfo"];

fn a_ready_sandbox_is_not_had_for_another_shape() {
    let played = play(|client| {
        client.start_sleeper("true");
        let slot = parked(client);
        client.start(&MEMORY, |request| (request.task, request.limits.memory_bytes) = (slot, 64 << 20));
        let (started, outputs) = client.started(slot);
        assert!(!started.warm, "it was built for it");
        let text = read_all(&outputs[0]);
        assert!(text.contains(" 65536 kB"), "{text}");
        client.ended(slot);
    });
    played.assert_all_dead();
}

fn a_ready_sandbox_raises_no_limit_and_is_had_once() {
    let played = play(|client| {
        client.start_sleeper("true");
        let slot = parked(client);
        client.start(&MEMORY, |request| (request.task, request.limits.memory_bytes) = (slot, 1 << 40));
        assert!(client.refusal(slot).to_string().contains("memory"));
        client.while_it_stands(|client| {
            client.start(&MEMORY, |request| request.task = slot);
            client.start(&MEMORY, |request| request.task = slot);
        });
        let is_second = |event: &Event| matches!(event, Event::StartFailed { task, .. } if *task == slot).then_some(());
        client.wait_for(is_second);
        let (started, outputs) = client.started(slot);
        assert!(started.warm, "the refusal has not cost it");
        assert!(read_all(&outputs[0]).contains(" 524288 kB"));
        client.ended(slot);
    });
    played.assert_all_dead();
}
