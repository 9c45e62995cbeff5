//! Overrides of single options in addition to a file: `connections.rate-max=10000000`.
//!
//! ```text
//!  file ─► table ─► one setting after the other ─► table ─► Options, by the one schema
//! ```
//!
//! The table is valid before each setting, so an error afterwards is caused by that setting.

use std::fmt;

use toml::{Table, Value};

use crate::options::ServerOptions;

/// An option and its value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigOverride {
    /// The tables that lead to the key, and the key.
    steps: Vec<String>,
    key: String,
    value: String,
}

impl ConfigOverride {
    /// Parses `KEY=VALUE`. The existence of the key and the type of the value are checked when it
    /// is applied.
    ///
    /// # Errors
    /// A description of the mistake.
    ///
    /// # Examples
    /// ```
    /// use underpass_serve::{ConfigOverride, ServerOptions};
    ///
    /// let setting = ConfigOverride::parse("connections.rate-max=1000000")?;
    /// assert!(ServerOptions::load_with(None, &[setting]).is_ok());
    /// # Ok::<(), String>(())
    /// ```
    pub fn parse(text: &str) -> Result<ConfigOverride, String> {
        let (key, value) = text.split_once('=').ok_or_else(|| {
            format!("{text:?} is not KEY=VALUE; expected for example connections.rate-max=5")
        })?;
        let (key, value) = (key.trim(), value.trim());
        Ok(ConfigOverride {
            steps: steps(key)
                .ok_or_else(|| format!("{key:?} is not a key; expected one such as site.etag"))?,
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }

    /// Whether it sets `key`, or a table that contains it.
    pub fn decides(&self, key: &str) -> bool {
        let wanted = steps(key).unwrap_or_default();
        wanted.starts_with(&self.steps)
    }

    /// Whether it sets the root of the site with this number, from 1.
    pub(crate) fn decides_root(&self, number: usize) -> bool {
        let named = |number: &str| self.decides(&format!("site.{number}.root"));
        named(&number.to_string()) || (number == 1 && self.decides("site.root"))
    }

    /// Sets the option in `table`, and returns the resulting options.
    pub(super) fn apply(&self, table: &mut Table) -> Result<ServerOptions, String> {
        let mut first = None;
        for value in self.readings() {
            let mut changed = Value::Table(table.clone());
            *self.slot(&mut changed)? = value;
            let Value::Table(changed) = changed else {
                break;
            };
            match changed.clone().try_into::<ServerOptions>() {
                Ok(options) => {
                    *table = changed;
                    return Ok(options);
                }
                Err(error) => first = first.or(Some(error.message().to_owned())),
            }
        }
        Err(first.unwrap_or_default())
    }

    /// Returns the possible interpretations of the value, the likeliest first: TOML; text without
    /// quotes, since the shell has removed them; or a list with one element.
    fn readings(&self) -> Vec<Value> {
        let text = Value::String(self.value.clone());
        let mut readings: Vec<Value> = self.value.parse().into_iter().collect();
        if !readings.iter().any(|value| value.is_str()) {
            readings.push(text);
        }
        let lists: Vec<_> = readings
            .iter()
            .filter(|value| !value.is_array())
            .map(|value| Value::Array(vec![value.clone()]))
            .collect();
        readings.extend(lists);
        readings
    }

    /// Returns its position in `all`, created if missing.
    fn slot<'t>(&self, all: &'t mut Value) -> Result<&'t mut Value, String> {
        let mut place = all;
        let mut steps = self.steps.iter().enumerate().peekable();
        while let Some((depth, step)) = steps.next() {
            place = table(place)
                .entry(step)
                .or_insert_with(|| Value::Table(Table::new()));
            if depth == 0 && step == SITES && !place.is_array() {
                *place = Value::Array(Vec::new());
            }
            let Some((_, next)) = steps.peek() else { break };
            if place.is_array() {
                let number = next.parse().ok();
                place = row(place, step, number.unwrap_or(1))?;
                number.and_then(|_| steps.next());
            }
        }
        Ok(place)
    }
}

/// The list of tables that is extended by setting a value in the next element.
const SITES: &str = "site";

/// Returns an element of a list, by its number; the next one is created.
fn row<'t>(list: &'t mut Value, name: &str, number: usize) -> Result<&'t mut Value, String> {
    let Value::Array(rows) = list else {
        unreachable!("it is one");
    };
    let count = rows.len();
    if number == count + 1 {
        rows.push(Value::Table(Table::new()));
    }
    number
        .checked_sub(1)
        .and_then(|index| rows.get_mut(index))
        .ok_or_else(|| {
            format!("there is no {name} {number}: numbers start at 1, and there are {count}")
        })
}

/// Returns the table at `place`, replacing any other value; the schema rejects a wrong one later.
fn table(place: &mut Value) -> &mut Table {
    if !place.is_table() {
        *place = Value::Table(Table::new());
    }
    match place {
        Value::Table(table) => table,
        _ => unreachable!("it was made one"),
    }
}

