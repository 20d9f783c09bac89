//! Tables for people, laid out as the source design shows them: columns two spaces apart, a line of dashes under each title.

use prost_types::Timestamp;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

use crate::client::{JobStatus, TaskStatusResponse, Usage, one_line};
use crate::task::units::human_bytes;

/// Longer command lines are cut, so that a task stays on one line of a terminal.
const LONGEST_COMMAND: usize = 60;

/// A table; the last column is not padded.
pub fn table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    let dashes = titles.map(|title| "-".repeat(title.len()));
    let titles = titles.map(str::to_owned);
    let lines: Vec<&[String; N]> = [&titles, &dashes].into_iter().chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// What `get-status` shows.
pub fn status(task: &TaskStatusResponse) -> String {
    table(
        ["TASK ID", "START TIME", "PID", "STATUS", "EXIT CODE", "SIGNAL", "SOURCE", "END TIME"],
        &[[
            or_dash(&task.task_id),
            time(task.start_time.as_ref()),
            or_dash(&Some(task.process_id).filter(|pid| *pid != 0).map(|pid| pid.to_string()).unwrap_or_default()),
            task.status().as_str_name().to_owned(),
            exit_code(task),
            or_dash(&task.termination_signal),
            or_dash(&task.termination_source),
            time(task.end_time.as_ref()),
        ]],
    )
}

/// What `get-status` shows below that: why it ended, what it used, and whether anything of it is left.
pub fn account(task: &TaskStatusResponse) -> String {
    let used = |show: fn(&Usage) -> String| task.usage.as_ref().map_or_else(|| "-".to_owned(), show);
    let verdict = task.containment.as_ref().map(|containment| containment.verdict.as_str()).unwrap_or_default();
    table(
        ["REASON", "WALL", "CPU", "MEMORY", "PIDS", "OUTPUT", "CONTAINMENT", "DETAIL"],
        &[[
            reason(task),
            used(|usage| seconds(usage.wall_ms)),
            used(|usage| seconds(usage.cpu_user_ms + usage.cpu_system_ms)),
            used(|usage| human_bytes(usage.memory_peak_bytes)),
            used(|usage| usage.pids_peak.to_string()),
            human_bytes(task.output_bytes),
            or_dash(verdict),
            or_dash(&task.detail),
        ]],
    )
}

fn seconds(milliseconds: u64) -> String {
    format!("{:.2}s", milliseconds as f64 / 1e3)
}

fn reason(task: &TaskStatusResponse) -> String {
    or_dash(if task.status() == JobStatus::Started && task.ending { "ending" } else { &task.reason })
}

/// A status for people.
pub fn word(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Started => "running",
        JobStatus::ExitedOk => "exited",
        JobStatus::ExitedError => "failed",
        JobStatus::Signaled => "signaled",
        JobStatus::Unknown => "unknown",
    }
}

/// What `list` shows.
pub fn list(tasks: &[TaskStatusResponse]) -> String {
    let row = |task: &TaskStatusResponse| {
        [
            or_dash(&task.task_id),
            or_dash(&task.owner),
            time(task.start_time.as_ref()),
            word(task.status()).to_owned(),
            exit_code(task),
            reason(task),
            command_line(task),
        ]
    };
    let rows: Vec<_> = tasks.iter().map(row).collect();
    table(["TASK ID", "OWNER", "START TIME", "STATUS", "EXIT CODE", "REASON", "COMMAND"], &rows)
}

fn exit_code(task: &TaskStatusResponse) -> String {
    or_dash(&task.exit_code.map(|code| code.to_string()).unwrap_or_default())
}

/// Another user's command may hold what a terminal would obey.
fn command_line(task: &TaskStatusResponse) -> String {
    let words = std::iter::once(&task.command).chain(&task.args).map(String::as_str).collect::<Vec<_>>().join(" ");
    let line = one_line(&words);
    match line.char_indices().nth(LONGEST_COMMAND) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => or_dash(&line),
    }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { one_line(text) }
}

