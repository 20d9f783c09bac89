//! A TOML table that knows where it stands, so that every refusal names the whole key, what was given and what to write.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use toml::{Table, Value};

use super::parse::ConfigError;
use crate::task::limits::{Limit, Quantity, Unit};
use crate::task::units;

const SIZE: &str = "a size such as \"512M\" or \"2G\"";
const TIME: &str = "a time such as \"500ms\", \"90s\" or \"7d\"";

/// One table of the configuration, complete: every key that is asked for is in it.
pub(super) struct Section<'a> {
    table: &'a Table,
    path: String,
}

impl<'a> Section<'a> {
    /// The outermost table.
    pub fn root(table: &'a Table) -> Self {
        Self { table, path: String::new() }
    }

    /// A table below this one.
    pub fn section(&self, key: &str) -> Result<Section<'a>, ConfigError> {
        match self.value(key)? {
            Value::Table(table) => Ok(Section { table, path: self.path_of(key) }),
            other => Err(self.wrong(key, other, "must be a table")),
        }
    }

    /// Its keys.
    pub fn keys(&self) -> impl Iterator<Item = &'a String> {
        self.table.keys()
    }

    pub fn text(&self, key: &str) -> Result<&'a str, ConfigError> {
        match self.value(key)? {
            Value::String(text) => Ok(text),
            other => Err(self.wrong(key, other, "must be a text in quotes")),
        }
    }

    pub fn flag(&self, key: &str) -> Result<bool, ConfigError> {
        match self.value(key)? {
            Value::Boolean(flag) => Ok(*flag),
            other => Err(self.wrong(key, other, "must be true or false")),
        }
    }

    /// A whole number between `least` and `most`, both included.
    pub fn number<T: TryFrom<i64>>(&self, key: &str, least: i64, most: i64) -> Result<T, ConfigError> {
        let value = self.value(key)?;
        let number = value.as_integer().filter(|number| (least..=most).contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| self.wrong(key, value, format!("must be a whole number between {least} and {most}")))
    }

    /// A size, as `512M`; 0 only where `zero` allows it.
    pub fn bytes(&self, key: &str, zero: bool) -> Result<u64, ConfigError> {
        match self.value(key)? {
            Value::Integer(0) if zero => Ok(0),
            Value::String(text) if zero && text == "0" => Ok(0),
            _ => self.quantity(key, units::bytes, SIZE),
        }
    }

    /// A size that fits `T` and is at least `least`.
    pub fn bytes_of<T: TryFrom<u64>>(&self, key: &str, least: u64, most: u64) -> Result<T, ConfigError> {
        let bytes = self.bytes(key, false)?;
        let range = format!("must lie between {} and {}", units::human_bytes(least), units::human_bytes(most));
        let fits = (least..=most).contains(&bytes);
        T::try_from(bytes).ok().filter(|_| fits).ok_or_else(|| self.refuse(key, range))
    }

    /// A span of time of more than nothing, as `90s`.
    pub fn duration(&self, key: &str) -> Result<Duration, ConfigError> {
        self.quantity(key, units::duration, TIME)
    }

    /// A span of time that may be `0s`.
    pub fn grace(&self, key: &str) -> Result<Duration, ConfigError> {
        self.quantity(key, units::grace, "a time such as \"0s\", \"500ms\" or \"10s\"")
    }

    /// The value of a limit.
    pub fn limit(&self, limit: &Limit) -> Result<Quantity, ConfigError> {
        let kind = match limit.unit {
            Unit::Bytes => SIZE,
            Unit::Time => TIME,
            Unit::Cpus => "a number such as 0.5 or 2",
            Unit::Count => "a whole number of at least 1",
        };
        self.quantity(limit.name, |text| limit.unit.parse(text), kind)
    }

    /// What `T` reads from a text.
    pub fn parsed<T: FromStr<Err: std::fmt::Display>>(&self, key: &str) -> Result<T, ConfigError> {
        self.text(key)?.parse().map_err(|error| self.refuse(key, format!("{error}")))
    }

    /// A list of texts, each of which `check` accepts.
    pub fn texts(&self, key: &str, check: impl Fn(&str) -> Result<(), String>) -> Result<Vec<String>, ConfigError> {
        let value = self.value(key)?;
        let wrong = || self.wrong(key, value, "must be a list of texts, such as [\"alice\", \"bob\"]");
        let items = value.as_array().ok_or_else(wrong)?;
        let texts = items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
        let texts = texts.ok_or_else(wrong)?;
        texts.iter().try_for_each(|text| check(text)).map_err(|why| self.refuse(key, why))?;
        Ok(texts)
    }

    /// A path from the root, or None for an empty text.
    pub fn path(&self, key: &str) -> Result<Option<PathBuf>, ConfigError> {
        match self.text(key)? {
            "" => Ok(None),
            text if text.starts_with('/') => Ok(Some(text.into())),
            _ => Err(self.refuse(key, "must be a path from the root, such as /etc/taskman/certs")),
        }
    }

    /// Refuses what stands at `key`, and says why.
    pub fn refuse(&self, key: &str, why: impl Into<String>) -> ConfigError {
        match self.table.get(key) {
            Some(value) => self.wrong(key, value, why),
            None => ConfigError::at(self.path_of(key), why),
        }
    }

    /// Strings go through the parser that the command line uses; numbers through their text.
    fn quantity<T>(&self, key: &str, parser: impl Fn(&str) -> Result<T, String>, kind: &str) -> Result<T, ConfigError> {
        let value = self.value(key)?;
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            other => return Err(self.wrong(key, other, format!("must be {kind}"))),
        };
        parser(&text).map_err(|_| self.wrong(key, value, format!("must be {kind}")))
    }

    fn wrong(&self, key: &str, value: &Value, why: impl Into<String>) -> ConfigError {
        ConfigError::at(format!("{} = {value}", self.path_of(key)), why)
    }

    fn value(&self, key: &str) -> Result<&'a Value, ConfigError> {
        self.table.get(key).ok_or_else(|| ConfigError::at(self.path_of(key), "is missing"))
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

/// Lays `over` on `base`. A key that `base` does not have is refused with the nearest that it has.
pub(super) fn overlay(base: &mut Table, over: &Table, path: &str) -> Result<(), ConfigError> {
    for (key, value) in over {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (base.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => overlay(below, above, &full)?,
            (Some(Value::Table(_)), _) => {
                return Err(ConfigError::at(full.clone(), format!("is a table; write [{full}] and its keys below")));
            }
            (Some(known), _) => *known = value.clone(),
            (None, _) => return Err(unknown(base, key, path)),
        }
    }
    Ok(())
}

/// Refuses a key that is not known, with the one that was probably meant.
pub(super) fn unknown(known: &Table, key: &str, path: &str) -> ConfigError {
    let close = |name: &&String| (strsim::damerau_levenshtein(name, key), strsim::jaro_winkler(name, key));
    let nearest = known.keys().map(|name| (close(&name), name));
    let nearest = nearest.min_by(|((a, a_alike), _), ((b, b_alike), _)| a.cmp(b).then(b_alike.total_cmp(a_alike)));
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let advice = match nearest {
        // Half of the letters differ: then the list helps more than a guess, but a guess still says where to look.
        Some((_, name)) => format!("is not known; the nearest name is {}", at(name)),
        None => "is not known".to_owned(),
    };
    ConfigError::at(at(key), format!("{advice} (see taskman-server --print-config)"))
}
