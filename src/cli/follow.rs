//! Output on its way from the server to this terminal, for `stream` and `start --follow`.

use std::io::ErrorKind;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::connection::{Connection, Failure, Patience, tell};
use super::sink::Sink;
use crate::client::{Begin, Output, OutputRequest, OutputSource, Places, StreamEnd};
use crate::task::id::TaskId;

/// What a shell gives for a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 128 + 2;

/// Ctrl-C, from now on read instead of obeyed.
pub struct Interrupt(Signal);

impl Interrupt {
    /// Must be called inside the runtime.
    pub fn catch() -> Result<Self, Failure> {
        signal(SignalKind::interrupt()).map(Self).map_err(|error| Failure::Local("cannot catch Ctrl-C", error))
    }

    /// Until it is pressed.
    pub async fn pressed(&mut self) {
        self.0.recv().await;
    }
}

/// How following ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// With the output.
    Ended(StreamEnd),
    /// By Ctrl-C.
    Interrupted,
    /// Nobody reads this process's output any more.
    Unread,
}

/// Output being followed.
pub struct Follower {
    output: Output,
    stdout: Sink,
    stderr: Sink,
    /// How far it was written, which is where the next one goes on.
    pub written: Places,
    /// Bytes that are not stored.
    pub omitted: u64,
}

impl Follower {
    /// Writes to these.
    pub fn new(output: Output, stdout: Sink, stderr: Sink) -> Self {
        Self { output, stdout, stderr, written: Places::default(), omitted: 0 }
    }

    /// Until the output ends, Ctrl-C is pressed, or nobody reads any more.
    pub async fn follow(&mut self, interrupt: &mut Interrupt) -> Result<Followed, Failure> {
        tokio::select! {
            biased;
            () = interrupt.pressed() => Ok(Followed::Interrupted),
            result = self.copy() => result,
        }
    }

    async fn copy(&mut self) -> Result<Followed, Failure> {
        let mut end = StreamEnd::Unspecified;
        let mut patience = Patience::default();
        loop {
            let chunk = match self.output.next().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(Followed::Ended(end)),
                Err(error) => {
                    patience.after(error).await?;
                    self.resume(&mut patience).await?;
                    continue;
                }
            };
            patience = Patience::default();
            if chunk.omitted > 0 {
                self.omitted += chunk.omitted;
                tell(&format!("{} bytes omitted", chunk.omitted));
            }
            if !chunk.bytes.is_empty() {
                let sink = if chunk.source == OutputSource::Stderr { &mut self.stderr } else { &mut self.stdout };
                let place = self.written.of(chunk.source).insert(chunk.offset);
                match sink.write(&chunk.bytes, place).await {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Followed::Unread),
                    Err(error) => return Err(Failure::Local("standard output", error)),
                }
            }
            if chunk.end == StreamEnd::ClosedBySupervisor {
                tell("output was closed by the server: a process that was killed still held it open");
            }
            if chunk.end != StreamEnd::Unspecified {
                end = chunk.end;
            }
        }
    }

    async fn resume(&mut self, patience: &mut Patience) -> Result<(), Failure> {
        while let Err(error) = self.output.resume().await {
            patience.after(error).await?;
        }
        Ok(())
    }
}

/// The commands that go on with the output where it stopped.
pub fn resume_commands(connection: &Connection, request: &OutputRequest, written: &Places) -> Vec<String> {
    let command = |source: OutputSource, place: Option<u64>| {
        let which = match source {
            OutputSource::All => "",
            OutputSource::Stdout => " --stdout",
            OutputSource::Stderr => " --stderr",
        };
        let begin = match (place, request.begin) {
            (Some(place), _) | (None, Begin::Offset(place)) => format!("--offset {place}"),
            (None, Begin::Tail(bytes)) => format!("--tail {bytes}"),
        };
        format!("taskman stream {}{}{which} {begin}", request.task, connection.flags())
    };
    match (request.source, written) {
        // The places of a split task's two streams differ: one command each.
        (OutputSource::All, Places { stdout, stderr, .. }) if stdout.is_some() || stderr.is_some() => {
            vec![command(OutputSource::Stdout, *stdout), command(OutputSource::Stderr, *stderr)]
        }
        (source, Places { all, stdout, stderr }) => vec![command(source, all.or(*stdout).or(*stderr))],
    }
}

