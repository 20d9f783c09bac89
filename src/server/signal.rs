//! `SignalTask`: a signal to the task's main process, and to nothing else.

use std::sync::Arc;

use super::authorize::{Caller, Verb};
use super::error::ApiError;
use super::gate::Served;
use super::registry::{Found, Registry};
use crate::proto::task_manager as pb;
use crate::task::signal;
use crate::task::spec::SpecError;

/// Sends a signal; the answer means that it was delivered.
pub async fn signal(
    registry: Arc<Registry>,
    caller: Caller,
    request: pb::SignalTaskRequest,
) -> Result<Served<pb::SignalTaskResponse>, ApiError> {
    let found = registry.find_for(&caller, Verb::Signal, &request.task_id).await?;
    let number = number(&request.signal)?;
    let has_ended = || ApiError::Precondition("the task has ended; there is nothing to signal".to_owned());
    let Found::Live(live) = found else { return Err(has_ended()) };
    match registry.link.signal(live.id, number).await {
        None => Ok(pb::SignalTaskResponse {}.into()),
        Some(error) if error.errno == libc::ESRCH => Err(has_ended()),
        Some(error) if error.errno == libc::EALREADY => {
            Err(ApiError::Precondition("the task is being started; try again".to_owned()))
        }
        Some(error) => Err(error.into()),
    }
}

/// A signal's number from `SIGUSR1`, `usr1` or `10`.
fn number(text: &str) -> Result<i32, SpecError> {
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") { upper.clone() } else { format!("SIG{upper}") };
    let number = upper.parse().ok().or_else(|| signal::number(&name));
    number.filter(|number| (1..=64).contains(number)).ok_or_else(|| {
        SpecError::new("signal", format!("{text:?} is not a signal; write for example SIGUSR1, TERM or 10"))
    })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn signals_are_named_as_people_name_them() {
        for text in ["SIGUSR1", "usr1", "USR1", "10"] {
            assert_eq!(number(text).unwrap(), 10, "{text}");
        }
        for text in ["", "SIG", "0", "65", "-9", "NOPE", "9 9"] {
            assert!(number(text).is_err(), "{text:?}");
        }
    }
}
