//! Limits between the API and [`Limits`]. Absent is 0 there, and a task's timeout stands beside its other limits.

use std::time::Duration;

use super::task_manager as pb;
use crate::task::limits::{AskedLimits, LIMITS, Limit, Limits, Quantity, Unit};
use crate::task::spec::SpecError;

/// A field of the API.
enum Field<'a> {
    Number(&'a mut u64),
    Cpus(&'a mut f64),
    Time(&'a mut Option<prost_types::Duration>),
}

/// The fields of a request or a status.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct LimitFields {
    /// All but the timeout.
    pub limits: pb::Limits,
    /// The timeout.
    pub timeout: Option<prost_types::Duration>,
}

impl LimitFields {
    fn field(&mut self, limit: &Limit) -> Field<'_> {
        let fields = &mut self.limits;
        match limit.name {
            "memory" => Field::Number(&mut fields.memory_bytes),
            "cpus" => Field::Cpus(&mut fields.cpus),
            "cpu_time" => Field::Time(&mut fields.cpu_time),
            "timeout" => Field::Time(&mut self.timeout),
            "pids" => Field::Number(&mut fields.pids),
            "io_read_bps" => Field::Number(&mut fields.io_read_bps),
            "io_write_bps" => Field::Number(&mut fields.io_write_bps),
            "output_limit" => Field::Number(&mut fields.output_bytes),
            "nofile" => Field::Number(&mut fields.nofile),
            "fsize" => Field::Number(&mut fields.fsize_bytes),
            "disk" => Field::Number(&mut fields.disk_bytes),
            "inodes" => Field::Number(&mut fields.inodes),
            other => unreachable!("the test below asks for every limit, and {other} is none"),
        }
    }

    fn put(&mut self, limit: &Limit, quantity: Quantity) {
        match (self.field(limit), quantity) {
            (Field::Number(field), Quantity::Bytes(value) | Quantity::Count(value)) => *field = value,
            (Field::Cpus(field), Quantity::Cpus(value)) => *field = value,
            (Field::Time(field), Quantity::Time(value)) => *field = Some(proto_duration(value)),
            _ => {}
        }
    }

    /// The limits that stand in them.
    pub fn asked(mut self) -> Result<AskedLimits, SpecError> {
        AskedLimits::from_each(|limit| {
            Ok(match (self.field(limit), limit.unit) {
                (Field::Number(0), _) => None,
                (Field::Number(value), Unit::Bytes) => Some(Quantity::Bytes(*value)),
                (Field::Number(value), _) => Some(Quantity::Count(*value)),
                (Field::Cpus(value), _) => (*value != 0.0).then_some(Quantity::Cpus(*value)),
                (Field::Time(None), _) => None,
                (Field::Time(Some(time)), _) => Some(Quantity::Time(duration(limit.name, time)?)),
            })
        })
    }
}

impl From<&AskedLimits> for LimitFields {
    fn from(asked: &AskedLimits) -> Self {
        let mut fields = Self::default();
        asked.iter().for_each(|(limit, quantity)| fields.put(limit, quantity));
        fields
    }
}

impl From<&Limits> for LimitFields {
    fn from(limits: &Limits) -> Self {
        let mut fields = Self::default();
        LIMITS.iter().for_each(|limit| fields.put(limit, limit.get(limits)));
        fields
    }
}

/// A span of time as the messages carry it.
pub fn proto_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos() as i32,
    }
}

/// A span of time in a message, which must not be negative. Not by the type's own conversion: that negates the seconds, and
/// the least of them have no opposite.
pub fn duration(field: &'static str, value: &prost_types::Duration) -> Result<Duration, SpecError> {
    match (u64::try_from(value.seconds), u64::try_from(value.nanos)) {
        (Ok(seconds), Ok(nanos)) => Ok(Duration::from_secs(seconds) + Duration::from_nanos(nanos)),
        _ => Err(SpecError::new(field, "must not be negative; write for example 90s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_its_field() {
        assert_eq!(LimitFields::default().asked(), Ok(AskedLimits::default()));
        let limits = Limits::default();
        for limit in &LIMITS {
            let asked =
                AskedLimits::from_each(|row| Ok::<_, SpecError>((row.name == limit.name).then(|| row.get(&limits))));
            let fields = LimitFields::from(&asked.clone().unwrap());
            assert_ne!(fields, LimitFields::default(), "{}", limit.name);
            assert_eq!(fields.asked(), asked);
        }
        let all = LimitFields::from(&limits).asked().unwrap();
        assert_eq!(all.iter().count(), LIMITS.len());
        assert_eq!(all.over(&limits), limits);
    }

    #[test]
    fn no_span_of_time_is_too_odd_to_be_answered() {
        let of = |seconds, nanos| duration("timeout", &prost_types::Duration { seconds, nanos });
        assert_eq!(of(1, 500_000_000), Ok(Duration::from_millis(1500)));
        assert_eq!(of(i64::MAX, i32::MAX).unwrap().as_secs(), i64::MAX as u64 + 2);
        for (seconds, nanos) in [(-1, 0), (0, -1), (i64::MIN, 0), (i64::MIN, i32::MIN), (i64::MAX, i32::MIN)] {
            assert_eq!(of(seconds, nanos).unwrap_err().field, "timeout", "{seconds} {nanos}");
        }
    }
}