/// The command that stops a task.
pub fn stop_command(connection: &Connection, task: TaskId) -> String {
    format!("taskman stop {task}{}", connection.flags())
}

/// What is said after Ctrl-C.
pub fn farewell(connection: &Connection, request: &OutputRequest, written: &Places, stop: bool) -> Vec<String> {
    let mut lines = vec![format!("interrupted; this does not stop task {}", request.task)];
    let resume = resume_commands(connection, request, written);
    lines.extend(resume.iter().map(|command| format!("to go on with its output: {command}")));
    if stop {
        lines.push(format!("to stop it: {}", stop_command(connection, request.task)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::client::testing::{Fake, Say, TASK};

    fn connection(flags: &[&str]) -> Connection {
        let command = Connection::augment_args(clap::Command::new("x"));
        let words = ["x", "--user-id", "bob"].iter().chain(flags);
        Connection::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    fn request() -> OutputRequest {
        OutputRequest::all(TASK.parse().unwrap())
    }

    #[test]
    fn control_c_prints_the_commands_that_go_on_and_stop() {
        let connection = connection(&["--server-address", "h:1", "--certs", "my certs"]);
        let flags = "--user-id bob --server-address h:1 --certs 'my certs'";
        let places = Places { all: Some(12), ..Places::default() };
        let lines = farewell(&connection, &request(), &places, true);
        let wanted = [
            format!("interrupted; this does not stop task {TASK}"),
            format!("to go on with its output: taskman stream {TASK} {flags} --offset 12"),
            format!("to stop it: taskman stop {TASK} {flags}"),
        ];
        assert_eq!(lines, wanted);
        assert_eq!(farewell(&connection, &request(), &places, false), wanted[..2]);
    }

    #[test]
    fn a_split_task_goes_on_with_both_streams_and_a_tail_with_what_was_asked() {
        let connection = connection(&[]);
        let split = Places { stdout: Some(3), ..Places::default() };
        let wanted = [
            format!("taskman stream {TASK} --user-id bob --stdout --offset 3"),
            format!("taskman stream {TASK} --user-id bob --stderr --offset 0"),
        ];
        assert_eq!(resume_commands(&connection, &request(), &split), wanted);
        let tail = OutputRequest { begin: Begin::Tail(100), source: OutputSource::Stderr, ..request() };
        let wanted = [format!("taskman stream {TASK} --user-id bob --stderr --tail 100")];
        assert_eq!(resume_commands(&connection, &tail, &Places::default()), wanted);
    }

    #[tokio::test]
    async fn bytes_arrive_once_and_in_order_over_a_broken_connection() {
        let fake = Fake::default();
        let (out, err) = (OutputSource::All, OutputSource::Stderr);
        *fake.streams.lock().unwrap() = vec![
            vec![Say::Bytes(out, 0, b"a\0\xff".to_vec()), Say::Omitted(7), Say::Cut],
            vec![Say::Fail(tonic::Status::unavailable("starting"))],
            vec![Say::Bytes(out, 10, b"end".to_vec()), Say::End(StreamEnd::ClosedBySupervisor)],
        ];
        let output = fake.client().await.stream(request()).await.unwrap();
        let (mut seen, stdout) = std::io::pipe().unwrap();
        let sink = |pipe: &std::io::PipeWriter| Sink::new(pipe.as_fd()).unwrap();
        let mut follower = Follower::new(output, sink(&stdout), sink(&stdout));
        let followed = follower.copy().await.unwrap();
        assert_eq!(followed, Followed::Ended(StreamEnd::ClosedBySupervisor));
        assert_eq!((follower.omitted, follower.written.all, *follower.written.of(err)), (7, Some(13), None));
        drop((follower, stdout));
        let mut bytes = Vec::new();
        seen.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"a\0\xffend");
    }

    #[tokio::test]
    async fn a_closed_standard_output_ends_it_quietly() {
        let fake = Fake::default();
        *fake.streams.lock().unwrap() = vec![vec![Say::Bytes(OutputSource::All, 0, b"a".to_vec()), Say::Hang]];
        let output = fake.client().await.stream(request()).await.unwrap();
        let (reader, stdout) = std::io::pipe().unwrap();
        drop(reader);
        crate::sys::fd::wait_hung_up(&stdout);
        let sink = || Sink::new(stdout.as_fd()).unwrap();
        assert_eq!(Follower::new(output, sink(), sink()).copy().await.unwrap(), Followed::Unread);
    }
}