/// A moment in UTC.
fn time(moment: Option<&Timestamp>) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    moment.and_then(utc).and_then(|moment| moment.format(format).ok()).unwrap_or_else(|| "-".to_owned())
}

/// The same for machines, as in the report of `run`.
pub fn rfc3339(moment: Option<&Timestamp>) -> Option<String> {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    moment.and_then(utc)?.format(format).ok()
}

fn utc(moment: &Timestamp) -> Option<OffsetDateTime> {
    let nanos = i128::from(moment.seconds) * 1_000_000_000 + i128::from(moment.nanos);
    Some(OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()?.to_offset(UtcOffset::UTC))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The task of the source design's examples.
    pub fn example() -> TaskStatusResponse {
        TaskStatusResponse {
            task_id: "a7da14c7-b47a-4535-a263-5bb26e503002".into(),
            exit_code: Some(0),
            process_id: 2345,
            status: JobStatus::ExitedOk.into(),
            start_time: Some(Timestamp { seconds: 1_731_279_480, nanos: 5_000_000 }),
            end_time: Some(Timestamp { seconds: 1_731_279_600, nanos: 0 }),
            owner: "client001".into(),
            command: "/bin/ls".into(),
            args: vec!["/myFolder".into()],
            reason: "exit".into(),
            ..Default::default()
        }
    }

    #[test]
    fn get_status_prints_the_source_designs_table() {
        let wanted = "\
TASK ID                               START TIME           PID   STATUS                EXIT CODE  SIGNAL  SOURCE  END TIME
-------                               ----------           ---   ------                ---------  ------  ------  --------
a7da14c7-b47a-4535-a263-5bb26e503002  2024-11-10 22:58:00  2345  JOB_STATUS_EXITED_OK  0          -       -       2024-11-10 23:00:00
";
        assert_eq!(status(&example()), wanted);
    }

    #[test]
    fn columns_follow_their_contents_and_what_is_not_there_is_a_dash() {
        let running = TaskStatusResponse {
            exit_code: None,
            status: JobStatus::Started.into(),
            end_time: None,
            process_id: 0,
            ..example()
        };
        let wanted = "\
TASK ID                               START TIME           PID  STATUS              EXIT CODE  SIGNAL  SOURCE  END TIME
-------                               ----------           ---  ------              ---------  ------  ------  --------
a7da14c7-b47a-4535-a263-5bb26e503002  2024-11-10 22:58:00  -    JOB_STATUS_STARTED  -          -       -       -
";
        assert_eq!(status(&running), wanted);
        let stopped = TaskStatusResponse {
            exit_code: None,
            status: JobStatus::Signaled.into(),
            termination_signal: "SIGTERM".into(),
            termination_source: "user".into(),
            ..example()
        };
        assert!(status(&stopped).contains("  JOB_STATUS_SIGNALED  -          SIGTERM  user    2024-11-10 23:00:00\n"));
    }

    #[test]
    fn list_keeps_a_task_on_one_harmless_line() {
        let long = TaskStatusResponse {
            command: "sh".into(),
            args: vec!["-c".into(), format!("\u{1b}]0;x\u{7}\n{}", "y".repeat(99))],
            ..example()
        };
        let text = list(&[example(), long]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with("TASK ID "), "{text}");
        assert!(
            lines[2].ends_with("  client001  2024-11-10 22:58:00  exited  0          exit    /bin/ls /myFolder"),
            "{text}"
        );
        assert!(lines[3].ends_with("y…") && lines[3].contains("\\u{1b}]0;x"), "{text}");
        assert!(list(&[]).starts_with("TASK ID  OWNER  START TIME"));
    }

    #[test]
    fn times_are_utc_and_impossible_ones_are_dashes() {
        assert_eq!(rfc3339(example().start_time.as_ref()).unwrap(), "2024-11-10T22:58:00.005Z");
        assert_eq!(time(Some(&Timestamp { seconds: i64::MAX, nanos: 0 })), "-");
    }
}
