//! `mcode packs`: which model has which role.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use mcode_client::json::message_json;
use mcode_client::{Client, ClientError, ErrorKind, v1};
use mcode_config::{CONFIG_BYTES_MAX, PackEntry, ROLES, parse_packs};
use mcode_text::sanitize;
use serde_json::Value;

use crate::args::Form;
use crate::context::Context;
use crate::failure::tell_message;
use crate::input::read_file;
use crate::output::{json_line, json_pretty, stdout_text};
use crate::table::table;
use crate::verbs::{Outcome, sentence, show_message};

/// What to do with packs.
#[derive(Debug, Subcommand)]
pub(crate) enum PacksVerb {
    /// List the packs, and which model each role has now
    List,
    /// Show one pack
    Show {
        /// Its name
        name: String,
    },
    /// Take a pack for new threads and for what works beside them
    Use {
        /// Its name
        #[arg(required_unless_present = "none", default_value = "", hide_default_value = true)]
        name: String,
        /// Use no pack
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// Make a pack in your configuration
    Create(PackArgs),
    /// Change roles of a pack of yours; ROLE= takes one out
    Set(PackArgs),
    /// Delete a pack of yours
    Delete {
        /// Its name
        name: String,
    },
    /// Print a pack as a file that can be passed on; it holds no keys
    Export {
        /// Its name
        name: String,
    },
    /// Take packs from a file that was exported
    Import {
        /// The file, TOML or JSON
        file: PathBuf,
        /// Another name for the pack, where the file holds one
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
}

/// A pack and its roles.
#[derive(Debug, clap::Args)]
pub(crate) struct PackArgs {
    /// Its name: small letters, digits, - and _
    name: String,
    /// Such as build=anthropic/claude-sonnet-5; the roles are build, plan, explore, small, judge, observer and reflector
    #[arg(required = true, value_name = "ROLE=MODEL", value_parser = pair)]
    roles: Vec<(String, String)>,
    /// How much the model of a role thinks, such as plan=high; may be repeated
    #[arg(long = "think", value_name = "ROLE=LEVEL", value_parser = pair)]
    thinking: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (role, value) = text.split_once('=').ok_or_else(|| format!("'{text}' has no ="))?;
    if !ROLES.contains(&role) {
        return Err(format!("'{role}' is none of {}", ROLES.join(", ")));
    }
    Ok((role.to_owned(), value.to_owned()))
}

pub(crate) async fn run(context: &Context, verb: PacksVerb) -> Outcome {
    let client = context.connect().await?;
    match verb {
        PacksVerb::List => list(context, &client).await,
        PacksVerb::Show { name } => {
            let pack = find(&client, &name).await?;
            show_message(context.form, "Pack", &pack, None, || pack_text(&pack))?;
            Ok(0)
        }
        PacksVerb::Use { name, none: _ } => choose(context, &client, name).await,
        PacksVerb::Create(args) => create(context, &client, args.into_pack()?).await,
        PacksVerb::Set(args) => {
            let pack = args.into_pack()?;
            let name = pack.name.clone();
            let response = client.update_pack(v1::UpdatePackRequest { pack: Some(pack) }).await?;
            show_message(context.form, "UpdatePackResponse", &response, None, || {
                sentence(&format!("{name} is changed in {}", response.file))
            })?;
            Ok(0)
        }
        PacksVerb::Delete { name } => {
            let response = client.delete_pack(v1::DeletePackRequest { name: name.clone() }).await?;
            show_message(context.form, "DeletePackResponse", &response, None, || {
                sentence(&format!("{name} is deleted from {}", response.file))
            })?;
            Ok(0)
        }
        PacksVerb::Export { name } => export(context, &client, &name).await,
        PacksVerb::Import { file, name } => import(context, &client, &file, name).await,
    }
}

/// Makes a pack, and says how it is used.
async fn create(context: &Context, client: &Client, pack: v1::Pack) -> Outcome {
    let name = pack.name.clone();
    let response = client.create_pack(v1::CreatePackRequest { pack: Some(pack) }).await?;
    show_message(context.form, "CreatePackResponse", &response, None, || {
        sentence(&format!("{name} is made in {}; use it with: mcode packs use {name}", response.file))
    })?;
    Ok(0)
}

impl PackArgs {
    fn into_pack(self) -> Result<v1::Pack, ClientError> {
        for (what, given) in [("role", &self.roles), ("--think for", &self.thinking)] {
            let repeated =
                given.iter().enumerate().find(|(at, (role, _))| given[..*at].iter().any(|(one, _)| one == role));
            if let Some((_, (role, _))) = repeated {
                return Err(ClientError::usage(format!("the {what} {role} is given twice")).hint("give each role once"));
            }
        }
        let mut thinking: BTreeMap<String, String> = self.thinking.into_iter().collect();
        let mut roles = Vec::new();
        for (role, model) in self.roles {
            let thinking = thinking.remove(&role).unwrap_or_default();
            roles.push(v1::PackRole { role, model, thinking, usable: false });
        }
        match thinking.into_keys().next() {
            Some(role) => Err(ClientError::usage(format!("--think names {role}, which has no model here"))),
            None => Ok(v1::Pack { name: self.name, roles, ..v1::Pack::default() }),
        }
    }
}

async fn listed(client: &Client) -> Result<v1::ListPacksResponse, ClientError> {
    client.list_packs(v1::ListPacksRequest { env: mcode_env::process::vars() }).await
}

async fn find(client: &Client, name: &str) -> Result<v1::Pack, ClientError> {
    let found = listed(client).await?.packs.into_iter().find(|pack| pack.name == name);
    found.ok_or_else(|| {
        ClientError::new(ErrorKind::User, "PACK_NOT_FOUND", format!("there is no pack '{name}'"))
            .hint("list the packs with: mcode packs list")
    })
}

async fn list(context: &Context, client: &Client) -> Outcome {
    let response = listed(client).await?;
    show_message(context.form, "ListPacksResponse", &response, Some("packs"), || {
        let mut text = String::new();
        for pack in &response.packs {
            text.push_str(&pack_text(pack));
            text.push('\n');
        }
        if response.packs.is_empty() {
            text.push_str("no packs: no key was found, and your configuration holds none\n\n");
        }
        text.push_str("In a new thread now:\n");
        let rows: Vec<Vec<String>> = response.roles.iter().map(role_row).collect();
        text.push_str(&table(&["ROLE", "MODEL", "THINKING", "BY"], &rows));
        text
    })?;
    Ok(0)
}

fn role_row(role: &v1::RoleModel) -> Vec<String> {
    let model =
        if role.model.is_empty() || role.usable { role.model.clone() } else { format!("{} (no key)", role.model) };
    vec![role.role.clone(), model, role.thinking.clone(), role.reason.clone()]
}

fn pack_text(pack: &v1::Pack) -> String {
    let mut heading = sentence(&pack.name);
    if pack.built_in {
        heading.push_str(" (of what can be reached)");
    }
    if pack.in_use {
        heading.push_str(" (in use)");
    }
    let rows: Vec<Vec<String>> = pack
        .roles
        .iter()
        .map(|role| {
            let model = if role.usable { role.model.clone() } else { format!("{} (no key)", role.model) };
            vec![format!("  {}", role.role), model, role.thinking.clone()]
        })
        .collect();
    format!("{heading}\n{}\n", table(&["  ROLE", "MODEL", "THINKING"], &rows))
}

async fn choose(context: &Context, client: &Client, name: String) -> Outcome {
    let request = v1::UsePackRequest { name: name.clone(), env: mcode_env::process::vars() };
    let response = client.use_pack(request).await?;
    show_message(context.form, "UsePackResponse", &response, None, || {
        sentence(&match name.as_str() {
            "" => format!("no pack is in use any more: {}", response.file),
            name => format!("the pack {name} is in use: {}", response.file),
        })
    })?;
    if !response.before.is_empty() {
        let keys = response.before.join(", ");
        let hint = format!("take it out with: mcode config unset {}", response.before[0]);
        tell_message(&format!("what your configuration sets comes before the pack: {keys}"), Some(&hint));
    }
    Ok(0)
}

async fn export(context: &Context, client: &Client, name: &str) -> Outcome {
    let mut pack = find(client, name).await?;
    // What is passed on says nothing of this machine.
    (pack.built_in, pack.in_use) = (false, false);
    pack.roles.iter_mut().for_each(|role| role.usable = false);
    match context.form {
        Form::Text => stdout_text(&sanitize(&toml(&pack)))?,
        Form::Json => json_pretty(&message_json("Pack", &pack)?)?,
        Form::Jsonl => json_line(&message_json("Pack", &pack)?)?,
    }
    Ok(0)
}

/// A pack as a section of the configuration.
fn toml(pack: &v1::Pack) -> String {
    // A text of JSON without control characters is one of TOML.
    let line = |key: &str, value: &str| format!("{key} = {}\n", Value::from(value));
    let mut text = format!("[packs.{}]\n", pack.name);
    pack.roles.iter().for_each(|role| text.push_str(&line(&role.role, &role.model)));
    if pack.roles.iter().any(|role| !role.thinking.is_empty()) {
        text.push_str(&format!("\n[packs.{}.thinking]\n", pack.name));
        let thinking = pack.roles.iter().filter(|role| !role.thinking.is_empty());
        thinking.for_each(|role| text.push_str(&line(&role.role, &role.thinking)));
    }
    text
}

async fn import(context: &Context, client: &Client, file: &Path, name: Option<String>) -> Outcome {
    let path = context.cwd()?.join(file);
    let unusable = |why: String| {
        ClientError::new(ErrorKind::User, "PACK_UNUSABLE", format!("{}: {why}", file.display()))
            .hint("give a file that mcode packs export has written")
    };
    let bytes = read_file(&path, CONFIG_BYTES_MAX, "the pack")?;
    let text = String::from_utf8(bytes).map_err(|_| unusable("it is not text".to_owned()))?;
    let mut packs = match serde_json::from_str::<Value>(&text) {
        Ok(value) => of_json(&value).map_err(unusable)?,
        Err(_) => {
            parse_packs(file, &text).map_err(|error| unusable(error.to_string()))?.into_iter().map(of_entry).collect()
        }
    };
    match (packs.as_mut_slice(), name) {
        ([one], Some(name)) => one.name = name,
        (_, Some(_)) => return Err(ClientError::usage("--name is for a file with one pack").into()),
        (_, None) => {}
    }
    for pack in packs {
        create(context, client, pack).await?;
    }
    Ok(0)
}

fn of_entry((name, entry): (String, PackEntry)) -> v1::Pack {
    let mut thinking = entry.thinking;
    let roles = entry.models.into_iter().map(|(role, model)| {
        let thinking = thinking.remove(&role).unwrap_or_default();
        v1::PackRole { role, model, thinking, usable: false }
    });
    v1::Pack { name, roles: roles.collect(), ..v1::Pack::default() }
}

/// A pack, or `{"packs": […]}`, as `--output json` gives it. Only names and roles are taken.
fn of_json(value: &Value) -> Result<Vec<v1::Pack>, String> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let one = |value: &Value| -> Result<v1::Pack, String> {
        let name = text(value, "name").ok_or("a pack has no name")?;
        let roles =
            value.get("roles").and_then(Value::as_array).ok_or_else(|| format!("the pack '{name}' has no roles"))?;
        let role = |row: &Value| {
            let (role, model) = text(row, "role").zip(text(row, "model"))?;
            Some(v1::PackRole { role, model, thinking: text(row, "thinking").unwrap_or_default(), usable: false })
        };
        let roles: Option<Vec<v1::PackRole>> = roles.iter().map(role).collect();
        let roles = roles.ok_or_else(|| format!("a role of the pack '{name}' has no name or model"))?;
        Ok(v1::Pack { name, roles, ..v1::Pack::default() })
    };
    match value.get("packs").and_then(Value::as_array) {
        Some(packs) => packs.iter().map(one).collect(),
        None => Ok(vec![one(value)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack() -> v1::Pack {
        let role = |role: &str, model: &str, thinking: &str| v1::PackRole {
            role: role.into(),
            model: model.into(),
            thinking: thinking.into(),
            usable: false,
        };
        let roles = vec![role("build", "a/b:\"c\"", ""), role("plan", "a/d", "high")];
        v1::Pack { name: "mine".into(), roles, ..v1::Pack::default() }
    }

    #[test]
    fn what_is_exported_can_be_imported() {
        let packs = parse_packs(Path::new("x"), &toml(&pack())).unwrap();
        let read: Vec<v1::Pack> = packs.into_iter().map(of_entry).collect();
        assert_eq!(read, [pack()]);
        assert_eq!(of_json(&message_json("Pack", &pack()).unwrap()).unwrap(), [pack()]);
    }

    #[test]
    fn a_file_that_holds_more_than_packs_is_refused() {
        for (text, words) in [
            ("[packs.a]\nbuild = \"a/b\"\n[permissions]\nallow = [\"shell\"]\n", "nothing else"),
            ("[packs.a]\nbuild = 5\n", "packs.a.build"),
            ("[packs.a]\nbuilder = \"a/b\"\n", "builder"),
            ("[packs.a]\nbuild = \"a/b\"\nthinking = { build = \"much\" }\n", "one of"),
            ("", "no [packs.NAME]"),
        ] {
            let said = parse_packs(Path::new("x"), text).unwrap_err().to_string();
            assert!(said.contains(words), "{text}: {said}");
        }
        assert!(of_json(&serde_json::json!({"name": "a"})).is_err());
        assert!(pair("builder=a/b").is_err() && pair("build").is_err());
    }

    #[test]
    fn a_role_is_given_once() {
        let given = |roles: &[&str], thinking: &[&str]| {
            let pairs = |words: &[&str]| words.iter().map(|word| pair(word).unwrap()).collect();
            PackArgs { name: "mine".into(), roles: pairs(roles), thinking: pairs(thinking) }.into_pack()
        };
        assert_eq!(given(&["build=a/b", "plan=a/b"], &["plan=high"]).unwrap().roles.len(), 2);
        for (roles, thinking) in
            [(&["build=a/b", "plan=a/b", "build=c/d"][..], &[][..]), (&["build=a/b"], &["build=high", "build=low"])]
        {
            let error = given(roles, thinking).unwrap_err();
            assert!(error.exit_code() == 2 && error.message.contains("build is given twice"), "{error:?}");
        }
    }
}
