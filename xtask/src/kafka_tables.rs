//! `cargo xtask kafka-tables FOLDER…`: the tables of Kafka's messages, from the schemas that its
//! jars contain (`unzip kafka-clients-*.jar 'common/message/*'`, and kafka-group-coordinator).

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::workspace::{Fallible, Workspace};

/// The folder of the tables.
const TABLES: &str = "crates/underpass-broker/src/protocol/tables";

/// The messages that the broker supports, one file for each.
const MESSAGES: &[&str] = &[
    "AlterConfigs",
    "AlterUserScramCredentials",
    "ApiVersions",
    "CreateAcls",
    "CreatePartitions",
    "CreateTopics",
    "DeleteAcls",
    "DeleteGroups",
    "DeleteRecords",
    "DeleteTopics",
    "DescribeAcls",
    "DescribeClientQuotas",
    "DescribeCluster",
    "DescribeConfigs",
    "DescribeGroups",
    "DescribeLogDirs",
    "DescribeTopicPartitions",
    "DescribeUserScramCredentials",
    "ElectLeaders",
    "Fetch",
    "FindCoordinator",
    "Heartbeat",
    "IncrementalAlterConfigs",
    "InitProducerId",
    "JoinGroup",
    "LeaveGroup",
    "ListGroups",
    "ListOffsets",
    "ListPartitionReassignments",
    "Metadata",
    "OffsetCommit",
    "OffsetDelete",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "Produce",
    "SaslAuthenticate",
    "SaslHandshake",
    "SyncGroup",
];

/// The longest line.
const COLUMNS_MAX: usize = 100;

#[derive(clap::Args)]
pub(crate) struct KafkaTablesArguments {
    /// Folders with the schemas of a release of Kafka, as JSON
    #[arg(required = true)]
    folders: Vec<PathBuf>,
}

pub(crate) fn run(workspace: &Workspace, arguments: &KafkaTablesArguments) -> Fallible<ExitCode> {
    let tables = workspace.root.join(TABLES);
    let mut modules = String::from(
        "//! Kafka's messages, a file for each. Made by\n//! `cargo xtask kafka-tables`.\n\n",
    );
    let messages = MESSAGES.iter().map(|message| {
        let schemas = ["Request", "Response"].map(|end| format!("{message}{end}"));
        (
            snake(message),
            *message,
            schemas.map(|name| (*message, name)),
        )
    });
    let records = ["OffsetCommit", "GroupMetadata"].map(|record| {
        let schemas = ["Key", "Value"].map(|end| format!("{record}{end}"));
        let name = format!("{}_record", snake(record));
        (
            name,
            "A record of __consumer_offsets",
            schemas.map(|name| (record, name)),
        )
    });
    for (module, title, schemas) in messages.chain(records) {
        let mut text = format!(
            "//! {title}. Made by `cargo xtask kafka-tables`.\n\nuse crate::protocol::wire::*;\n"
        );
        for (message, name) in schemas {
            let schema = schema(&arguments.folders, &name)?;
            Table::of(&schema, message).write(&mut text)?;
        }
        write_formatted(&tables.join(format!("{module}.rs")), &text)?;
        let _ = writeln!(modules, "pub mod {module};");
    }
    write_formatted(&tables.join("mod.rs"), &modules)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the schema with this name, from any of the folders.
fn schema(folders: &[PathBuf], name: &str) -> Result<Value, String> {
    let paths = folders
        .iter()
        .map(|folder| folder.join(format!("{name}.json")));
    let found = paths
        .into_iter()
        .find_map(|path| fs::read_to_string(path).ok());
    let text = found.ok_or_else(|| format!("no folder has {name}.json"))?;
    let text: Vec<_> = text.lines().map(without_comment).collect();
    serde_json::from_str(&text.join("\n")).map_err(|error| format!("{name}.json: {error}"))
}

/// Removes a comment that starts with two slashes outside of a string.
fn without_comment(line: &str) -> &str {
    let mut is_quoted = false;
    let mut slashes = line.char_indices().filter(|(at, character)| {
        is_quoted ^= *character == '"';
        !is_quoted && line[*at..].starts_with("//")
    });
    match slashes.next() {
        Some((at, _)) => &line[..at],
        None => line,
    }
}

fn write_formatted(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    fs::write(path, text).map_err(failed)?;
    let formatted = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .arg(path)
        .status();
    match formatted.map_err(failed)?.success() {
        true => Ok(()),
        false => Err(format!("rustfmt {}", path.display())),
    }
}

/// The schema of a message.
struct Table<'s> {
    schema: &'s Value,
    message: String,
    /// The prefix of structure names, which may be the same in other messages.
    prefix: String,
    versions: (i16, i16),
}