/// Splits a dotted TOML key; `None` if it is invalid.
fn steps(key: &str) -> Option<Vec<String>> {
    if key.contains(['\n', '\r']) {
        return None;
    }
    let mut table: Table = toml::from_str(&format!("{key} = 0")).ok()?;
    let mut steps = Vec::new();
    loop {
        let (step, value) = table.into_iter().next()?;
        steps.push(step);
        match value {
            Value::Table(inner) => table = inner,
            Value::Integer(_) => return Some(steps),
            _ => return None,
        }
    }
}

impl fmt::Display for ConfigOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--set {}={}", self.key, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::read::apply;

    fn set(text: &str, settings: &[&str]) -> Result<ServerOptions, String> {
        let settings: Vec<_> = settings
            .iter()
            .map(|setting| ConfigOverride::parse(setting).unwrap())
            .collect();
        apply(text, &settings).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_what_the_schema_takes_them_for() {
        let options = set(
            "",
            &[
                "workers=3",
                "listen=0.0.0.0:80",
                "user=www-data",
                "requests.head-timeout=5s",
                "connections.rate-max=10_000_000",
                "connections.rate-per-client-max=20MB",
                "connections.joined-bytes-max=128 KiB",
                "connections.proxy.trusted=[\"10.0.0.0/8\", \"unix\"]",
                "site.etag=mtime-size",
                "site.pretty=true",
                "site.root=2026",
                "site.error-pages.404=/none.html",
                "site.types.extensions.\"tar.gz\"=application/gzip",
                "site.index=a.html",
                "site.2.names=['b.example']",
            ],
        )
        .unwrap();
        assert_eq!(options.workers.map(usize::from), Some(3));
        assert_eq!(options.listen.len(), 1);
        assert_eq!(options.requests.head_timeout.as_secs(), 5);
        assert_eq!(options.connections.proxy.trusted.len(), 2);
        let rate = options.connections.rate_per_client_max;
        assert_eq!(rate.map(u64::from), Some(20_000_000));
        assert_eq!(options.connections.joined_bytes_max, 128 << 10);
        let [first, second] = &options.sites[..] else {
            panic!("two sites: {options:?}");
        };
        assert_eq!(first.root.to_str(), Some("2026"));
        assert!(first.pretty && !second.pretty);
        assert_eq!(first.index[0].as_str(), "a.html");
        assert_eq!(first.error_pages.len(), 1);
        assert_eq!(second.names, ["b.example"]);
    }

    #[test]
    fn the_last_one_holds_and_what_the_file_says_beside_stays() {
        let text = "workers = 2\n[[site]]\nroot = 'a'\npretty = true\n\
                    [[site.cache]]\npaths = ['*']\ncontrol = 'no-store'\n";
        let options = set(text, &["workers=4", "workers=5", "site.hashes=true"]).unwrap();
        assert_eq!(options.workers.map(usize::from), Some(5));
        let site = &options.sites[0];
        assert!(site.pretty && site.hashes && site.cache.len() == 1);
        let changed = set(text, &["site.cache.control=max-age=5"]).unwrap();
        let control = format!("{:?}", changed.sites[0].cache[0].control);
        assert!(control.contains("max-age=5"), "{control}");
    }

    #[test]
    fn each_mistake_names_its_setting_what_is_wrong_and_what_is_possible() {
        let reported = set(
            "",
            &[
                "conections.rate-max=5",
                "connections.rate-maxx=5",
                "connections.rate-max=fast",
                "site.symlinks=some",
                "requests.head-timeout=5",
                "workers.x=1",
                "site.3.pretty=true",
                "site.0.pretty=true",
                "workers=6",
            ],
        )
        .unwrap_err();
        for part in [
            "--set conections.rate-max=5: unknown field `conections`",
            "`connections`",
            "--set connections.rate-maxx=5: unknown field `rate-maxx`",
            "`rate-max`",
            "--set connections.rate-max=fast: invalid value: string \"fast\", expected a number",
            "\"64KiB\" or \"10MB\"",
            "--set site.symlinks=some: ",
            "`inside`",
            "--set requests.head-timeout=5: ",
            "--set workers.x=1: ",
            "there is no site 3: numbers start at 1, and there are 0",
            "there is no site 0",
        ] {
            assert!(reported.contains(part), "{part}: {reported}");
        }
        assert!(!reported.contains("workers=6"), "{reported}");
    }

    #[test]
    fn a_value_is_one_value_and_a_key_one_key() {
        assert!(set("", &["workers=3\nexplain=true"]).is_err());
        for wrong in ["workers", "=3", "a b=3", "[x]\ny=1", "#=1", "a.=1", ""] {
            assert!(ConfigOverride::parse(wrong).is_err(), "{wrong:?}");
        }
        let one = |text| ConfigOverride::parse(text).unwrap();
        let max_age = one("site.cors.max-age=1h");
        assert!(max_age.decides("site.cors.max-age") && !max_age.decides("site.cors"));
        assert!(one("site=[{root='/srv'}]").decides_root(2));
    }
}