impl<'s> Table<'s> {
    fn of(schema: &'s Value, message: &str) -> Table<'s> {
        let versions = range(text(schema, "validVersions"));
        let prefix = match text(schema, "type") {
            "response" => format!("{message}Response"),
            _ => message.to_owned(),
        };
        Table {
            schema,
            message: message.to_owned(),
            prefix,
            versions,
        }
    }

    fn write(&self, out: &mut String) -> Result<(), String> {
        let name = text(self.schema, "name");
        let mut structures = vec![(name.to_owned(), fields(self.schema))];
        collect(fields(self.schema), &mut structures);
        for structure in list(self.schema, "commonStructs") {
            structures.push((text(structure, "name").to_owned(), fields(structure)));
            collect(fields(structure), &mut structures);
        }
        let borrowing = borrowing(&structures);
        for (structure, fields) in &structures {
            self.write_structure(out, structure, fields, &borrowing)?;
        }
        let life = if borrowing.contains(name) { "<'a>" } else { "" };
        let key = match self.schema.get("apiKey") {
            Some(key) => format!("Some({key})"),
            None => "None".to_owned(),
        };
        let flexible = text(self.schema, "flexibleVersions");
        let flexible = match flexible {
            "none" => i16::MAX,
            versions => range(versions).0,
        };
        let (first, last) = self.versions;
        let _ = writeln!(
            out,
            "message!({name}{life}, {key}, {first}..={last}, {flexible});"
        );
        Ok(())
    }

    fn write_structure(
        &self,
        out: &mut String,
        name: &str,
        fields: &[Value],
        borrowing: &BTreeSet<String>,
    ) -> Result<(), String> {
        let life = |name: &str| if borrowing.contains(name) { "<'a>" } else { "" };
        let full = self.full_name(name);
        let _ = writeln!(out, "\ntable! {{\n    pub struct {full}{} {{", life(name));
        for field in fields {
            let versions = range(text(field, "versions"));
            let (first, last) = (
                versions.0.max(self.versions.0),
                versions.1.min(self.versions.1),
            );
            if first > last {
                continue;
            }
            let kind = self.kind(field, &life)?;
            let field_name = match snake(text(field, "name")).as_str() {
                "type" => "kind".to_owned(),
                "match" => "matched".to_owned(),
                name => name.to_owned(),
            };
            let range = |first: i16| match versions.1 >= self.versions.1 {
                true => format!("{first}.."),
                false => format!("{first}..={last}"),
            };
            let null = match self::range(text(field, "nullableVersions")).0 {
                null if (first + 1..=last).contains(&null) => format!(", null {}", range(null)),
                _ => String::new(),
            };
            let default = default(field, &kind);
            let clause = match (field.get("tag"), &default) {
                (Some(tag), default) => {
                    let usual = default.as_deref().unwrap_or("Default::default()");
                    format!(", tag {tag} or {usual}")
                }
                (None, Some(default)) => format!(", or {default}"),
                (None, None) => String::new(),
            };
            let line = format!("        {field_name}: {kind} => {}{null}", range(first));
            let gap = match line.len() + clause.len() < COLUMNS_MAX {
                true => "",
                false => "\n           ",
            };
            let _ = writeln!(out, "{line}{gap}{clause};");
        }
        out.push_str("    }\n}\n");
        Ok(())
    }

    /// Returns the name of a structure, prefixed unless it starts with the message's name.
    fn full_name(&self, name: &str) -> String {
        match name.starts_with(&self.message) {
            true => name.to_owned(),
            false => format!("{}{name}", self.prefix),
        }
    }

    fn kind(&self, field: &Value, life: &impl Fn(&str) -> &'static str) -> Result<String, String> {
        let kind = text(field, "type");
        let is_nullable = field.get("nullableVersions").is_some();
        let (array, element) = match kind.strip_prefix("[]") {
            Some(element) => (true, element),
            None => (false, kind),
        };
        let element = match element {
            "int8" => "i8".to_owned(),
            "int16" => "i16".to_owned(),
            "uint16" => "u16".to_owned(),
            "int32" => "i32".to_owned(),
            "int64" => "i64".to_owned(),
            "float64" => "f64".to_owned(),
            "bool" => "bool".to_owned(),
            "uuid" => "Uuid".to_owned(),
            "string" => "&'a str".to_owned(),
            "bytes" => "&'a [u8]".to_owned(),
            "records" => return Ok("Records<'a>".to_owned()),
            structure if structure.starts_with(char::is_uppercase) => {
                format!("{}{}", self.full_name(structure), life(structure))
            }
            other => return Err(format!("the type {other} is not known")),
        };
        let kind = match array {
            true => format!("Vec<{element}>"),
            false => element,
        };
        Ok(match is_nullable {
            true => format!("Option<{kind}>"),
            false => kind,
        })
    }
}

/// Returns the value of a field in versions without it, if it is not the usual one.
fn default(field: &Value, kind: &str) -> Option<String> {
    let default = match field.get("default")? {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match default.as_str() {
        "" | "null" | "0" | "false" => None,
        text if kind.starts_with('&') => Some(format!("{text:?}")),
        number => Some(number.to_owned()),
    }
}

/// Collects the structures within fields, outer ones first.
fn collect<'s>(fields_of: &'s [Value], structures: &mut Vec<(String, &'s [Value])>) {
    for field in fields_of {
        let inner = fields(field);
        if !inner.is_empty() {
            let name = text(field, "type").trim_start_matches("[]");
            structures.push((name.to_owned(), inner));
            collect(inner, structures);
        }
    }
}

/// Returns the structures that borrow from the message.
fn borrowing(structures: &[(String, &[Value])]) -> BTreeSet<String> {
    let mut borrowing = BTreeSet::new();
    // Once per possible level of nesting.
    for _ in structures {
        for (name, fields) in structures {
            let holds = |field: &Value| {
                let kind = text(field, "type").trim_start_matches("[]");
                ["string", "bytes", "records"].contains(&kind) || borrowing.contains(kind)
            };
            if fields.iter().any(holds) {
                borrowing.insert(name.clone());
            }
        }
    }
    borrowing
}

fn fields(of: &Value) -> &[Value] {
    list(of, "fields")
}

fn list<'v>(of: &'v Value, name: &str) -> &'v [Value] {
    of.get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'v>(of: &'v Value, name: &str) -> &'v str {
    of.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Parses `3+`, `0-12` or `4`.
fn range(versions: &str) -> (i16, i16) {
    let number = |text: &str| text.trim().parse().unwrap_or(i16::MAX);
    match (versions.strip_suffix('+'), versions.split_once('-')) {
        (Some(first), _) => (number(first), i16::MAX),
        (None, Some((first, last))) => (number(first), number(last)),
        (None, None) => (number(versions), number(versions)),
    }
}

/// Converts `ThrottleTimeMs` to `throttle_time_ms`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}
